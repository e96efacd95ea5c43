package strategist

import (
	"slices"
	"unicode/utf8"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// typeStats are of the calls that this node has made, for people.
type typeStats struct {
	allCalls, allFailures uint64 // of every strategy that the type has had

	of              key // the strategy that the rest is about
	calls, failures uint64
	fuel, time      []uint64 // of the latest calls
	lastFuel        *uint64
	lastTime        uint64
	series          Series // but for its label
}

const window = 256

func (s *Strategist) count(t sharding.TypeName, spec protocol.StrategySpec, calls []host.CallFigures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats[t]
	if st == nil {
		st = &typeStats{}
		s.stats[t] = st
	}
	of := keyOf(spec)
	if l := s.prepared[t]; st.of != of && l != nil && l.key == st.of {
		for _, c := range calls { // in flight when another one came into force
			st.addTotals(c)
		}
		return
	}
	if st.of != of { // another strategy: the former one's figures are not its own
		*st = typeStats{of: of, allCalls: st.allCalls, allFailures: st.allFailures}
	}
	for _, c := range calls {
		st.add(c)
	}
}

func (st *typeStats) addTotals(c host.CallFigures) {
	st.allCalls++
	if c.Verdict != host.VerdictOK {
		st.allFailures++
	}
}

func (st *typeStats) add(c host.CallFigures) {
	st.addTotals(c)
	st.calls++
	if c.Verdict != host.VerdictOK {
		st.failures++
	}
	st.lastFuel = nil
	if c.Fuel >= 0 {
		f := uint64(c.Fuel)
		st.lastFuel = &f
		st.fuel = push(st.fuel, f)
		st.series.Fuel += f
	}
	st.lastTime = uint64(c.Elapsed.Microseconds())
	st.time = push(st.time, st.lastTime)
	st.series.Verdicts[c.Verdict]++
	st.series.Seconds += c.Elapsed.Seconds()
	for i, most := range TimeBuckets {
		if c.Elapsed.Seconds() <= most {
			st.series.Buckets[i]++
		}
	}
}

// TimeBuckets are the upper bounds of the histogram of a call's time, in seconds: from a small guest on few shards to what no budget should allow.
var TimeBuckets = [...]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}

// Series are what metrics tell of the strategy that a type has at present.
type Series struct {
	Strategy string // its name if that is short, else its digest: one label at a time for each type
	Verdicts [host.VerdictOutput + 1]uint64
	Fuel     uint64                   // in all, where it is known
	Seconds  float64                  // in all
	Buckets  [len(TimeBuckets)]uint64 // calls that took no longer than TimeBuckets says
}

// Calls counts all verdicts.
func (s *Series) Calls() (n uint64) {
	for _, v := range s.Verdicts {
		n += v
	}
	return n
}

// Series gives those of the strategy that is in force for a type; false if this node has not called it since it came into force. Those of one that
// was replaced are gone.
func (s *Strategist) Series(t sharding.TypeName) (Series, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, l := s.stats[t], s.prepared[t]
	if st == nil || l == nil || st.of != l.key {
		return Series{}, false
	}
	out := st.series
	name, _, ok := builtin(l.key.digest)
	if !ok {
		select {
		case <-l.done:
			name = l.name
		default:
		}
	}
	out.Strategy = label(name, l.key.digest)
	return out, true
}

// mostLabel bounds the name of a strategy in metrics, in bytes.
const mostLabel = 64

func label(name string, d modules.Digest) string {
	if name == "" || len(name) > mostLabel || !utf8.ValidString(name) {
		return "sha256:" + d.String()[:12]
	}
	return name
}

func push(w []uint64, v uint64) []uint64 {
	if len(w) == window {
		w = append(w[:0], w[1:]...)
	}
	return append(w, v)
}

// Stats of a type's calls on this node. Pointers are nil where there was no call, or none that ended with a known fuel.
type Stats struct {
	Calls, Failures       uint64
	LastFuel, P99Fuel     *uint64
	LastMicros, P99Micros *uint64
}

// Totals counts a type's calls on this node, of all strategies that it has had.
func (s *Strategist) Totals(t sharding.TypeName) (calls, failures uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.stats[t]; st != nil {
		calls, failures = st.allCalls, st.allFailures
	}
	return calls, failures
}

// Stats gives those of a type's present strategy, since it came into force; zero before its first call.
func (s *Strategist) Stats(t sharding.TypeName, spec protocol.StrategySpec) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats[t]
	if st == nil || st.of != keyOf(spec) {
		return Stats{}
	}
	out := Stats{Calls: st.calls, Failures: st.failures, LastFuel: st.lastFuel, P99Fuel: p99(st.fuel), P99Micros: p99(st.time)}
	if len(st.time) > 0 {
		last := st.lastTime
		out.LastMicros = &last
	}
	return out
}

func p99(w []uint64) *uint64 {
	if len(w) == 0 {
		return nil
	}
	s := slices.Sorted(slices.Values(w))
	v := s[(len(s)*99-1)/100]
	return &v
}
