package strategist

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies"
)

// Who replays a log prepares one strategy of a type after the other: only the last is made ready, those before are given up.
func TestSupersededIsGivenUp(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	gate := make(chan struct{})
	b.setFetch(func(modules.Digest) ([]byte, error) { <-gate; return wasm, nil })
	first, last := specOf(wasm), specOf(wasm)
	first.Fuel, last.Fuel = 1_000_000, 3_000_000
	var old []*loading
	for i := range 5 {
		spec := first
		spec.Fuel += uint64(i)
		b.Prepare("t", spec)
		old = append(old, b.loadingOf(spec))
	}
	b.Prepare("other", first)
	shared := b.loadingOf(first)
	b.Prepare("t", last)
	for _, l := range old {
		require.Error(t, l.ctx.Err(), "it is still being prepared")
	}
	require.NoError(t, shared.ctx.Err(), "another type runs it")
	close(gate)
	<-shared.done
	<-b.loadingOf(last).done
	for _, l := range old {
		<-l.done
		assert.Nil(t, l.strategy)
		assert.ErrorIs(t, l.err, errGivenUp)
	}
	assert.Len(t, b.loaded, 2)
	b.Prepare("t", first) // what is ready stays for a rollback
	state, _ := b.State(last)
	assert.Equal(t, Ready, state)
}

// Spec 1.4: a server that lacks a module when it learns of it, for want of peers say, gets it as soon as it can be had, though nobody asks it.
func TestPrepareIsTriedAgain(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	spec := specOf(wasm)
	b.setFetch(func(modules.Digest) ([]byte, error) {
		if b.fetches.Load() < 3 {
			return nil, modules.ErrNotHere
		}
		return wasm, nil
	})
	b.Prepare("t", spec)
	b.Prepare("other", spec)
	require.Eventually(t, func() bool { s, _ := b.State(spec); return s == Ready }, patience, time.Millisecond)
	assert.EqualValues(t, 3, b.fetches.Load())
	b.Strategist.mu.Lock()
	defer b.Strategist.mu.Unlock()
	assert.Same(t, b.loaded[keyOf(spec)], b.prepared["t"])
	assert.Same(t, b.loaded[keyOf(spec)], b.prepared["other"])
	assert.Equal(t, 2, b.loaded[keyOf(spec)].users)
}

// A call that waits keeps what it waits for.
func TestSupersededWhileACallWaits(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	gate, fetching := make(chan struct{}), make(chan struct{}, 2)
	b.setFetch(func(modules.Digest) ([]byte, error) { fetching <- struct{}{}; <-gate; return wasm, nil })
	spec := specOf(wasm)
	b.Ask(coordinator.AskStrategy{Ask: 7, Type: "t", Spec: spec, Op: pluginapi.OpAllocate, Input: input(3), Shards: []uint32{0}})
	<-fetching
	b.Prepare("t", spec)
	other := spec
	other.Fuel++
	b.Prepare("t", other)
	close(gate)
	assert.Nil(t, (<-b.answers).Failure)
}

// Spec 1.2: a built-in strategy and its pure form decide the same, and so the pure one answers while the module is compiled.
func TestBuiltinAnswersAtOnce(t *testing.T) {
	b := newBench(t)
	gate := make(chan struct{})
	for _, name := range strategies.Names() {
		wasm, _, ok := strategies.Builtin(name)
		require.True(t, ok)
		b.setFetch(func(modules.Digest) ([]byte, error) { <-gate; return wasm, nil })
		spec := specOf(wasm)
		early := b.ask(t, spec)
		require.Nil(t, early.Failure)
		state, _ := b.State(spec)
		assert.Equal(t, Preparing, state)
		assert.Equal(t, "native:"+name, b.asked(t, spec))
		assert.Equal(t, inputDigest(), early.Record)
		gate <- struct{}{}
		<-b.loadingOf(spec).done
		late := b.ask(t, spec)
		require.Nil(t, late.Failure)
		assert.Equal(t, early.Homes, late.Homes)
		assert.Equal(t, "test", b.asked(t, spec))
	}
}

// asked names the strategy that a call would be made to.
func (b *bench) asked(t *testing.T, spec protocol.StrategySpec) string {
	t.Helper()
	b.Strategist.mu.Lock()
	l := b.start(spec)
	b.Strategist.mu.Unlock()
	defer b.release(l)
	s, err := b.wait(l, spec)
	require.NoError(t, err)
	return s.Name()
}

// For any other strategy calls wait, but not for ever: then the fallback gives homes. Once it is ready it decides, as if it had been all the time:
// no slow machine costs a type its strategy.
func TestPatienceEnds(t *testing.T) {
	b := newBench(t)
	wasm, gate := fixture(t, "attack/well-behaved"), make(chan struct{})
	b.setFetch(func(modules.Digest) ([]byte, error) { <-gate; return wasm, nil })
	b.patience = loadPatience
	spec := specOf(wasm)
	b.Prepare("t", spec)
	b.loadingOf(spec).began = time.Now().Add(-loadPatience)
	a := b.ask(t, spec)
	require.NotNil(t, a.Failure)
	assert.Equal(t, "missing", a.Failure.Verdict)
	assert.Contains(t, a.Failure.Detail, "still being fetched or compiled")
	state, _ := b.State(spec)
	assert.Equal(t, Preparing, state, "the next call may find it")
	assert.Equal(t, Stats{}, b.Stats("t", spec), "it counts as a call of the strategy")
	close(gate)
	<-b.loadingOf(spec).done
	require.Nil(t, b.ask(t, spec).Failure)
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "strategy-rules.md"))
	require.NoError(t, err)
	assert.Contains(t, string(doc), fmt.Sprintf("Its own calls wait for %.0f s", loadPatience.Seconds()))
}
