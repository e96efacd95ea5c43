package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// Patience is the budget of calls that nobody has given another: what a check says must not depend on how busy the
// machine is. WithinBudget looks at the clock.
const Patience = time.Minute

// Strategy is a strategy on trial: a module or a native one. A module is compiled when it is first asked, once an engine,
// and prepared once for each configuration that a cluster brings. Close it.
type Strategy struct {
	name   string
	native pluginapi.Strategy // nil: a module
	module []byte
	limits host.Limits
	by     host.Options

	runtimes []*host.Runtime
	compiled map[host.Engine]*host.Module
	prepared map[way]*host.Strategy
}

// way is how a call is made: by which engine, with which configuration.
type way struct {
	engine host.Engine
	config string
}

// Native returns a strategy of Go.
func Native(name string, impl pluginapi.Strategy) *Strategy {
	return &Strategy{name: name, native: impl, prepared: map[way]*host.Strategy{}}
}

// Module returns the strategy in a .wasm file's bytes. Limits of 0 are the defaults of a node, but for the budget, which
// is Patience.
func Module(name string, wasm []byte, l host.Limits) *Strategy {
	if l.Budget == 0 {
		l.Budget = Patience
	}
	return &Strategy{name: name, module: wasm, limits: l, compiled: map[host.Engine]*host.Module{}, prepared: map[way]*host.Strategy{}}
}

// Open reads a .wasm file. It is named after the file.
func Open(path string, l host.Limits) (*Strategy, error) {
	wasm, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("strategy: %w", err)
	}
	return Module(filepath.Base(path), wasm, l), nil
}

// By says what runs the module: the engine that it is asked in (the checks that compare engines ask both), and where machine
// code is kept between processes. It must come before the first question, and has no meaning for a native strategy.
func (s *Strategy) By(o host.Options) *Strategy {
	s.by = o
	return s
}

// Native tells whether the strategy is one of Go, which has neither fuel nor an engine.
func (s *Strategy) Native() bool { return s.native != nil }

// Name returns the strategy's name.
func (s *Strategy) Name() string { return s.name }

// Describe asks the strategy what it is; the description of one that gives none is empty. The error is a
// *host.RefusedError where the module is not admitted.
func (s *Strategy) Describe(ctx context.Context) (pluginapi.Description, error) {
	h, err := s.ready(ctx, way{engine: s.by.Engine})
	if err != nil {
		return pluginapi.Description{}, err
	}
	d, err := h.Describe(ctx)
	if errors.Is(err, host.ErrNoDescription) {
		err = nil
	}
	return d, err
}

// Close releases what was compiled. The strategy must not be used afterwards.
func (s *Strategy) Close(ctx context.Context) error {
	var errs []error
	for _, h := range s.prepared {
		errs = append(errs, h.Close(ctx))
	}
	for _, r := range s.runtimes {
		errs = append(errs, r.Close(ctx))
	}
	return errors.Join(errs...)
}

// ready returns the strategy as it answers w, the same one each time.
func (s *Strategy) ready(ctx context.Context, w way) (*host.Strategy, error) {
	if h, ok := s.prepared[w]; ok {
		return h, nil
	}
	h, err := s.fresh(ctx, w)
	if err == nil {
		s.prepared[w] = h
	}
	return h, err
}

// fresh prepares the strategy anew. Of a native one there is but one value.
func (s *Strategy) fresh(ctx context.Context, w way) (*host.Strategy, error) {
	config := pluginapi.Config(w.config)
	if w.config == "" {
		config = nil
	}
	if s.native != nil {
		return host.NewNative(s.name, s.native, config)
	}
	m, err := s.compile(ctx, w.engine)
	if err != nil {
		return nil, err
	}
	return m.Prepare(ctx, config, host.WithName(s.name))
}

// Compile admits and compiles the module now, and not when it is first asked. The error is a *host.RefusedError where the
// module is not admitted, whatever its configuration. There is nothing to do for a native strategy.
func (s *Strategy) Compile(ctx context.Context) error {
	if s.native != nil {
		return nil
	}
	_, err := s.compile(ctx, s.by.Engine)
	return err
}

func (s *Strategy) compile(ctx context.Context, e host.Engine) (*host.Module, error) {
	if m, ok := s.compiled[e]; ok {
		return m, nil
	}
	r, err := host.NewRuntime(ctx, host.Options{Engine: e, CacheDir: s.by.CacheDir})
	if err != nil {
		return nil, err
	}
	s.runtimes = append(s.runtimes, r)
	m, err := r.Compile(ctx, s.module, s.limits)
	if err == nil {
		s.compiled[e] = m
	}
	return m, err
}

