package coordinator

import (
	"bytes"
	"fmt"
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
	if g.worked {
		g.forget(g.spec)
		g.good = append(g.good, g.spec)
		if len(g.good) > maxGood {
			g.good = slices.Delete(g.good, 0, 1)
		}
	}
	g.reverted, g.why = protocol.StrategySpec{}, "" // what is in force now is nobody's substitute
	g.activate(c.Spec)
	return Result{Strategy: t.name}
}

// applyStrategyOutcome counts failures in a row; the last one that is taken brings back the strategy that worked before (spec 1.3). The
// count is in the log, and so outlives the leader: a strategy that fails every time is taken off even where leaders change faster than
// one of them sees it fail often enough.
func (s *State) applyStrategyOutcome(o *protocol.StrategyOutcome) Result {
	t, r := s.entryType(o.Type)
	if t == nil {
		return r
	}
	g := &t.strategy
	if o.Seq != g.seq || g.seq == 0 {
		return refuse(CodeConflict, "strategy %d of %s is not in force any more", o.Seq, o.Type)
	}
	if o.Failure == "" {
		g.worked, g.failed = true, 0
		return Result{}
	}
	g.failed++
	limit := g.spec.MaxFailures
	if limit == 0 {
		limit = defaultMaxFailures
	}
	if g.failed < limit {
		return Result{}
	}
	g.reverted, g.why = g.spec, clip(fmt.Sprintf("%d failures in a row, the last one %s", g.failed, o.Failure))
	g.forget(g.spec)
	back := fallbackSpec
	if n := len(g.good); n > 0 {
		back = g.good[n-1]
	}
	g.activate(back)
	return Result{Strategy: t.name}
}

const defaultMaxFailures = 3

// fallbackSpec is what remains where no other strategy has ever worked: without a module, hash gives homes and nothing moves.
var fallbackSpec = protocol.StrategySpec{Source: "builtin:hash"}

func (g *strategyState) activate(spec protocol.StrategySpec) {
	g.seq++
	g.spec, g.worked, g.failed = spec, false, 0
}

// forget takes a strategy from those that can be gone back to.
func (g *strategyState) forget(spec protocol.StrategySpec) {
	g.good = slices.DeleteFunc(slices.Clone(g.good), func(o protocol.StrategySpec) bool { return sameSpec(o, spec) })
}
