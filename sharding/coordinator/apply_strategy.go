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
	if r := t.expectStrategy(c.Expect); r.Code != "" {
		return r
	}
	out := Result{Strategy: t.name}
	if g.shadow.on() && sameSpec(c.Spec, g.shadow.spec) { // it has nothing to be compared with any more
		g.shadow.change(protocol.StrategySpec{}, s.now)
		out.Shadow = t.name
	}
	g.replace(c.Spec)
	return out
}

// expectStrategy refuses what was decided about another strategy than the one in force.
func (t *typeState) expectStrategy(seq uint64) Result {
	if seq != t.strategy.seq {
		return refuse(CodeConflict, "the strategy of %s was changed meanwhile: it is number %d now, expected was %d", t.name, t.strategy.seq, seq)
	}
	return Result{}
}

// expectShadow refuses what was decided about another shadow than the present one.
func (t *typeState) expectShadow(seq uint64) Result {
	if seq != t.strategy.shadow.seq {
		return refuse(CodeConflict, "the shadow of %s was changed meanwhile: it is number %d now, expected was %d", t.name, t.strategy.shadow.seq, seq)
	}
	return Result{}
}

// applySetShadow sets or ends a shadow.
func (s *State) applySetShadow(c *protocol.SetShadow) Result {
	t, r := s.entryType(c.Type)
	if t == nil {
		return r
	}
	if r = t.expectStrategy(c.Expect); r.Code == "" {
		r = t.expectShadow(c.Shadow)
	}
	if r.Code != "" {
		return r
	}
	g := &t.strategy
	switch begins := c.Spec.Digest != [32]byte{}; {
	case begins && !t.usable():
		return refuse(CodeConflict, "%s has no strategy that a shadow could run beside", c.Type)
	case begins && sameSpec(c.Spec, g.spec):
		return refuse(CodeConflict, "%s runs this very strategy: a shadow of it would have nothing to be compared with", c.Type)
	case !begins:
		c = &protocol.SetShadow{} // a spec without a module is none
	}
	g.shadow.change(c.Spec, s.now)
	return Result{Shadow: t.name}
}

// applyPromote activates a shadow.
func (s *State) applyPromote(c *protocol.Promote) Result {
	t, r := s.entryType(c.Type)
	if t == nil {
		return r
	}
	if r = t.expectStrategy(c.Expect); r.Code == "" {
		r = t.expectShadow(c.Shadow)
	}
	g := &t.strategy
	if r.Code == "" && !g.shadow.on() {
		r = noShadow(t)
	}
	if r.Code != "" {
		return r
	}
	spec := g.shadow.spec
	g.shadow.change(protocol.StrategySpec{}, s.now)
	g.replace(spec)
	return Result{Strategy: t.name, Shadow: t.name}
}

func noShadow(t *typeState) Result {
	return refuse(CodeConflict, "%s has no shadow to promote", t.name)
}

// applyRollback activates what worked before. What it goes back from is not kept, so that the next one goes further back.
func (s *State) applyRollback(c *protocol.Rollback) Result {
	t, r := s.entryType(c.Type)
	if t == nil {
		return r
	}
	if r = t.expectStrategy(c.Expect); r.Code != "" {
		return r
	}
	g := &t.strategy
	i := g.previous()
	if i < 0 {
		return noPrevious(t)
	}
	out := Result{Strategy: t.name}
	back := g.good[i]
	g.good = slices.Clone(g.good[:i])
	if g.shadow.on() && sameSpec(back, g.shadow.spec) {
		g.shadow.change(protocol.StrategySpec{}, s.now)
		out.Shadow = t.name
	}
	g.reverted, g.why = protocol.StrategySpec{}, ""
	g.activate(back)
	return out
}

func noPrevious(t *typeState) Result {
	return refuse(CodeConflict, "%s has nothing to go back to: no other strategy has given a decision before", t.name)
}

// previous is the newest of good that is not in force; -1: there is none. After a revert the substitute is still among them.
func (g *strategyState) previous() int {
	for i, spec := range slices.Backward(g.good) {
		if !sameSpec(spec, g.spec) {
			return i
		}
	}
	return -1
}

// replace activates a strategy that somebody has chosen, and keeps the one before if it worked.
func (g *strategyState) replace(spec protocol.StrategySpec) {
	if g.worked {
		g.forget(g.spec)
		g.good = append(g.good, g.spec)
		if len(g.good) > maxGood {
			g.good = slices.Delete(g.good, 0, 1)
		}
	}
	g.reverted, g.why = protocol.StrategySpec{}, "" // what is in force now is nobody's substitute
	g.activate(spec)
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
