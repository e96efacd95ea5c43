//go:build never

package node

import _ "github.com/hashicorp/serf/serf"
