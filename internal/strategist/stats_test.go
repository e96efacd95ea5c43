package strategist

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/strategies"
)

// names is a recorder that keeps what the strategies are called.
type names struct {
	sync.Mutex
	list []string
}

func (n *names) Record(r *host.Record) {
	n.Lock()
	defer n.Unlock()
	n.list = append(n.list, r.Type+" "+r.Strategy)
}

// Spec 1.3: "Every call leaves a record", that of a native stand-in too.
func TestCallsAreRecorded(t *testing.T) {
	b := newBench(t)
	var got names
	b.cfg.Recorder = &got
	wasm := fixture(t, "attack/well-behaved")
	_, err := b.store.Put(wasm)
	require.NoError(t, err)
	require.Nil(t, b.ask(t, specOf(wasm)).Failure)

	builtin, _, _ := strategies.Builtin("hash")
	spec := specOf(builtin)
	pending := &loading{key: keyOf(spec), done: make(chan struct{}), cancel: func() {}}
	b.Strategist.mu.Lock()
	b.loaded[keyOf(spec)] = pending // it is never ready
	b.Strategist.mu.Unlock()
	require.Nil(t, b.ask(t, spec).Failure)
	require.Equal(t, []string{"t test", "t native:hash"}, got.list)
}

// Metrics tell of the strategy in force alone: one label at a time, which begins anew with each strategy.
func TestSeries(t *testing.T) {
	b := newBench(t)
	wasm, looping := fixture(t, "attack/well-behaved"), fixture(t, "attack/loop")
	for _, m := range [][]byte{wasm, looping} {
		_, err := b.store.Put(m)
		require.NoError(t, err)
	}
	series := func() Series {
		t.Helper()
		s, ok := b.Series("t")
		require.True(t, ok)
		return s
	}
	none := func(why string) {
		t.Helper()
		_, ok := b.Series("t")
		assert.False(t, ok, why)
	}
	first := specOf(wasm)
	b.Prepare("t", first)
	none("not called yet")
	require.Nil(t, b.ask(t, first).Failure)
	b.Ask(coordinator.AskStrategy{Ask: 8, Type: "t", Spec: first, Op: pluginapi.OpRebalance, Input: input(12)})
	require.Nil(t, (<-b.answers).Failure)
	s := series()
	assert.Equal(t, "test", s.Strategy)
	assert.EqualValues(t, 2, s.Calls())
	assert.EqualValues(t, 2, s.Verdicts[host.VerdictOK])
	assert.Positive(t, s.Fuel)
	assert.Positive(t, s.Seconds)

	next := specOf(looping)
	next.Fuel = 1_000_000
	b.Prepare("t", next)
	none("another one is in force")
	require.NotNil(t, b.ask(t, next).Failure)
	s = series()
	assert.Equal(t, [host.VerdictOutput + 1]uint64{host.VerdictFuel: 1}, s.Verdicts)
	assert.EqualValues(t, next.Fuel, s.Fuel)

	// Spec 1.4: calls in flight finish on the old one. What such a call tells is not about the one in force.
	b.count("t", first, []host.CallFigures{{Verdict: host.VerdictTrap, Fuel: -1}})
	assert.Equal(t, s, series(), "the figures of the one in force are lost")
	assert.EqualValues(t, 1, b.Stats("t", next).Calls)
	calls, failures := b.Totals("t")
	assert.EqualValues(t, 4, calls)
	assert.EqualValues(t, 2, failures)

	b.Prepare("t", first)
	none("the former one is back")
}

func TestSeriesOfACall(t *testing.T) {
	var st typeStats
	st.add(host.CallFigures{Elapsed: 300 * time.Microsecond, Fuel: 7})
	st.add(host.CallFigures{Elapsed: 5 * time.Second, Verdict: host.VerdictTrap, Fuel: -1})
	assert.Equal(t, Series{Verdicts: [host.VerdictOutput + 1]uint64{host.VerdictOK: 1, host.VerdictTrap: 1}, Fuel: 7, Seconds: 5.0003,
		Buckets: [len(TimeBuckets)]uint64{0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, st.series)
}

// A module names itself: what goes into a label is bounded.
func TestLabels(t *testing.T) {
	d := modules.Digest{0xab, 0xcd}
	assert.Equal(t, "mine", label("mine", d))
	for _, name := range []string{"", strings.Repeat("x", mostLabel+1), "a\xff"} {
		assert.Equal(t, "sha256:abcd00000000", label(name, d), name)
	}
}
