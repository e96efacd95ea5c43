package coordinator

import (
	"fmt"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// verdicts that do not count towards a rollback: one noisy machine, or a module that is elsewhere, must not change the cluster (spec 1.3).
const (
	verdictBudget  = "budget"
	verdictMissing = "missing"
)

// verdictOutput is that of an answer that breaks the contract.
const verdictOutput = "output"

// usable says that there is a strategy to be asked: one with a module.
func (t *typeState) usable() bool {
	return t.strategy.seq != 0 && t.strategy.spec.Digest != [32]byte{}
}

// driveStrategy asks for a pass after a change of strategy.
func (m *Machine) driveStrategy(r *run, t *typeState) {
	if r.seq == t.strategy.seq {
		return
	}
	if r.seq != 0 {
		r.passDue = protocol.CauseSwap
	}
	r.seq, r.missing = t.strategy.seq, false
}

// strategyWorked puts into the log what the state does not know yet.
func (m *Machine) strategyWorked(r *run, t *typeState) {
	r.missing = false
	if !t.strategy.worked || t.strategy.failed > 0 {
		m.count(t, "")
	}
}

// strategyFailed tells of a failure, and has it counted unless the strategy is not to blame. It comes after the entries that follow from
// the call: they were decided while this strategy was in force.
func (m *Machine) strategyFailed(r *run, t *typeState, f *StrategyFailure) {
	missing := f.Verdict == verdictMissing
	if !missing || !r.missing {
		m.note(Note{Kind: NoteStrategyFailed, Level: Warn, Type: t.name, Text: fmt.Sprintf("a call of the strategy %s gave no decision: %s", sourceText(t.strategy.spec), f)})
	}
	r.missing, r.failure = missing, LastFailure{t.strategy.seq, t.strategy.spec, *f}
	if !missing && f.Verdict != verdictBudget {
		m.count(t, f.String())
	}
}

// LastFailure is a strategy's latest call that gave no decision.
type LastFailure struct {
	Seq     uint64 // of the strategy, in StrategyView; 0: not known, the log has the text alone
	Spec    protocol.StrategySpec
	Failure StrategyFailure
}

// LastFailure gives that of a type's strategy, or of the one that it is the substitute of; false: none. What a leader knows it does not pass on:
// from a former one's term there is the text of the failures that ended in a rollback, without a verdict of its own.
func (m *Machine) LastFailure(t sharding.TypeName) (LastFailure, bool) {
	v, ok := m.state.Strategy(t)
	if !ok {
		return LastFailure{}, false
	}
	if r := m.runs[t]; r != nil && r.failure.Seq != 0 && (r.failure.Seq == v.Seq || v.Failure != "" && r.failure.Seq+1 == v.Seq) {
		return r.failure, true
	}
	return LastFailure{Spec: v.Failed, Failure: StrategyFailure{Detail: v.Failure}}, v.Failure != ""
}

func (m *Machine) count(t *typeState, failure string) {
	m.propose(&protocol.Entry{Kind: protocol.KindStrategyOutcome,
		StrategyOutcome: &protocol.StrategyOutcome{Type: t.name, Seq: t.strategy.seq, Failure: failure}}, func(Result) {})
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
	if t.usable() {
		m.do(PrepareStrategy{Type: t.name, Spec: t.strategy.spec})
	}
}

// tellSet notes that somebody chose another strategy.
func (m *Machine) tellSet(t sharding.TypeName, cause protocol.Cause) {
	v, _ := m.state.Strategy(t)
	m.note(Note{Kind: NoteStrategySet, Type: t, Text: fmt.Sprintf("the strategy of %s is now %s: %s", t, sourceText(v.Spec), because(cause))})
}

// tellEnded notes the end of a shadow.
func (m *Machine) tellEnded(r Result, why string) {
	if r.Shadow != "" {
		m.note(Note{Kind: NoteShadowEnded, Type: r.Shadow, Text: fmt.Sprintf("%s has no shadow any more: %s", r.Shadow, why)})
	}
}

// shadowAsk is a question's form for the type's shadow; nil: there is none, or it could not have answered with a move.
func (m *Machine) shadowAsk(r *run, t *typeState, a *asking) *ShadowAsk {
	h := &t.strategy.shadow
	if !h.on() {
		return nil
	}
	in := *a.input // what it points to is changed by nobody
	in.Config, in.MaxMoves = h.spec.Config, uint64(room(r, &h.spec))
	if in.MaxMoves == 0 {
		return nil
	}
	return &ShadowAsk{Term: m.term, Against: t.strategy.seq, Seq: h.seq, Spec: h.spec, Input: &in}
}
