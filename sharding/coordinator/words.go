package coordinator

import (
	"fmt"
	"path"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// because says in a sentence why something was done.
func because(c protocol.Cause) string {
	switch c {
	case protocol.CauseStopped:
		return "its region has stopped"
	case protocol.CauseLapsed:
		return "its lease has lapsed"
	case protocol.CauseSuperseded:
		return "a newer process of the node has taken its place"
	case protocol.CauseTimeout:
		return "the handoff timed out"
	case protocol.CauseRebalance:
		return "the strategy wants it there"
	case protocol.CauseContact:
		return "somebody sends to it"
	case protocol.CauseEager:
		return "all shards of the type are placed at the start"
	case protocol.CauseDrain:
		return "its node drains"
	case protocol.CauseOperator:
		return "an operator wants it there"
	case protocol.CauseFile:
		return "from a node's configuration"
	case protocol.CauseSwap:
		return "an operator swapped it"
	case protocol.CausePromote:
		return "an operator promoted the shadow"
	case protocol.CauseRollback:
		return "an operator went back to it"
	case protocol.CauseMembership:
		return "nodes have come or gone"
	case protocol.CauseInterval:
		return "at the interval"
	}
	return string(c)
}

// count puts a number before its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// has is the verb of count.
func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

// nodeText names a process of a node for people.
func nodeText(m sharding.Member) string { return fmt.Sprintf("node %s (%s)", m.Node, m) }

// sourceText names a strategy for people: the last part of a path is enough.
func sourceText(s protocol.StrategySpec) string {
	if s.Source == "" {
		return "a strategy without a name"
	}
	return path.Base(s.Source)
}
