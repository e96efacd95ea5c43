package strategist

import (
	"context"
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
	l := b.start(spec)
	defer b.release(l)
	s, err := b.wait(l, spec)
	require.NoError(t, err)
	return s.Name()
}

// For any other strategy calls wait, but not for ever: then the fallback gives homes.
func TestPatienceEnds(t *testing.T) {
	b := newBench(t)
	b.setFetch(func(modules.Digest) ([]byte, error) { <-b.ctx.Done(); return nil, context.Cause(b.ctx) })
	b.patience = loadPatience
	spec := specOf(fixture(t, "attack/well-behaved"))
	b.Prepare("t", spec)
	b.loadingOf(spec).began = time.Now().Add(-loadPatience)
	a := b.ask(t, spec)
	require.NotNil(t, a.Failure)
	assert.Equal(t, "missing", a.Failure.Verdict)
	assert.Contains(t, a.Failure.Detail, "still being fetched or compiled")
	state, _ := b.State(spec)
	assert.Equal(t, Preparing, state, "the next call may find it")
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "strategy-rules.md"))
	require.NoError(t, err)
	assert.Contains(t, string(doc), fmt.Sprintf("Its own calls wait for %.0f s", loadPatience.Seconds()))
}