// Answer is how one call ended, in the names of the cluster.
type Answer struct {
	Op      pluginapi.Op
	Moves   []Move // of rebalance: those that the host takes
	Homes   []Home // of allocate: one for each shard asked for, in order
	Reason  string // of the answer as a whole
	Verdict host.Verdict
	Err     error // nil for VerdictOK

	// Planned is the number of moves before the host cut them to its limit.
	Planned int
	Output  []byte // as the strategy gave it; nil unless it returned
	Fuel    int64  // -1 where not known: a native strategy, a trap
	Pages   uint32 // of memory; 0 for a native strategy
	Elapsed time.Duration
}

// Move is a shard's way from one node to another; To is empty where the coordinator is to ask allocate.
type Move struct {
	Shard  uint32 `json:"shard"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason,omitempty"`
}

// String returns such as "3 a→b".
func (m Move) String() string {
	to := m.To
	if to == "" {
		to = "?"
	}
	return fmt.Sprintf("%d %s→%s", m.Shard, m.From, to)
}

// Home is a shard's home; Node is empty where it is left without one.
type Home struct {
	Shard uint32 `json:"shard"`
	Node  string `json:"node"`
}

// String returns such as "3 on b".
func (h Home) String() string {
	if h.Node == "" {
		return fmt.Sprintf("%d nowhere", h.Shard)
	}
	return fmt.Sprintf("%d on %s", h.Shard, h.Node)
}

// Rebalance asks for moves. The error is about the cluster, or the host's own trouble; how the strategy failed is in the
// answer.
func (s *Strategy) Rebalance(ctx context.Context, c *Cluster) (*Answer, error) {
	return s.ask(ctx, s.by.Engine, pluginapi.OpRebalance, c, nil, 0)
}

// Allocate asks for homes of shards, or, where the list is nil, of all that need one. The error is as of Rebalance.
func (s *Strategy) Allocate(ctx context.Context, c *Cluster, shards []uint32) (*Answer, error) {
	if shards == nil {
		shards = c.Homeless()
	}
	return s.ask(ctx, s.by.Engine, pluginapi.OpAllocate, c, shards, 0)
}

func (s *Strategy) ask(ctx context.Context, e host.Engine, op pluginapi.Op, c *Cluster, shards []uint32, budget time.Duration) (*Answer, error) {
	snap, err := c.Snapshot()
	if err == nil {
		err = snap.Validate(shards)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	h, err := s.ready(ctx, way{e, string(snap.Config)})
	if err != nil {
		return refused(op, err)
	}
	return answer(h.Call(ctx, op, snap, shards, budget), op, snap, shards), nil
}

// refused is the answer of a strategy that could not be prepared, if it is to blame.
func refused(op pluginapi.Op, err error) (*Answer, error) {
	if _, ok := host.VerdictOf(err); !ok {
		return nil, err
	}
	return &Answer{Op: op, Verdict: host.VerdictRefused, Err: err, Fuel: -1}, nil
}

func answer(r host.Result, op pluginapi.Op, snap *pluginapi.Snapshot, shards []uint32) *Answer {
	a := &Answer{Op: op, Verdict: r.Record.Verdict, Err: r.Err, Output: r.Record.Output, Fuel: -1, Pages: r.Record.Pages,
		Elapsed: r.Record.Elapsed, Reason: r.Plan.Reason}
	if r.Record.Fuel != nil {
		a.Fuel = *r.Record.Fuel
	}
	name := func(node int) string {
		if node == pluginapi.NoTarget {
			return ""
		}
		return snap.Nodes[node].Name
	}
	for _, m := range r.Plan.Moves {
		a.Moves = append(a.Moves, Move{Shard: m.Shard, From: name(snap.OwnerOf(m.Shard)), To: name(m.Target), Reason: m.Reason})
	}
	for i, node := range r.Homes.Nodes {
		a.Homes, a.Reason = append(a.Homes, Home{Shard: shards[i], Node: name(node)}), r.Homes.Reason
	}
	if plan, err := pluginapi.DecodePlan(a.Output); err == nil {
		a.Planned = len(plan.Moves)
	}
	return a
}
