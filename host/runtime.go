package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/host/internal/fuel"
)

// Engine is one of wazero's two ways to run a module. A call has the same
// answer, fuel and verdict in both.
type Engine uint8

// The engines.
const (
	Compiler    Engine = iota // machine code; falls back to Interpreter where wazero has no back end
	Interpreter               // some 20 to 50 times slower
)

// String returns the name that the command line uses.
func (e Engine) String() string {
	switch e {
	case Compiler:
		return "compiler"
	case Interpreter:
		return "interpreter"
	}
	return fmt.Sprintf("engine(%d)", uint8(e))
}

// ParseEngine returns the engine of that name.
func ParseEngine(name string) (Engine, error) {
	switch name {
	case "compiler":
		return Compiler, nil
	case "interpreter":
		return Interpreter, nil
	}
	return 0, fmt.Errorf("engine %q: want compiler or interpreter", name)
}

// CostModel is the version of the prices that fuel is counted by. It is part of
// every record and of the key that compiled code is cached under.
const CostModel = fuel.CostModel

// features are what a strategy may use: spec 1.3's list. SIMD, threads, tail
// calls and the rest are refused before wazero sees the module; leaving them
// out here is the second lock.
const features = api.CoreFeatureMutableGlobal | api.CoreFeatureSignExtensionOps |
	api.CoreFeatureNonTrappingFloatToIntConversion | api.CoreFeatureMultiValue |
	api.CoreFeatureBulkMemoryOperations | api.CoreFeatureReferenceTypes

// Options configure a Runtime.
type Options struct {
	Engine Engine
	// CacheDir keeps machine code between runs; empty keeps none. Whoever can
	// write there can run code in this process: the directory is made with mode
	// 0700, and one that others own or may write to is refused.
	CacheDir string
	// Logger gets what guests log; nil discards it.
	Logger *slog.Logger
}

// Runtime compiles and runs modules in one engine. It is safe for concurrent
// use. Close releases everything that was compiled with it.
type Runtime struct {
	engine  Engine
	log     *slog.Logger
	wazero  wazero.Runtime
	checker wazero.Runtime // validates modules before they are rewritten; compiles nothing
	cache   wazero.CompilationCache
	// uncached is what is compiled in where the cache is of no use; nil so far.
	uncached wazero.Runtime
	// cacheDir is where machine code lies; empty if it is not kept.
	cacheDir string

	compiling    chan struct{} // holds a token while a module is compiled
	compilations sync.WaitGroup

	profiler *profiler // nil but in Profile

	mu     sync.Mutex
	closed bool
	codes  map[codeKey]*code
	idle   []*code // of them, those that nobody uses, the latest last
}

// NewRuntime returns a runtime. Errors are about the cache directory, and name
// it.
func NewRuntime(ctx context.Context, o Options) (*Runtime, error) {
	if o.Engine == Compiler && goruntime.GOARCH != "amd64" && goruntime.GOARCH != "arm64" {
		o.Engine = Interpreter
	}
	r := &Runtime{engine: o.Engine, log: o.Logger, compiling: make(chan struct{}, 1), codes: map[codeKey]*code{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if o.CacheDir != "" && o.Engine == Compiler {
		var err error
		if r.cache, r.cacheDir, err = openCache(o.CacheDir); err != nil {
			return nil, err
		}
	} else {
		r.cache = wazero.NewCompilationCache()
	}
	r.wazero = wazero.NewRuntimeWithConfig(ctx, runtimeConfig(o.Engine).WithCompilationCache(r.cache))
	r.checker = wazero.NewRuntimeWithConfig(ctx, runtimeConfig(Compiler))
	if err := instantiateHostModules(ctx, r.wazero); err != nil {
		return nil, errors.Join(fmt.Errorf("host functions: %w", err), r.Close(ctx))
	}
	return r, nil
}

func runtimeConfig(e Engine) wazero.RuntimeConfig {
	c := wazero.NewRuntimeConfig() // the compiler where there is one
	if e == Interpreter {
		c = wazero.NewRuntimeConfigInterpreter()
	}
	return c.WithCoreFeatures(features).WithMemoryLimitPages(MaxMemoryPages).WithDebugInfoEnabled(false)
}

// Close releases the runtime, and ends what it is compiling. Modules and
// strategies made with it are unusable afterwards.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	for _, c := range r.codes {
		c.cancel()
	}
	r.mu.Unlock()
	r.compilations.Wait()
	var err error
	if r.uncached != nil {
		err = r.uncached.Close(ctx)
	}
	return errors.Join(err, r.checker.Close(ctx), r.wazero.Close(ctx), r.cache.Close(ctx))
}
