// Package strategist keeps the strategies of a node's types compiled and ready, fetches modules that are missing, and makes the calls that
// the coordinator asks for. It decides nothing: every outcome goes back to the coordinator as an event.
//
// Goroutines: one for each module that is being prepared, or will be tried again, and each call under way, which goes on with the shadow's once the
// decision is posted; Close waits for them, and for admissions under way.
package strategist

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies"
)

// Config opens a Strategist.
type Config struct {
	Runtime *host.Runtime
	Modules *modules.Store
	// Fetch gets a module from another node; ErrNotHere where none has it.
	Fetch    func(ctx context.Context, d modules.Digest) ([]byte, error)
	Post     func(coordinator.Event)
	Recorder host.Recorder // takes the record of each call; may be nil
	Logger   *slog.Logger
}

// Strategist: see the package. Its methods may be called from any goroutine.
type Strategist struct {
	cfg      Config
	patience time.Duration // loadPatience; tests on a busy machine have more
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	loaded   map[key]*loading
	prepared map[sharding.TypeName]*loading // the latest of each type; it is a user of it
	stats    map[sharding.TypeName]*typeStats
	shadows  map[sharding.TypeName]*shadow
}

// key is all that a prepared strategy depends on.
type key struct {
	digest [32]byte
	config [32]byte
	fuel   uint64
	budget int64
	memory uint64
}

func keyOf(s protocol.StrategySpec) key {
	return key{s.Digest, sha256.Sum256(s.Config), s.Fuel, s.Budget, s.Memory}
}

// loading is a strategy on its way; done is closed once strategy or err is set.
type loading struct {
	key      key
	began    time.Time
	ctx      context.Context
	cancel   context.CancelFunc // once nobody wants it any more
	done     chan struct{}
	strategy *host.Strategy
	name     string // what the module calls itself
	err      error
	again    time.Time // when what failed is tried again
	said     string    // why it failed before, which the log has
	used     time.Time
	users    int
	// superseded is set once another strategy was prepared in its place.
	superseded bool
}

const (
	// fetchPatience is how long the other nodes may take to hand out a module.
	fetchPatience = 10 * time.Second
	// loadPatience is how long calls wait for a module, from when it began to be fetched and compiled: shards without a home wait with them.
	loadPatience = 2 * time.Second
	// What failed is tried again after a pause: the module may be had now. One that the host refuses is refused the next time too, unless a
	// clock was to blame, and finding out takes seconds of a core.
	pauseMissing = time.Second
	pauseRefused = time.Minute
	// keepLoaded bounds the prepared strategies: one a type, its predecessors for a rollback, a candidate.
	keepLoaded = 16
)

