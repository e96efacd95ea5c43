package strategist

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// cacheDir holds what is compiled, for all tests: each module once.
var cacheDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "strategist")
	if err != nil {
		panic(err)
	}
	cacheDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// bench is a strategist whose peers are a function.
type bench struct {
	*Strategist
	store   *modules.Store
	answers chan coordinator.StrategyAnswered
	fetches atomic.Int64

	mu    sync.Mutex
	fetch func(modules.Digest) ([]byte, error)
}

const patience = 30 * time.Second

func newBench(t *testing.T) *bench {
	t.Helper()
	rt, err := host.NewRuntime(context.Background(), host.Options{CacheDir: cacheDir})
	require.NoError(t, err)
	store, err := modules.Open(filepath.Join(t.TempDir(), "modules"))
	require.NoError(t, err)
	b := &bench{store: store, answers: make(chan coordinator.StrategyAnswered, 1024)}
	b.setFetch(func(modules.Digest) ([]byte, error) { return nil, modules.ErrNotHere })
	b.Strategist = New(Config{Runtime: rt, Modules: store, Logger: slog.New(slog.DiscardHandler),
		Post: func(ev coordinator.Event) { b.answers <- ev.(coordinator.StrategyAnswered) },
		Fetch: func(_ context.Context, d modules.Digest) ([]byte, error) {
			b.fetches.Add(1)
			b.mu.Lock()
			f := b.fetch
			b.mu.Unlock()
			return f(d)
		}})
	b.patience = patience
	t.Cleanup(func() {
		assert.NoError(t, b.Close())
		assert.NoError(t, rt.Close(context.Background()))
	})
	return b
}

func (b *bench) setFetch(f func(modules.Digest) ([]byte, error)) {
	b.mu.Lock()
	b.fetch = f
	b.mu.Unlock()
}

// fixture is a module of the host's tests.
func fixture(t *testing.T, name string) []byte {
	b, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", filepath.FromSlash(name)+".wasm"))
	require.NoError(t, err)
	return b
}

func specOf(wasm []byte) protocol.StrategySpec {
	return protocol.StrategySpec{Source: "test", Digest: sha256.Sum256(wasm), Fuel: host.DefaultFuel, Budget: 10_000, Memory: 16 << 20, MaxFailures: 3, MovesPass: 100}
}

func input(nodes int) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{Type: "t", MaxMoves: 1000}
	for i := range nodes {
		name := fmt.Sprintf("node-%03d", i)
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100})
		s.Candidates = append(s.Candidates, i)
	}
	for range 16 {
		s.Owners = append(s.Owners, pluginapi.NoOwner)
	}
	return s
}

func (b *bench) ask(t *testing.T, spec protocol.StrategySpec) coordinator.StrategyAnswered {
	t.Helper()
	b.Ask(coordinator.AskStrategy{Ask: 7, Type: "t", Spec: spec, Op: pluginapi.OpAllocate, Input: input(12), Shards: []uint32{0}})
	select {
	case a := <-b.answers:
		assert.EqualValues(t, 7, a.Ask)
		return a
	case <-time.After(patience):
		t.Fatal("no answer")
		panic("unreachable")
	}
}

// inputDigest is that of the question that ask puts.
func inputDigest() [32]byte {
	return sha256.Sum256(pluginapi.AppendInput(nil, pluginapi.OpAllocate, input(12), []uint32{0}))
}

// Spec 1.3: a call gives homes, and the answer names the input by its digest, so that it can be asked again.
func TestCall(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	_, err := b.store.Put(wasm)
	require.NoError(t, err)
	spec := specOf(wasm)
	state, _ := b.State(spec)
	assert.Equal(t, Unknown, state)
	a := b.ask(t, spec)
	require.Nil(t, a.Failure)
	assert.Len(t, a.Homes.Nodes, 1)
	assert.Equal(t, inputDigest(), a.Record)
	state, name := b.State(spec)
	assert.Equal(t, Ready, state)
	assert.Equal(t, "test", name, "a module that does not describe itself goes by its source")
	b.Ask(coordinator.AskStrategy{Ask: 8, Type: "t", Spec: spec, Op: pluginapi.OpRebalance, Input: input(12)})
	assert.Nil(t, (<-b.answers).Failure)
	st := b.Stats("t", spec)
	assert.EqualValues(t, 2, st.Calls)
	assert.Zero(t, st.Failures)
	require.NotNil(t, st.LastFuel)
	assert.Positive(t, *st.LastFuel)
	require.NotNil(t, st.P99Micros)
	assert.Equal(t, Stats{}, b.Stats("other", spec))
	next := spec
	next.Fuel--
	assert.Equal(t, Stats{}, b.Stats("t", next), "a strategy's figures are its own")
	require.Nil(t, b.ask(t, next).Failure)
	assert.EqualValues(t, 1, b.Stats("t", next).Calls)
	assert.Equal(t, Stats{}, b.Stats("t", spec))
	calls, failures := b.Totals("t")
	assert.EqualValues(t, 3, calls)
	assert.Zero(t, failures)
	assert.Zero(t, b.fetches.Load(), "a module that is here was fetched")
}

