package host

import (
	"context"
	"crypto/sha256"
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
	name   string
	limits Limits
	config pluginapi.Config

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
	if m.fresh() || in.mod.Memory().Size() != w.image.bytes {
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
		_, err = readPlan(snap, out)
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

// Result is how one call ended.
type Result struct {
	Record *Record
	Plan   pluginapi.Plan  // of rebalance: the moves that passed every check, within the limit
	Homes  pluginapi.Homes // of allocate
	// Err is nil for VerdictOK, else a *CallError, or the host's own trouble.
	Err error
}

// Call makes one call, without retry or fallback. shards are those that need a
// home, for allocate. The snapshot's config is the strategy's own. A budget of
// 0 is the strategy's.
func (s *Strategy) Call(ctx context.Context, op pluginapi.Op, snap *pluginapi.Snapshot, shards []uint32, budget time.Duration) Result {
	own := *snap
	own.Config = s.config
	snap = &own
	limits := s.limits
	if budget > 0 {
		limits.Budget = budget
	}
	rec := &Record{Strategy: s.name, Digest: s.Digest(), CostModel: CostModel, Op: op, FuelLimit: limits.Fuel, Started: time.Now()}
	rec.Input = pluginapi.AppendInput(nil, op, snap, shards)
	res := Result{Record: rec}
	if s.native != nil {
		res.Err = s.callNative(rec, snap, shards)
	} else {
		res.Err = s.callWasm(ctx, rec, limits, mostOutput(len(snap.Owners)+len(shards)))
	}
	if res.Err == nil {
		if op == pluginapi.OpAllocate {
			res.Homes, res.Err = readHomes(snap, shards, rec.Output)
		} else {
			res.Plan, res.Err = readPlan(snap, rec.Output)
		}
	}
	rec.Elapsed = time.Since(rec.Started)
	rec.InputDigest = sha256.Sum256(rec.Input)
	if res.Err != nil {
		rec.Error = res.Err.Error()
		v, ok := VerdictOf(res.Err)
		if !ok {
			v = VerdictRefused
		}
		rec.Verdict = v
	}
	return res
}

// callWasm runs the guest and fills in output, of at most so many bytes, fuel
// and pages.
func (s *Strategy) callWasm(ctx context.Context, rec *Record, l Limits, most uint32) error {
	w := s.wasm
	in, since, err := w.pool.get(ctx, l.Budget)
	if err == nil && w.image != nil && !in.restore(w.image) {
		err = errors.Join(fmt.Errorf("%s: an instance could not be brought back to its image", s.name), w.pool.put(in, false))
	}
	if err != nil {
		if ctx.Err() != nil {
			return &CallError{Verdict: VerdictBudget, Detail: "the caller gave up: " + context.Cause(ctx).Error(), Cause: context.Cause(ctx)}
		}
		return err
	}
	f := in.rebalance
	if rec.Op == pluginapi.OpAllocate {
		f = in.allocate
	}
	in.begin(ctx, l, since) // bringing the instance to its image, or making one, is part of the call
	out, err := in.ask(f, rec.Input, most)
	rec.Pages = in.pages()
	lines, dropped := in.logs.take()
	rec.Log = lines
	var call *CallError
	switch used := in.meter.used(); {
	case err == nil || errors.As(err, &call) && call.Verdict == VerdictOutput:
		rec.Fuel = &used
	case call != nil && call.Verdict == VerdictFuel:
		rec.Fuel = &l.Fuel
	}
	rec.Output = out
	reusable := err == nil && w.image != nil && in.mod.Memory().Size() == w.image.bytes
	if perr := w.pool.put(in, reusable); perr != nil {
		err = errors.Join(err, perr)
	}
	w.relay.relay(ctx, lines, dropped)
	return err
}

// callNative runs a native strategy. A panic of its is a trap.
func (s *Strategy) callNative(rec *Record, snap *pluginapi.Snapshot, shards []uint32) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &CallError{Verdict: VerdictTrap, Detail: fmt.Sprintf("panic: %v", p)}
		}
	}()
	if rec.Op == pluginapi.OpAllocate {
		homes, err := s.native.Allocate(snap, shards)
		if err != nil {
			return badAnswer(err)
		}
		rec.Output = pluginapi.AppendHomes(nil, &homes)
		return nil
	}
	plan, err := s.native.Rebalance(snap)
	if err != nil {
		return badAnswer(err)
	}
	rec.Output = pluginapi.AppendPlan(nil, &plan)
	return nil
}

func badAnswer(err error) *CallError {
	return &CallError{Verdict: VerdictOutput, Detail: clean(err.Error(), maxText), Cause: err}
}

func readPlan(snap *pluginapi.Snapshot, out []byte) (pluginapi.Plan, error) {
	// More moves than shards must move one twice; there is no need to read on.
	plan, err := pluginapi.DecodePlanUpTo(out, len(snap.Owners))
	if err == nil {
		plan.Moves, err = placement.CheckPlan(snap, plan.Moves)
	}
	if err != nil {
		return pluginapi.Plan{}, badAnswer(err)
	}
	plan.Reason = clean(plan.Reason, maxText)
	for i := range plan.Moves {
		plan.Moves[i].Reason = clean(plan.Moves[i].Reason, maxText)
	}
	return plan, nil
}

func readHomes(snap *pluginapi.Snapshot, shards []uint32, out []byte) (pluginapi.Homes, error) {
	homes, err := pluginapi.DecodeHomes(out, len(shards))
	if err == nil {
		err = placement.CheckHomes(snap, shards, homes.Nodes)
	}
	if err != nil {
		return pluginapi.Homes{}, badAnswer(err)
	}
	homes.Reason = clean(homes.Reason, maxText)
	for i := range homes.Reasons {
		homes.Reasons[i] = clean(homes.Reasons[i], maxText)
	}
	return homes, nil
}

// Decision is what a node acts on.
type Decision struct {
	Plan    pluginapi.Plan  // of Rebalance; empty if the strategy failed
	Homes   pluginapi.Homes // of Allocate; likewise
	Records []*Record       // one a call, in order
	Err     error           // why the strategy did not decide; see Result.Err
}

// Rebalance asks for moves. If the strategy fails there are none (spec 1.3).
func (s *Strategy) Rebalance(ctx context.Context, snap *pluginapi.Snapshot) Decision {
	res := s.Call(ctx, pluginapi.OpRebalance, snap, nil, 0)
	return Decision{Plan: res.Plan, Records: []*Record{res.Record}, Err: res.Err}
}

// Allocate asks for homes. A call that blew its budget is made once more with
// twice the budget (spec 1.3). If the strategy still gives none it is for the
// caller to fall back: the coordinator has the built-in hash for that.
func (s *Strategy) Allocate(ctx context.Context, snap *pluginapi.Snapshot, shards []uint32) Decision {
	res := s.Call(ctx, pluginapi.OpAllocate, snap, shards, 0)
	d := Decision{Records: []*Record{res.Record}}
	if errors.Is(res.Err, ErrBudget) && ctx.Err() == nil {
		res = s.Call(ctx, pluginapi.OpAllocate, snap, shards, 2*s.limits.Budget)
		d.Records = append(d.Records, res.Record)
	}
	d.Homes, d.Err = res.Homes, res.Err
	return d
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
	f := in.mod.ExportedFunction(exportDescribe)
	if f == nil {
		return pluginapi.Description{}, ErrNoDescription
	}
	if s.wasm.image != nil && !in.restore(s.wasm.image) {
		return pluginapi.Description{}, fmt.Errorf("%s: a new instance could not take the image", s.name)
	}
	in.begin(ctx, s.limits, time.Now())
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