// New makes a strategist with nothing loaded.
func New(cfg Config) *Strategist {
	s := &Strategist{cfg: cfg, patience: loadPatience, loaded: map[key]*loading{}, prepared: map[sharding.TypeName]*loading{}, stats: map[sharding.TypeName]*typeStats{},
		shadows: map[sharding.TypeName]*shadow{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends calls under way and releases everything. What is asked from now on fails at once.
func (s *Strategist) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, l := range s.loaded {
		if l.strategy != nil {
			errs = append(errs, l.strategy.Close(context.Background()))
		}
	}
	s.loaded = map[key]*loading{}
	return errors.Join(errs...)
}

// Prepare fetches and compiles a type's strategy in the background, so that its first call need not wait, and keeps it until another one is
// prepared for the type. One that is superseded before it is ready is given up, unless a call waits for it: who replays a log makes only the
// strategies ready that are in force at its end. One that cannot be had is tried again until it can.
func (s *Strategist) Prepare(t sharding.TypeName, spec protocol.StrategySpec) {
	if spec.Digest == ([32]byte{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepare(t, spec)
}

func (s *Strategist) prepare(t sharding.TypeName, spec protocol.StrategySpec) {
	l := s.start(spec)
	before := s.prepared[t]
	s.prepared[t] = l
	if before != nil && before != l {
		before.superseded = true
	}
	l.superseded = false
	if before != nil {
		s.drop(before)
	}
}

// Admit compiles a module with its limits and configuration as the cluster would, and returns what it calls itself and what is odd about
// it. The error is a *host.RefusedError if the module is at fault.
func (s *Strategist) Admit(ctx context.Context, wasm []byte, spec protocol.StrategySpec) (name string, warnings []host.Finding, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", nil, errStopping
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errStopping) })()
	strategy, err := s.load(ctx, wasm, spec)
	if err != nil {
		return "", nil, err
	}
	d, warnings := strategy.Inspect(ctx)
	return nameOf(d, spec), warnings, strategy.Close(ctx)
}

func (s *Strategist) load(ctx context.Context, wasm []byte, spec protocol.StrategySpec) (*host.Strategy, error) {
	limits := host.Limits{Fuel: int64(min(spec.Fuel, host.MaxFuel)), Budget: time.Duration(spec.Budget) * time.Millisecond,
		MemoryPages: uint32(min(spec.Memory/host.PageBytes, host.MaxMemoryPages))}
	if spec.Memory > host.MaxMemoryPages*host.PageBytes {
		return nil, fmt.Errorf("memory of %d bytes: at most %d are allowed", spec.Memory, host.MaxMemoryPages*host.PageBytes)
	}
	if spec.Memory > 0 && spec.Memory < host.PageBytes { // 0 pages would be the default
		return nil, fmt.Errorf("memory of %d bytes: at least %d are needed, one page", spec.Memory, host.PageBytes)
	}
	return s.cfg.Runtime.Load(ctx, wasm, limits, pluginapi.Config(spec.Config), host.WithName(spec.Source), host.WithRecorder(s.cfg.Recorder))
}

// nameOf is what a module calls itself, or where it is from.
func nameOf(d pluginapi.Description, spec protocol.StrategySpec) string {
	if d.Name != "" {
		return d.Name
	}
	return spec.Source
}

// start gives the strategy's loading, beginning it where needed, and counts a user; s.mu is held.
func (s *Strategist) start(spec protocol.StrategySpec) *loading {
	if s.closed {
		l := &loading{done: make(chan struct{}), cancel: func() {}, err: errStopping, users: 1}
		close(l.done)
		return l
	}
	k, said := keyOf(spec), ""
	l := s.loaded[k]
	if l != nil {
		select {
		case <-l.done:
			if l.err != nil && !time.Now().Before(l.again) {
				delete(s.loaded, k)
				l, said = nil, l.err.Error()
			}
		default:
		}
	}
	if l == nil {
		l = &loading{key: k, said: said, done: make(chan struct{}), began: time.Now(), used: time.Now()}
		l.ctx, l.cancel = context.WithCancel(s.ctx)
		s.loaded[k] = l
		s.evict()
		s.wg.Go(func() { s.run(l, spec) })
	}
	l.users++
	return l
}

var errStopping = errors.New("the node is stopping")

func (s *Strategist) release(l *loading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(l)
}

// drop counts a user less, and gives up what is superseded and nobody waits for; s.mu is held.
func (s *Strategist) drop(l *loading) {
	l.users--
	select {
	case <-l.done:
		if l.err == nil {
			l.used = time.Now()
		}
	default:
		if l.users == 0 && l.superseded {
			l.cancel()
			delete(s.loaded, l.key)
		}
	}
}

// evict closes what has not been used for longest; s.mu is held.
func (s *Strategist) evict() {
	for len(s.loaded) > keepLoaded {
		var oldest key
		var found *loading
		for k, l := range s.loaded {
			ready := false
			select {
			case <-l.done:
				ready = true
			default:
			}
			if ready && l.users == 0 && (found == nil || l.used.Before(found.used)) {
				oldest, found = k, l
			}
		}
		if found == nil {
			return
		}
		delete(s.loaded, oldest)
		if found.strategy != nil {
			if err := found.strategy.Close(context.Background()); err != nil {
				s.cfg.Logger.Warn("a strategy could not be released", "digest", modules.Digest(oldest.digest), "error", err)
			}
		}
	}
}

func (s *Strategist) run(l *loading, spec protocol.StrategySpec) {
	defer l.cancel()
	wasm, err := s.module(l.ctx, spec.Digest)
	var strategy *host.Strategy
	name := ""
	if err == nil {
		strategy, err = s.load(l.ctx, wasm, spec)
	}
	if err == nil {
		d, _ := strategy.Inspect(l.ctx) // what is odd was said when it was admitted
		name = nameOf(d, spec)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(l.done)
	log := s.cfg.Logger.With("source", spec.Source, "digest", modules.Digest(spec.Digest))
	switch {
	case l.ctx.Err() != nil: // given up, or the node stops: nobody will ask for it here
		l.err = errGivenUp
		if strategy != nil {
			l.err = errors.Join(l.err, strategy.Close(context.Background()))
		}
	case err != nil:
		l.err, l.again = err, time.Now().Add(pauseMissing)
		if errors.Is(err, host.ErrRefused) {
			l.again = time.Now().Add(pauseRefused)
		} else {
			s.wg.Go(func() { s.retryAfter(pauseMissing, l, spec) })
		}
		if err.Error() != l.said {
			log.Warn("a strategy cannot be made ready", "error", err)
		}
	default:
		l.strategy, l.name = strategy, name
		log.Info("strategy ready", "name", name, "took", time.Since(l.began).Round(time.Millisecond))
	}
}

// retryAfter prepares once more what could not be had, for the types that still have it: nobody asks a server that does not lead, and when it
// does lead the module ought to be here.
func (s *Strategist) retryAfter(pause time.Duration, l *loading, spec protocol.StrategySpec) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, prepared := range s.prepared {
		if prepared == l {
			s.prepare(t, spec)
		}
	}
	for t, h := range s.shadows {
		if h.prepared == l {
			s.prepareShadow(t, spec)
		}
	}
}

var errGivenUp = errors.New("the strategy is not needed any more, or the node is stopping")

// module gives a module from the store, or from another node, and keeps it: a built-in one too, which the next release may embed no longer.
func (s *Strategist) module(ctx context.Context, d modules.Digest) ([]byte, error) {
	wasm, err := s.cfg.Modules.Get(d)
	if errors.Is(err, modules.ErrNotHere) {
		wasm, err = s.fetch(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Modules.Put(wasm); err != nil {
		s.cfg.Logger.Warn("a strategy's module is not kept", "digest", d, "error", err)
	}
	return wasm, nil
}

func (s *Strategist) fetch(ctx context.Context, d modules.Digest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	wasm, err := s.cfg.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	if got := modules.Digest(sha256.Sum256(wasm)); got != d {
		return nil, fmt.Errorf("another node answered with module %s for %s: %w", got, d, modules.ErrNotHere)
	}
	return wasm, nil
}

// Ask makes the call in the background and posts StrategyAnswered. After Close it does nothing: nobody decides any more.
func (s *Strategist) Ask(a coordinator.AskStrategy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Go(func() {
		out, d := s.answer(a)
		s.cfg.Post(out)
		if a.Shadow != nil { // the decision waits for nothing of it
			s.askShadow(a, d)
		}
	})
}

// answer makes the call; the decision has an error too where there was none to make.
func (s *Strategist) answer(a coordinator.AskStrategy) (coordinator.StrategyAnswered, host.Decision) {
	out := coordinator.StrategyAnswered{Ask: a.Ask}
	s.mu.Lock()
	l := s.start(a.Spec)
	s.mu.Unlock()
	defer s.release(l)
	strategy, err := s.wait(l, a.Spec)
	if err != nil {
		out.Failure = &coordinator.StrategyFailure{Verdict: "missing", Detail: err.Error()}
		return out, host.Decision{Err: err}
	}
	var d host.Decision
	if a.Op == pluginapi.OpAllocate {
		d = strategy.Allocate(s.ctx, a.Input, a.Shards)
	} else {
		d = strategy.Rebalance(s.ctx, a.Input)
	}
	out.Homes, out.Plan = d.Homes, d.Plan
	out.Record = d.InputDigest
	s.count(a.Type, a.Spec, d.Calls())
	if d.Err != nil {
		out.Failure = &coordinator.StrategyFailure{Verdict: "missing", Detail: d.Err.Error()}
		if v, ok := host.VerdictOf(d.Err); ok {
			out.Failure.Verdict = v.String()
		}
	}
	return out, d
}

// wait gives the strategy to call. While a built-in one is compiled, its pure form answers instead: it decides the same (spec 1.2), and shards
// without a home need not wait.
func (s *Strategist) wait(l *loading, spec protocol.StrategySpec) (*host.Strategy, error) {
	select {
	case <-l.done:
		return l.strategy, l.err
	default:
	}
	if name, native, ok := builtin(spec.Digest); ok {
		return host.NewNative("native:"+name, native, pluginapi.Config(spec.Config), host.WithRecorder(s.cfg.Recorder))
	}
	patience := time.NewTimer(time.Until(l.began.Add(s.patience)))
	defer patience.Stop()
	select {
	case <-l.done:
		return l.strategy, l.err
	case <-patience.C:
		return nil, errors.New("the module is still being fetched or compiled")
	case <-s.ctx.Done():
		return nil, errStopping
	}
}

// builtin finds the built-in strategy whose module has the digest.
func builtin(d modules.Digest) (name string, native pluginapi.Strategy, ok bool) {
	for _, name := range strategies.Names() {
		if _, digest, _ := strategies.Builtin(name); digest == hex.EncodeToString(d[:]) {
			native, ok := strategies.Native(name)
			return name, native, ok
		}
	}
	return "", nil, false
}

// State says how a strategy is doing here.
type State uint8

// The states.
const (
	Unknown State = iota // not asked for yet
	Preparing
	Ready
	Missing
)

// State gives a strategy's, and the name that the module gives itself once it is ready.
func (s *Strategist) State(spec protocol.StrategySpec) (State, string) {
	s.mu.Lock()
	l := s.loaded[keyOf(spec)]
	s.mu.Unlock()
	if l == nil {
		return Unknown, ""
	}
	select {
	case <-l.done:
	default:
		return Preparing, ""
	}
	if l.err != nil {
		return Missing, ""
	}
	return Ready, l.name
}
