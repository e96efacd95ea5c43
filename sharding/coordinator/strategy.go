package coordinator

import (
	"fmt"

	"github.com/droverhq/drover/sharding/protocol"
)

// verdicts that do not count towards a rollback: one noisy machine, or a module that is elsewhere, must not change the cluster (spec 1.3).
const (
	verdictBudget  = "budget"
	verdictMissing = "missing"
)

// fallbackSpec is what remains where no strategy has ever worked: without a module, hash gives homes and nothing moves.
var fallbackSpec = protocol.StrategySpec{Source: "builtin:hash"}

// usable says that there is a strategy to be asked: one with a module, and not one that is being replaced for its failures.
func (m *Machine) usable(r *run, t *typeState) bool {
	g := &t.strategy
	return g.seq != 0 && g.spec.Digest != [32]byte{} && r.setAside != g.seq
}

// driveStrategy follows a change of strategy up, and marks one that has worked, so that it can be gone back to.
func (m *Machine) driveStrategy(r *run, t *typeState) {
	g := &t.strategy
	if r.seq != g.seq {
		if r.seq != 0 {
			r.passDue = protocol.CauseSwap
		}
		r.seq, r.failures, r.worked, r.missing = g.seq, 0, false, false
	}
	if r.worked && !g.marked && !r.changing {
		r.changing = true
		m.propose(&protocol.Entry{Kind: protocol.KindMarkStrategy, MarkStrategy: &protocol.MarkStrategy{Type: t.name, Seq: g.seq}},
			func(Result) { r.changing = false })
	}
}

func (m *Machine) strategyWorked(r *run, t *typeState) {
	r.failures, r.missing, r.worked = 0, false, true
}

// strategyFailed counts a failure; after max_failures in a row the last strategy that worked comes back, for the whole cluster.
func (m *Machine) strategyFailed(r *run, t *typeState, f *StrategyFailure) {
	if f.Verdict != verdictMissing || !r.missing {
		m.note(Note{Kind: NoteStrategyFailed, Level: Warn, Type: t.name, Text: fmt.Sprintf("%s: %s", f.Verdict, f.Detail)})
	}
	if f.Verdict == verdictBudget || f.Verdict == verdictMissing {
		r.missing = f.Verdict == verdictMissing
		return
	}
	g := &t.strategy
	r.failures++
	limit := g.spec.MaxFailures
	if limit == 0 {
		limit = defaultMaxFailures
	}
	if r.failures < limit || r.setAside == g.seq {
		return
	}
	back := fallbackSpec
	for _, spec := range g.good {
		if !sameSpec(spec, g.spec) {
			back = spec
		}
	}
	r.setAside = g.seq
	m.propose(&protocol.Entry{Kind: protocol.KindSetStrategy, SetStrategy: &protocol.SetStrategy{
		Type: t.name, Spec: back, Expect: g.seq, Cause: protocol.CauseReverted,
		Why: fmt.Sprintf("%d failures in a row, the last one %s: %s", r.failures, f.Verdict, f.Detail)}},
		func(res Result) {
			if res.Code == CodeUnavailable {
				r.setAside = 0 // the next failure tries again
			}
		})
}

// proposeFromFile activates the strategy of a node's file where the cluster has none for the type yet (spec 1.4).
func (m *Machine) proposeFromFile(g protocol.RegionInfo) {
	t := m.state.typeAt(g.Type)
	if t == nil || t.strategy.seq != 0 || !g.Hosts || g.Strategy.Digest == [32]byte{} {
		return
	}
	r := m.run(t)
	if r.proposed {
		return
	}
	r.proposed = true
	m.propose(&protocol.Entry{Kind: protocol.KindSetStrategy, SetStrategy: &protocol.SetStrategy{Type: t.name, Spec: g.Strategy, Cause: protocol.CauseFile}},
		func(Result) { r.proposed = false })
}

// prepare tells the shell of a strategy that it will have to run.
func (m *Machine) prepare(t *typeState) {
	if t.strategy.seq != 0 && t.strategy.spec.Digest != [32]byte{} {
		m.do(PrepareStrategy{Type: t.name, Spec: t.strategy.spec})
	}
}
