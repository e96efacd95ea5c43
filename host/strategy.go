package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/placement"
)

// Strategy is a module with a configuration, ready to decide; or a native one
// with the same outside. It is safe for concurrent use: each call has an
// instance of its own, that starts from the same image.
type Strategy struct {
	name     string
	limits   Limits
	config   pluginapi.Config
	recorder Recorder // nil: nobody keeps records
	shadow   bool     // its records are those of a shadow

	// One of the two is set.
	native pluginapi.Strategy
	wasm   *wasmStrategy
}

// wasmStrategy is what a Strategy has beside a module.
type wasmStrategy struct {
	mod     *Module
	ownsMod bool
	image   *image // nil if each call needs a new instance
	pool    *pool
	memory  memories
	relay   *logRelay
}

// StrategyOption changes how a strategy is prepared.
type StrategyOption func(*Strategy)

// WithName sets the name that records and logs carry; the default is the
// module's digest.
func WithName(name string) StrategyOption { return func(s *Strategy) { s.name = name } }

// WithRecorder hands each call's record to r.
func WithRecorder(r Recorder) StrategyOption { return func(s *Strategy) { s.recorder = r } }

// AsShadow is the same strategy, whose records say that nothing comes of its
// calls. It shares all that s has, and ends with it: it is not to be closed.
func (s *Strategy) AsShadow() *Strategy {
	c := *s
	c.shadow = true
	return &c
}

// Load compiles and prepares a module in one step; closing the strategy closes
// the module too.
func (r *Runtime) Load(ctx context.Context, wasm []byte, l Limits, config pluginapi.Config, opts ...StrategyOption) (*Strategy, error) {
	m, err := r.Compile(ctx, wasm, l)
	if err != nil {
		return nil, err
	}
	s, err := m.Prepare(ctx, config, opts...)
	if err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	s.wasm.ownsMod = true
	return s, nil
}

// Prepare initialises a module with a configuration (CBOR; nil for none), asks
// it for a warm-up rebalance and takes the image that every call starts from.
// The error is a *RefusedError if the module or its configuration is at fault.
func (m *Module) Prepare(ctx context.Context, config pluginapi.Config, opts ...StrategyOption) (*Strategy, error) {
	return m.prepare(ctx, config, m.rt.engine.initTimeout(), opts...)
}

// initTimeout is how long start section, _initialize, drover_configure and
// warm-up may take together. Their fuel is some 0.1 s of plain code in the
// compiler; it is 80 s where each unit waits for memory.
func (e Engine) initTimeout() time.Duration {
	if e == Interpreter {
		return time.Minute
	}
	return 10 * time.Second
}

func (m *Module) prepare(ctx context.Context, config pluginapi.Config, timeout time.Duration, opts ...StrategyOption) (*Strategy, error) {
	s := &Strategy{name: m.Digest().String(), limits: m.limits, config: config}
	for _, o := range opts {
		o(s)
	}
	w := &wasmStrategy{mod: m, relay: newLogRelay(m.rt.log.With("strategy", s.name))}
	s.wasm = w
	w.pool = newPool(s.ready)
	in, err := m.instantiate(&w.memory)
	if err != nil {
		return nil, m.refusal(RuleStart, err)
	}
	if rule, err := s.initialise(ctx, in, timeout, time.Now()); err != nil {
		return nil, errors.Join(m.refusal(rule, err), in.close())
	}
	if !m.fresh() {
		w.image = in.snapshot()
	}
	if rule, err := s.trial(ctx, in, timeout); err != nil {
		return nil, errors.Join(m.refusal(rule, err), in.close())
	}
	if m.fresh() || !in.shrink(w.image.bytes) {
		return s, in.close()
	}
	w.pool.idle = append(w.pool.idle, in)
	return s, nil
}

// NewNative wraps a native strategy: the same checks and records, no fuel.
func NewNative(name string, impl pluginapi.Strategy, config pluginapi.Config, opts ...StrategyOption) (*Strategy, error) {
	s := &Strategy{name: name, native: impl, config: config}
	for _, o := range opts {
		o(s)
	}
	if c, ok := impl.(pluginapi.Configurer); ok {
		if err := c.Configure(config); err != nil {
			return nil, &RefusedError{Findings: []Finding{finding(RuleConfigure, "%v", err)}, Cause: err}
		}
	}
	return s, nil
}

// Name returns the name that records carry.
func (s *Strategy) Name() string { return s.name }

