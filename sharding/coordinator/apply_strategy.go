package coordinator

import (
	"bytes"
	"slices"

	"github.com/droverhq/drover/sharding/protocol"
)

// sameSpec compares strategies by all that a decision depends on; Source is for people.
func sameSpec(a, b protocol.StrategySpec) bool {
	return a.Digest == b.Digest && bytes.Equal(a.Config, b.Config) && a.Fuel == b.Fuel && a.Budget == b.Budget && a.Memory == b.Memory &&
		a.MaxFailures == b.MaxFailures && a.MovesPass == b.MovesPass
}

func (s *State) applySetStrategy(c *protocol.SetStrategy) Result {
	t, r := s.entryType(c.Type)
	if t == nil {
		return r
	}
	g := &t.strategy
	if c.Expect != g.seq {
		return refuse(CodeConflict, "the strategy of %s was changed meanwhile: it is number %d now, expected was %d", c.Type, g.seq, c.Expect)
	}
	drop := func(spec protocol.StrategySpec) {
		g.good = slices.DeleteFunc(slices.Clone(g.good), func(o protocol.StrategySpec) bool { return sameSpec(o, spec) })
	}
	if c.Cause == protocol.CauseReverted {
		g.failed, g.failure = g.spec, clip(c.Why)
		drop(g.spec)
	} else if g.marked {
		drop(g.spec)
		g.good = append(g.good, g.spec)
		if len(g.good) > maxGood {
			g.good = slices.Delete(g.good, 0, 1)
		}
	}
	g.seq++
	g.spec, g.marked = c.Spec, false
	return Result{}
}

func (s *State) applyMarkStrategy(m *protocol.MarkStrategy) Result {
	t, r := s.entryType(m.Type)
	if t == nil {
		return r
	}
	if m.Seq != t.strategy.seq || t.strategy.marked {
		return refuse(CodeConflict, "strategy %d of %s is not the one in force, or is marked", m.Seq, m.Type)
	}
	t.strategy.marked = true
	return Result{}
}