// Spec 1.4: a module that is missing is fetched by digest from a peer, once for all who wait, and kept.
func TestFetch(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	gate := make(chan struct{})
	b.setFetch(func(d modules.Digest) ([]byte, error) { <-gate; return wasm, nil })
	spec := specOf(wasm)
	b.Prepare("t", spec)
	state, _ := b.State(spec)
	assert.Equal(t, Preparing, state)
	for range 5 {
		b.Ask(coordinator.AskStrategy{Ask: 7, Type: "t", Spec: spec, Op: pluginapi.OpAllocate, Input: input(3), Shards: []uint32{0}})
	}
	close(gate)
	for range 5 {
		assert.Nil(t, (<-b.answers).Failure)
	}
	assert.EqualValues(t, 1, b.fetches.Load())
	assert.True(t, b.store.Has(spec.Digest), "a fetched module is not kept")
}

// Spec 1.4: bytes of another digest are refused, none at all is "missing"; both are tried again once the module can be had.
func TestMissingModuleIsTriedAgain(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	spec := specOf(wasm)
	for _, peers := range []func(modules.Digest) ([]byte, error){
		func(modules.Digest) ([]byte, error) { return fixture(t, "attack/log-some"), nil },
		func(modules.Digest) ([]byte, error) { return nil, fmt.Errorf("nobody: %w", modules.ErrNotHere) },
		func(modules.Digest) ([]byte, error) { return nil, errors.New("the network is gone") },
	} {
		b.setFetch(peers)
		b.age(spec)
		a := b.ask(t, spec)
		require.NotNil(t, a.Failure)
		assert.Equal(t, "missing", a.Failure.Verdict)
		assert.NotEmpty(t, a.Failure.Detail)
		state, _ := b.State(spec)
		assert.Equal(t, Missing, state)
		assert.False(t, b.store.Has(spec.Digest))
	}
	before := b.fetches.Load()
	b.ask(t, spec)
	assert.Equal(t, before, b.fetches.Load(), "a failure is repeated at once, without a pause")
	b.setFetch(func(modules.Digest) ([]byte, error) { return wasm, nil })
	b.age(spec)
	assert.Nil(t, b.ask(t, spec).Failure)
	assert.Zero(t, b.Stats("t", spec).Failures, "a missing module counts as the strategy's failure")
}

// age lets the pause after a failure pass.
func (b *bench) age(spec protocol.StrategySpec) {
	b.Strategist.mu.Lock()
	defer b.Strategist.mu.Unlock()
	if l := b.loaded[keyOf(spec)]; l != nil {
		l.again = time.Time{}
	}
}

// Spec 1.3: each way to fail has its verdict; what a clock decided and a module that cannot be had never count towards a rollback.
func TestVerdicts(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		module  string
		change  func(*protocol.StrategySpec)
		verdict string
	}{
		{"attack/unreachable", nil, "trap"},
		{"attack/loop", nil, "fuel"},
		{"attack/loop", func(s *protocol.StrategySpec) { s.Fuel, s.Budget = host.MaxFuel, 1 }, "budget"},
		{"attack/recursion", nil, "depth"},
		{"attack/bad-cbor", nil, "output"},
		{"admission/warm-up-failed.trap", nil, "missing"}, // cannot be made ready
	} {
		wasm := fixture(t, c.module)
		_, err := b.store.Put(wasm)
		require.NoError(t, err)
		spec := specOf(wasm)
		spec.Fuel = 1_000_000
		if c.change != nil {
			c.change(&spec)
		}
		b.Ask(coordinator.AskStrategy{Ask: 1, Type: sharding.TypeName(c.module + c.verdict), Spec: spec, Op: pluginapi.OpAllocate, Input: input(8), Shards: []uint32{0}})
		a := <-b.answers
		require.NotNil(t, a.Failure, c.module)
		assert.Equal(t, c.verdict, a.Failure.Verdict, "%s: %s", c.module, a.Failure.Detail)
		assert.NotEmpty(t, a.Failure.Detail)
		st := b.Stats(sharding.TypeName(c.module+c.verdict), spec)
		if c.verdict != "missing" {
			assert.Positive(t, st.Failures, c.module)
		}
		if c.verdict == "trap" || c.verdict == "budget" {
			assert.Nil(t, st.LastFuel, "%s: fuel of a call that %s", c.module, c.verdict)
		}
	}
}