// Digest returns the module's digest; zero for a native strategy.
func (s *Strategy) Digest() Digest {
	if s.wasm == nil {
		return Digest{}
	}
	return s.wasm.mod.Digest()
}

// Warnings returns what admission had to say short of a refusal.
func (s *Strategy) Warnings() []Finding {
	if s.wasm == nil {
		return nil
	}
	return s.wasm.mod.findings
}

// Close releases the instances. Calls in flight end as they would have.
func (s *Strategy) Close(ctx context.Context) error {
	if s.wasm == nil {
		return nil
	}
	err := s.wasm.pool.close()
	if s.wasm.ownsMod {
		err = errors.Join(err, s.wasm.mod.Close(ctx))
	}
	return err
}

// refusal makes what a guest did during preparation a refusal; trouble of the
// host's own, or a caller who gave up, stays what it is.
func (m *Module) refusal(rule Rule, err error) error {
	var call *CallError
	if !errors.As(err, &call) || call.Verdict == VerdictBudget && call.Cause != nil {
		return err
	}
	findings := append([]Finding{finding(rule, "%v", err)}, m.findings...)
	// A program's runtime is set up by the _start that nobody calls: whatever it
	// fails in, that is why, and building it otherwise is the fix.
	if i := slices.IndexFunc(findings, func(f Finding) bool { return f.Rule == RuleCommandModule }); i >= 0 {
		command := finding(RuleCommandModule, "%s, and so: %s", findings[i].Message, findings[0])
		command.Severity = SeverityError
		findings = slices.Delete(findings, i, i+1)
		findings[0] = command
	}
	return &RefusedError{Findings: findings, Cause: err}
}

// initialise runs a new instance through start section, _initialize,
// drover_configure and warm-up, on one limit of fuel and within a budget of
// time from since on. It returns the rule that a failure breaks.
func (s *Strategy) initialise(ctx context.Context, in *instance, budget time.Duration, since time.Time) (Rule, error) {
	m := s.wasm.mod
	in.begin(ctx, Limits{Fuel: m.limits.InitFuel, Budget: budget}, since)
	defer func() {
		lines, dropped := in.logs.take()
		s.wasm.relay.relay(ctx, lines, dropped)
	}()
	if rule, err := m.setUp(in); err != nil {
		return rule, err
	}
	if f := in.mod.ExportedFunction(exportConfigure); f != nil {
		config := []byte(s.config)
		if len(config) == 0 {
			config = emptyMap
		}
		out, err := in.ask(f, config, outputBase)
		if err == nil {
			if derr := pluginapi.DecodeConfigured(out); derr != nil {
				err = badAnswer(derr)
			}
		}
		if err != nil {
			return RuleConfigure, err
		}
	}
	return RuleWarmUp, s.askWarmUp(in)
}

// setUp runs what comes before the configuration: start section and _initialize.
func (m *Module) setUp(in *instance) (Rule, error) {
	if m.rewrite.Start {
		if _, err := in.invoke(in.mod.ExportedFunction(startExport)); err != nil {
			return RuleStart, err
		}
	}
	if f := in.mod.ExportedFunction(exportInitialize); f != nil {
		if _, err := in.invoke(f); err != nil {
			return RuleInitialize, err
		}
	}
	return "", nil
}

// trial makes the warm-up call once more, as any call: with a call's fuel, and
// what the guest does only once behind it. A strategy that would fail for want
// of fuel from the first call on is not admitted. That a clock decides nothing
// here keeps the verdict the same on every machine.
func (s *Strategy) trial(ctx context.Context, in *instance, timeout time.Duration) (Rule, error) {
	fuel := s.wasm.mod.limits.Fuel
	in.begin(ctx, Limits{Fuel: fuel, Budget: timeout}, time.Now())
	err := s.askWarmUp(in)
	if v, _ := VerdictOf(err); v == VerdictFuel {
		return RuleCallFuel, &CallError{Verdict: v, Detail: fmt.Sprintf("the %d units of a call are not enough for two nodes and four shards", fuel)}
	}
	return RuleWarmUp, err
}

func (s *Strategy) askWarmUp(in *instance) error {
	snap := warmUp()
	snap.Config = s.config
	out, err := in.ask(in.rebalance, pluginapi.AppendInput(nil, pluginapi.OpRebalance, snap, nil), mostOutput(len(snap.Owners)))
	if err == nil {
		_, err = readPlan(&placement.Checker{}, snap, out)
	}
	return err
}

