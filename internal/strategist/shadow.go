package strategist

import (
	"slices"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// shadow is a type's candidate, and what was seen of it beside the strategy in force.
type shadow struct {
	prepared *loading // it is a user of it; nil: the type has no shadow at present
	asking   bool     // a call of it is under way
	of       matchUp
	seen     Comparison
	fuel     []uint64 // of the latest calls
	time     []uint64

	calls, failures, differed uint64 // of every shadow that the type has had
}

// matchUp names a comparison: another leader's term, another strategy in force or another shadow begins a new one. All three only grow.
type matchUp struct{ term, against, seq uint64 }

func (m matchUp) before(o matchUp) bool {
	return m.term < o.term || m.term == o.term && (m.against < o.against || m.seq < o.seq)
}

// Comparison is what this node has seen of a shadow beside the strategy in force, since it leads and both are what they are. Pointers are nil where there
// was no call, or none that ended with a known fuel.
type Comparison struct {
	Since                 time.Time // of the first question; zero: there was none yet
	Calls, Failures       uint64    // of the shadow
	Skipped               uint64    // questions that it was not asked: its last call was under way still, or its module not ready
	Compared              uint64    // questions that both answered
	Differed              uint64    // of these, answered otherwise
	Agreed                uint64    // of these, answered alike since they last differed
	Moves                 [2]uint64 // that the strategy in force and the shadow have asked for in all compared rebalances
	LastFuel, P99Fuel     *uint64
	LastMicros, P99Micros *uint64
	Last                  *Difference
	Failure               *coordinator.StrategyFailure // the shadow's last one
}

// MostMoves is how many moves of each a Difference holds.
const MostMoves = 1000

// Difference is an answer of the shadow that was another than that of the strategy in force.
type Difference struct {
	Op    pluginapi.Op
	At    time.Time
	Moves [2][]Move // of the strategy in force and of the shadow, at most MostMoves; of an allocate the homes that differ
	Count [2]int    // how many there were
}

// Move is one of a Difference.
type Move struct {
	Shard  uint32
	From   string // the owner; empty where a home is given
	To     string // empty: none was named
	Reason string
}

// PrepareShadow is Prepare for the shadow of a type; a spec without a module ends it.
func (s *Strategist) PrepareShadow(t sharding.TypeName, spec protocol.StrategySpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepareShadow(t, spec)
}

func (s *Strategist) prepareShadow(t sharding.TypeName, spec protocol.StrategySpec) {
	h := s.shadowOf(t)
	before := h.prepared
	h.prepared = nil
	if spec.Digest != ([32]byte{}) {
		h.prepared = s.start(spec)
		h.prepared.superseded = false
	}
	if before != nil {
		if before != h.prepared {
			before.superseded = true // it is given up once no type, and no call, has it
		}
		s.drop(before)
	}
}

// shadowOf gives a type's; s.mu is held.
func (s *Strategist) shadowOf(t sharding.TypeName) *shadow {
	h := s.shadows[t]
	if h == nil {
		h = &shadow{}
		s.shadows[t] = h
	}
	return h
}

// askShadow puts a question to the shadow that the strategy in force has answered, and compares the answers. It runs after the decision, in the call's
// goroutine; while it does so, further questions are not put to the shadow, so that a slow one makes no queue.
func (s *Strategist) askShadow(a coordinator.AskStrategy, active host.Decision) {
	q := a.Shadow
	of := matchUp{q.Term, q.Against, q.Seq}
	l := s.beginShadow(a.Type, of, q.Spec)
	if l == nil {
		return
	}
	strategy := l.strategy.AsShadow()
	var d host.Decision
	if a.Op == pluginapi.OpAllocate {
		d = strategy.Allocate(s.ctx, q.Input, a.Shards)
	} else {
		d = strategy.Rebalance(s.ctx, q.Input)
	}
	var diff *Difference
	if d.Err == nil && active.Err == nil {
		diff = compare(a, &active, &d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(l)
	h := s.shadowOf(a.Type)
	h.asking = false
	if s.ctx.Err() != nil || h.of != of { // stopped in the middle, or about what is no more
		return
	}
	h.ended(&d, diff)
}

// beginShadow notes a question, and counts a user of the shadow that is to be asked; nil: it is not asked.
func (s *Strategist) beginShadow(t sharding.TypeName, of matchUp, spec protocol.StrategySpec) *loading {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shadowOf(t)
	if of.before(h.of) {
		return nil
	}
	if h.of != of {
		h.of, h.seen, h.fuel, h.time = of, Comparison{Since: time.Now()}, nil, nil
	}
	l := h.prepared
	ready := false
	if l != nil && l.key == keyOf(spec) {
		select {
		case <-l.done:
			ready = l.err == nil
		default:
		}
	}
	if s.closed || h.asking || !ready {
		h.seen.Skipped++
		return nil
	}
	h.asking = true
	l.users++
	return l
}

// ended counts a call of the shadow; the strategist's lock is held.
func (h *shadow) ended(d *host.Decision, diff *Difference) {
	c := &h.seen
	for _, f := range d.Calls() {
		h.calls++
		c.Calls++
		if f.Verdict != host.VerdictOK {
			h.failures++
			c.Failures++
		}
		c.LastFuel = nil
		if f.Fuel >= 0 {
			fuel := uint64(f.Fuel)
			c.LastFuel, h.fuel = &fuel, push(h.fuel, fuel)
		}
		took := uint64(f.Elapsed.Microseconds())
		c.LastMicros, h.time = &took, push(h.time, took)
	}
	if d.Err != nil {
		c.Failure = &coordinator.StrategyFailure{Verdict: "missing", Detail: d.Err.Error()}
		if v, ok := host.VerdictOf(d.Err); ok {
			c.Failure.Verdict = v.String()
		}
	}
	if diff == nil {
		return
	}
	c.Compared++
	if diff.Op == pluginapi.OpRebalance {
		for i := range c.Moves {
			c.Moves[i] += uint64(diff.Count[i])
		}
	}
	if !diff.differs() {
		c.Agreed++
		return
	}
	h.differed++
	c.Differed++
	c.Agreed, c.Last = 0, diff
}

// differs says that something else would have come of it. The order of moves is none of it.
func (d *Difference) differs() bool {
	if d.Op == pluginapi.OpAllocate {
		return d.Count[0] > 0
	}
	return d.Count[0] != d.Count[1] || len(d.Moves[1]) > 0
}

// compare gives both answers to a question. The lists of answers that are alike are empty.
func compare(a coordinator.AskStrategy, active, other *host.Decision) *Difference {
	out := &Difference{Op: a.Op, At: time.Now()}
	in := a.Input
	name := func(node int) string {
		if node < 0 || node >= len(in.Nodes) {
			return ""
		}
		return in.Nodes[node].Name
	}
	if a.Op == pluginapi.OpAllocate {
		for k, shard := range a.Shards {
			if active.Homes.Nodes[k] == other.Homes.Nodes[k] {
				continue
			}
			for i, h := range [2]*pluginapi.Homes{&active.Homes, &other.Homes} {
				out.Count[i]++
				if len(out.Moves[i]) < MostMoves {
					m := Move{Shard: shard, To: name(h.Nodes[k])}
					if k < len(h.Reasons) {
						m.Reason = h.Reasons[k]
					}
					out.Moves[i] = append(out.Moves[i], m)
				}
			}
		}
		return out
	}
	plans := [2][]pluginapi.Move{active.Plan.Moves, other.Plan.Moves}
	out.Count = [2]int{len(plans[0]), len(plans[1])}
	if sameMoves(plans[0], plans[1]) {
		return out
	}
	for i, plan := range plans {
		for _, mv := range plan[:min(len(plan), MostMoves)] {
			out.Moves[i] = append(out.Moves[i], Move{Shard: mv.Shard, From: name(int(in.Owners[mv.Shard])), To: name(mv.Target), Reason: mv.Reason})
		}
	}
	return out
}

func sameMoves(a, b []pluginapi.Move) bool {
	if len(a) != len(b) {
		return false
	}
	sorted := func(moves []pluginapi.Move) []pluginapi.Move {
		return slices.SortedFunc(slices.Values(moves), func(x, y pluginapi.Move) int { return int(x.Shard) - int(y.Shard) })
	}
	return slices.EqualFunc(sorted(a), sorted(b), func(x, y pluginapi.Move) bool { return x.Shard == y.Shard && x.Target == y.Target })
}

// Comparison gives that of a type's shadow with the given number, as long as it is compared with the strategy of number against in the leader's present
// term; zero before the first question.
func (s *Strategist) Comparison(t sharding.TypeName, term, against, seq uint64) Comparison {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shadows[t]
	if h == nil || h.of != (matchUp{term, against, seq}) {
		return Comparison{}
	}
	out := h.seen // what it points to is changed by nobody
	out.P99Fuel, out.P99Micros = p99(h.fuel), p99(h.time)
	return out
}

// ShadowTotals counts the calls of a type's shadows on this node, of all that it has had.
func (s *Strategist) ShadowTotals(t sharding.TypeName) (calls, failures, differed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.shadows[t]; h != nil {
		calls, failures, differed = h.calls, h.failures, h.differed
	}
	return calls, failures, differed
}