// Spec 1.3: what is admitted here is what the cluster would run: its limits and its configuration.
func TestAdmit(t *testing.T) {
	b := newBench(t)
	name, _, err := b.Admit(t.Context(), fixture(t, "attack/well-behaved"), specOf(nil))
	require.NoError(t, err)
	assert.Equal(t, "test", name)
	for _, bad := range [][]byte{[]byte("no wasm"), fixture(t, "admission/configure-failed.refuses"), fixture(t, "admission/export-abi.missing")} {
		_, _, err = b.Admit(t.Context(), bad, specOf(nil))
		var refused *host.RefusedError
		require.ErrorAs(t, err, &refused)
	}
	for _, rule := range []host.Rule{host.RuleFreshInstance, host.RuleDescribe} {
		_, warnings, err := b.Admit(t.Context(), fixture(t, "admission/warn."+string(rule)), specOf(nil))
		require.NoError(t, err)
		require.Len(t, warnings, 1, "what admission warns of reaches the caller")
		require.Equal(t, rule, warnings[0].Rule)
	}
	for memory, text := range map[uint64]string{1 << 40: "at most", 100: "at least"} {
		spec := specOf(nil)
		spec.Memory = memory
		_, _, err = b.Admit(t.Context(), fixture(t, "attack/well-behaved"), spec)
		assert.ErrorContains(t, err, text)
	}
	assert.Empty(t, b.loaded, "an admission stays loaded")
}

// What another node may hand out soon is tried again soon; what the host refuses is not compiled every second.
func TestPauseAfterAFailure(t *testing.T) {
	b := newBench(t)
	refused := fixture(t, "admission/warm-up-failed.trap")
	_, err := b.store.Put(refused)
	require.NoError(t, err)
	for _, c := range []struct {
		wasm  []byte
		pause time.Duration
	}{{fixture(t, "attack/well-behaved"), pauseMissing}, {refused, pauseRefused}} {
		spec := specOf(c.wasm)
		began := time.Now()
		require.NotNil(t, b.ask(t, spec).Failure)
		ended := time.Now()
		first := b.loadingOf(spec)
		b.Strategist.mu.Lock()
		assert.False(t, first.again.Before(began.Add(c.pause)), "too early")
		assert.False(t, first.again.After(ended.Add(c.pause)), "too late")
		first.again = ended.Add(time.Hour)
		b.Strategist.mu.Unlock()
		b.ask(t, spec)
		assert.Same(t, first, b.loadingOf(spec), "the pause is not kept")
	}
}

// Spec 1.4: a strategy that is in force is kept as a file, though this build embeds it: the next one may embed another under its name.
func TestBuiltinInForceIsKept(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	dir := t.TempDir()
	var err error
	b.cfg.Modules, err = modules.Open(dir, wasm)
	require.NoError(t, err)
	spec := specOf(wasm)
	b.Prepare("t", spec)
	<-b.loadingOf(spec).done
	next, err := modules.Open(dir)
	require.NoError(t, err)
	assert.True(t, next.Has(spec.Digest))
}

// The prepared strategies are bounded; the least recently used one goes, one in use never.
func TestEviction(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	_, err := b.store.Put(wasm)
	require.NoError(t, err)
	kept := specOf(wasm)
	require.Nil(t, b.ask(t, kept).Failure)
	first := b.loadingOf(kept)
	for i := range keepLoaded + 8 {
		spec := specOf(wasm)
		spec.Fuel = uint64(1_000_000 + i)
		require.Nil(t, b.ask(t, spec).Failure)
		require.Nil(t, b.ask(t, kept).Failure) // keeps it young
	}
	b.Strategist.mu.Lock()
	n := len(b.loaded)
	b.Strategist.mu.Unlock()
	assert.LessOrEqual(t, n, keepLoaded)
	assert.Same(t, first, b.loadingOf(kept), "the youngest was evicted")
}

func (b *bench) loadingOf(spec protocol.StrategySpec) *loading {
	b.Strategist.mu.Lock()
	defer b.Strategist.mu.Unlock()
	return b.loaded[keyOf(spec)]
}