var emptyMap = []byte{0xa0}

// warmUp is the fixed input of the warm-up call: two nodes, four shards.
func warmUp() *pluginapi.Snapshot {
	node := func(name string) pluginapi.Node {
		return pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100}
	}
	return &pluginapi.Snapshot{
		Type:       "warm-up",
		Nodes:      []pluginapi.Node{node("a"), node("b")},
		Candidates: []int{0, 1},
		Owners:     []uint32{0, 0, 0, 1},
		MaxMoves:   4,
	}
}

// ready makes an instance that a call can start from.
func (s *Strategy) ready(ctx context.Context, budget time.Duration) (*instance, error) {
	since := time.Now() // making the instance is for the budget to pay too
	in, err := s.wasm.mod.instantiate(&s.wasm.memory)
	if err != nil {
		return nil, err
	}
	if s.wasm.image == nil {
		// What the image cannot hold is made again: initialisation is
		// deterministic.
		if rule, err := s.initialise(ctx, in, budget, since); err != nil {
			if v, _ := VerdictOf(err); v != VerdictBudget {
				err = s.wasm.mod.refusal(rule, err)
			}
			return nil, errors.Join(err, in.close())
		}
	}
	return in, nil
}

// ErrNoDescription is returned for a module that does not export
// drover_describe.
var ErrNoDescription = errors.New("the module does not describe itself")

// Inspect asks the strategy what it is, and returns with that what is odd about
// it short of a refusal. The description of one that gives none is empty.
func (s *Strategy) Inspect(ctx context.Context) (pluginapi.Description, []Finding) {
	odd := slices.Clone(s.Warnings())
	d, err := s.Describe(ctx)
	switch {
	case err == nil:
		odd = append(odd, UnknownKeys(d, s.config)...)
	case !errors.Is(err, ErrNoDescription):
		odd = append(odd, finding(RuleDescribe, "%v", err))
	}
	return d, odd
}

// Describe asks the strategy what it is.
func (s *Strategy) Describe(ctx context.Context) (pluginapi.Description, error) {
	if s.native != nil {
		if d, ok := s.native.(pluginapi.Describer); ok {
			return d.Describe(), nil
		}
		return pluginapi.Description{}, ErrNoDescription
	}
	in, err := s.ready(ctx, s.limits.Budget)
	if err != nil {
		return pluginapi.Description{}, err
	}
	d, err := s.describe(ctx, in)
	return d, errors.Join(err, in.close())
}

func (s *Strategy) describe(ctx context.Context, in *instance) (pluginapi.Description, error) {
	if s.wasm.image != nil && !in.restore(s.wasm.image) {
		return pluginapi.Description{}, fmt.Errorf("%s: a new instance could not take the image", s.name)
	}
	in.begin(ctx, s.limits, time.Now())
	return in.describe()
}

// Describe asks a module what it is before it is configured: whoever does not
// know its keys may have no configuration that it takes.
func (m *Module) Describe(ctx context.Context) (pluginapi.Description, error) {
	in, err := m.instantiate(&memories{})
	if err != nil {
		return pluginapi.Description{}, m.refusal(RuleStart, err)
	}
	in.begin(ctx, Limits{Fuel: m.limits.InitFuel, Budget: m.rt.engine.initTimeout()}, time.Now())
	if rule, err := m.setUp(in); err != nil {
		return pluginapi.Description{}, errors.Join(m.refusal(rule, err), in.close())
	}
	d, err := in.describe()
	return d, errors.Join(err, in.close())
}

// describe asks an instance whose meter has begun.
func (in *instance) describe() (pluginapi.Description, error) {
	f := in.mod.ExportedFunction(exportDescribe)
	if f == nil {
		return pluginapi.Description{}, ErrNoDescription
	}
	packed, err := in.invoke(f)
	if err != nil {
		return pluginapi.Description{}, err
	}
	out, err := in.take(packed, outputBase)
	if err != nil {
		return pluginapi.Description{}, err
	}
	d, err := pluginapi.DecodeDescription(out)
	if err != nil {
		return pluginapi.Description{}, badAnswer(err)
	}
	for _, text := range []*string{&d.Name, &d.Version, &d.Summary} {
		*text = clean(*text, maxText)
	}
	for i := range d.Config {
		k := &d.Config[i]
		for _, text := range []*string{&k.Key, &k.Type, &k.Help} {
			*text = clean(*text, maxText)
		}
	}
	return d, nil
}
