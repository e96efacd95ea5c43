package nested

import _ "github.com/hashicorp/serf/serf"