// p99 is the smallest value that is not below 99 of 100 of them.
func TestP99(t *testing.T) {
	assert.Nil(t, p99(nil))
	var w []uint64
	for i := range 100 {
		w = append(w, uint64(100-i))
	}
	assert.EqualValues(t, 99, *p99(w))
	assert.EqualValues(t, 5, *p99([]uint64{5}))
	w = nil
	for i := range 10 * window {
		w = push(w, uint64(i))
	}
	assert.Len(t, w, window)
	assert.EqualValues(t, 10*window-1, w[window-1])
	assert.EqualValues(t, 9*window, w[0])
	assert.Less(t, cap(w), 4*window, "a window grows for ever")
}

// Close waits for calls under way, and ends them; afterwards nothing begins.
func TestCloseWhileCallsRun(t *testing.T) {
	b := newBench(t)
	loop := fixture(t, "attack/loop")
	_, err := b.store.Put(loop)
	require.NoError(t, err)
	spec := specOf(loop)
	spec.Fuel, spec.Budget = host.MaxFuel, 60_000
	for i := range 4 {
		b.Ask(coordinator.AskStrategy{Ask: uint64(i), Type: "t", Spec: spec, Op: pluginapi.OpAllocate, Input: input(8), Shards: []uint32{0}})
	}
	hung := make(chan struct{})
	other := specOf(fixture(t, "attack/well-behaved"))
	b.setFetch(func(modules.Digest) ([]byte, error) { close(hung); <-b.ctx.Done(); return nil, b.ctx.Err() })
	b.Prepare("other", other)
	<-hung
	require.Eventually(t, func() bool { s, _ := b.State(spec); return s == Ready }, patience, time.Millisecond)
	began := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(began), 20*time.Second)
	for range 4 {
		require.NotNil(t, (<-b.answers).Failure)
	}
	_, _, err = b.Admit(t.Context(), loop, spec)
	require.ErrorIs(t, err, errStopping)
	b.Ask(coordinator.AskStrategy{Ask: 9, Type: "t", Spec: spec, Op: pluginapi.OpRebalance, Input: input(12)})
	b.Prepare("other", other)
	assert.Empty(t, b.loaded)
	assert.Empty(t, b.answers)
	require.NoError(t, b.Close())
}

// gate is a context that holds up whoever looks at it.
type gate struct {
	context.Context
	once            *sync.Once
	entered, opened chan struct{}
}

func (g gate) Done() <-chan struct{} {
	g.once.Do(func() { close(g.entered) })
	<-g.opened
	return g.Context.Done()
}

// Close ends an admission and waits for it: what it uses is closed next.
func TestCloseWhileAdmitting(t *testing.T) {
	loop := fixture(t, "attack/loop")
	synctest.Test(t, func(t *testing.T) {
		rt, err := host.NewRuntime(context.Background(), host.Options{})
		require.NoError(t, err)
		s := New(Config{Runtime: rt, Logger: slog.New(slog.DiscardHandler)})
		g := gate{t.Context(), new(sync.Once), make(chan struct{}), make(chan struct{})}
		admitted, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, _, err := s.Admit(g, loop, specOf(loop))
			admitted <- err
		}()
		<-g.entered
		go func() { closed <- s.Close() }()
		synctest.Wait()
		require.Error(t, s.ctx.Err(), "it is not closing yet")
		require.Empty(t, closed, "an admission is under way")
		close(g.opened)
		require.ErrorIs(t, <-admitted, errStopping)
		require.NoError(t, <-closed)
		require.NoError(t, rt.Close(context.Background()))
	})
}

// Many ask for a few strategies while they are loaded, evicted and looked at.
func TestHammer(t *testing.T) {
	b := newBench(t)
	wasm := fixture(t, "attack/well-behaved")
	_, err := b.store.Put(wasm)
	require.NoError(t, err)
	var wg sync.WaitGroup
	const callers, each = 8, 20
	for g := range callers {
		wg.Go(func() {
			for i := range each {
				spec := specOf(wasm)
				spec.Fuel = uint64(10_000_000 + (g*i)%4)
				b.Ask(coordinator.AskStrategy{Ask: 1, Type: "t", Spec: spec, Op: pluginapi.OpAllocate, Input: input(3), Shards: []uint32{0}})
				b.State(spec)
				b.Stats("t", spec)
			}
		})
	}
	wg.Wait()
	for range callers * each {
		assert.Nil(t, (<-b.answers).Failure)
	}
	calls, _ := b.Totals("t")
	assert.EqualValues(t, callers*each, calls)
}
