package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// How a module is compiled: wazero stops between functions once the time is
// over, but only with two workers or more. The caps bound what there is to do to
// some seconds; that a machine is slow or busy must not refuse a module.
const (
	compileWorkers = 2
	compileTimeout = 3 * time.Minute
)

// codeKey is what machine code depends on. Fuel, time and configuration are not
// in it.
type codeKey struct {
	digest Digest
	memory uint32 // pages
	depth  int32
}

// code is a module that is admitted and compiled, for all who ask for it under
// one key.
type code struct {
	key    codeKey
	done   chan struct{}      // closed once the rest is set
	cancel context.CancelFunc // of the compilation

	in       wazero.Runtime // what it was compiled in
	compiled wazero.CompiledModule
	rewrite  *fuel.Result
	findings []Finding // warnings
	err      error

	users int // Runtime.mu guards it
}

// keepIdle is how many modules that nobody uses stay compiled: one that was
// admitted and closed is often asked for again soon.
const keepIdle = 4

// acquire returns the code of a module, compiled if it is not there, and counts
// a user. The compilation ends early only if all who wait for it give up.
func (r *Runtime) acquire(ctx context.Context, wasm []byte, l Limits) (*code, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	k := codeKey{DigestOf(wasm), l.MemoryPages, l.Depth}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errRuntimeClosed
	}
	c := r.codes[k]
	if c == nil {
		background, cancel := context.WithCancel(context.Background())
		c = &code{key: k, done: make(chan struct{}), cancel: cancel}
		r.codes[k] = c
		r.compilations.Go(func() { r.build(background, c, wasm, l) })
	}
	c.users++
	r.idle = slices.DeleteFunc(r.idle, func(other *code) bool { return other == c })
	r.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), r.release(context.WithoutCancel(ctx), c))
	}
	if c.err != nil {
		return nil, errors.Join(c.err, r.release(ctx, c))
	}
	return c, nil
}

var errRuntimeClosed = errors.New("the runtime is closed")

// release counts a user less. What nobody uses is kept for a while if it is
// compiled, else given up.
func (r *Runtime) release(ctx context.Context, c *code) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.users--; c.users > 0 || r.closed {
		return nil
	}
	select {
	case <-c.done:
	default:
		c.cancel()
		delete(r.codes, c.key) // whoever asks from now on waits for another one
		return nil
	}
	if c.err != nil {
		return nil
	}
	r.idle = append(r.idle, c)
	if len(r.idle) <= keepIdle {
		return nil
	}
	oldest := r.idle[0]
	r.idle = slices.Delete(r.idle, 0, 1)
	delete(r.codes, oldest.key)
	return oldest.compiled.Close(ctx)
}

// build sets what acquire waits for.
func (r *Runtime) build(ctx context.Context, c *code, wasm []byte, l Limits) {
	defer c.cancel()
	err := r.admitAndCompile(ctx, c, wasm, l)
	r.mu.Lock()
	defer r.mu.Unlock()
	c.err = err
	if err != nil && r.codes[c.key] == c {
		delete(r.codes, c.key) // the next one tries again
	}
	if err == nil && c.users == 0 && c.compiled != nil { // given up a moment too late
		c.err = errors.Join(context.Canceled, c.compiled.Close(context.WithoutCancel(ctx)))
	}
	close(c.done)
}

