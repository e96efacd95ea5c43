package x

import _ "github.com/hashicorp/serf/serf"