func (r *Runtime) admitAndCompile(ctx context.Context, c *code, wasm []byte, l Limits) error {
	// One at a time: wazero hands out a module that it finds in its cache before
	// it is whole (engine_cache.go of 1.12 publishes it without its entry
	// preambles), to whoever compiles the same code in the meantime; and the
	// machine has other things to do, such as to answer heartbeats.
	select {
	case r.compiling <- struct{}{}:
		defer func() { <-r.compiling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	decoded, findings := admit(wasm, l)
	if refused(findings) {
		return &RefusedError{Findings: findings}
	}
	if err := r.validate(ctx, decoded); err != nil {
		return &RefusedError{Findings: append(findings, finding(RuleInvalid, "%s", firstLine(err)))}
	}
	c.findings = findings
	if err := r.compile(ctx, c, decoded, l.Depth, compileTimeout); err != nil {
		return err
	}
	if c.fresh() {
		c.findings = append(c.findings, finding(RuleFreshInstance, "each call runs in a new instance, initialised anew"))
	}
	return nil
}

// validate has wazero validate the module before it is rewritten: the rewrite
// adds types, functions and exports, which an invalid module could come to refer
// to. It gets the module encoded anew, so that what it takes for valid is what
// was decoded, and without custom sections: wazero allocates for as many names as
// a name section claims to have.
// A cancelled context stops the engine right after validation, before it
// compiles anything; whether the caller's is cancelled makes no difference.
// wazero 1.12 panics on some invalid modules, such as those that call a function
// of a type that is not there: that is invalid, too, and must not end the node.
func (r *Runtime) validate(ctx context.Context, decoded *wasmbin.Module) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("wazero cannot validate the module: %v", p)
		}
	}()
	bare := *decoded
	bare.Names, bare.Customs = nil, nil
	stopped, stop := context.WithCancelCause(experimental.WithCompilationWorkers(context.WithoutCancel(ctx), compileWorkers))
	stop(errValidated)
	compiled, err := r.checker.CompileModule(stopped, wasmbin.Encode(&bare))
	if compiled != nil {
		err = errors.Join(err, compiled.Close(ctx))
	}
	if errors.Is(err, errValidated) {
		return nil
	}
	return err
}

var errValidated = errors.New("validated")

// compile rewrites and compiles what was decoded.
func (r *Runtime) compile(ctx context.Context, c *code, decoded *wasmbin.Module, depth int32, timeout time.Duration) error {
	mergeData(decoded)
	res, err := fuel.Rewrite(decoded, fuel.Options{DepthLimit: depth})
	if err != nil {
		return &RefusedError{Findings: append(c.findings, finding(RuleInvalid, "%v", err))}
	}
	timed, cancel := context.WithTimeout(experimental.WithCompilationWorkers(ctx, compileWorkers), timeout)
	defer cancel()
	if r.profiler != nil {
		r.profiler.functions = uint32(len(decoded.ImportedFuncs()) + len(decoded.Funcs))
		timed = experimental.WithFunctionListenerFactory(timed, r.profiler)
	}
	in := r.wazero
	compiled, err := in.CompileModule(timed, res.Wasm)
	if err != nil && timed.Err() == nil && r.cacheDir != "" {
		// A full disk, or a file that is damaged or cannot be read: the cache is no
		// reason to be without a strategy.
		r.log.WarnContext(ctx, "a strategy is compiled without the cache, which is cleared", "dir", r.cacheDir, "error", errors.Join(err, clearCache(r.cacheDir)))
		if in, err = r.withoutCache(ctx); err == nil {
			compiled, err = in.CompileModule(timed, res.Wasm)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return &RefusedError{Findings: append(c.findings, finding(RuleCompile, "not done after %s", timeout))}
	case err != nil:
		return fmt.Errorf("compile %s: %w", c.key.digest, err)
	}
	if r.cacheDir != "" && in == r.wazero {
		if err := sealCache(r.cacheDir); err != nil {
			// Swept at the next start; nothing else needs it.
			r.log.WarnContext(ctx, "cache of compiled strategies", "error", err)
		}
	}
	c.in, c.compiled, c.rewrite = in, compiled, res
	res.Wasm = nil // as large as the module, and of no more use
	return nil
}

// withoutCache returns a runtime that keeps nothing on disk. Whoever compiles may
// call it.
func (r *Runtime) withoutCache(ctx context.Context) (wazero.Runtime, error) {
	if r.uncached == nil {
		uncached := wazero.NewRuntimeWithConfig(ctx, runtimeConfig(r.engine))
		if err := instantiateHostModules(ctx, uncached); err != nil {
			return nil, errors.Join(err, uncached.Close(ctx))
		}
		r.uncached = uncached
	}
	return r.uncached, nil
}

// fresh tells whether an instance cannot be brought back to its image.
func (c *code) fresh() bool {
	return c.rewrite.ChangesTables || c.rewrite.DropsSegments || c.rewrite.MutableRefs
}
