package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/placement"
)

// scratch is what a call works with beside its instance. It is used again: a
// call in the steady state allocates what it decides, and nothing else.
type scratch struct {
	rec    Record
	fuel   int64 // what rec.Fuel points to
	snap   pluginapi.Snapshot
	given  []byte // the input, where it need not be made
	input  []byte
	output []byte // of a native strategy
	check  placement.Checker
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release gives the scratch back, without what belongs to others.
func (sc *scratch) release() {
	sc.rec, sc.snap, sc.given = Record{}, pluginapi.Snapshot{}, nil
	scratches.Put(sc)
}

// Result is how one call ended.
type Result struct {
	Record *Record         // the caller's to keep
	Plan   pluginapi.Plan  // of rebalance: the moves that passed every check, within the limit
	Homes  pluginapi.Homes // of allocate
	// Err is nil for VerdictOK, else a *CallError, or the host's own trouble.
	Err error
}

// Call makes one call, without retry or fallback, and keeps its record. shards
// are those that need a home, for allocate. The snapshot's config is the
// strategy's own. A budget of 0 is the strategy's.
func (s *Strategy) Call(ctx context.Context, op pluginapi.Op, snap *pluginapi.Snapshot, shards []uint32, budget time.Duration) Result {
	sc := scratches.Get().(*scratch)
	defer sc.release()
	var res Result
	res.Plan, res.Homes, res.Err = s.call(ctx, sc, op, snap, shards, budget, res.keep)
	return res
}

// keep copies a record that is lent.
func (r *Result) keep(rec *Record) {
	kept := *rec
	kept.DigestInput()
	kept.Input, kept.Output = bytes.Clone(rec.Input), bytes.Clone(rec.Output)
	if rec.Fuel != nil {
		fuel := *rec.Fuel
		kept.Fuel = &fuel
	}
	r.Record = &kept
}

// call makes one call. keep, unless it is nil, gets the record, which is sc's,
// as a Recorder does.
func (s *Strategy) call(ctx context.Context, sc *scratch, op pluginapi.Op, snap *pluginapi.Snapshot, shards []uint32, budget time.Duration,
	keep func(*Record)) (plan pluginapi.Plan, homes pluginapi.Homes, err error) {
	limits := s.limits
	if budget > 0 {
		limits.Budget = budget
	}
	rec := &sc.rec
	*rec = Record{Strategy: s.name, Digest: s.Digest(), CostModel: CostModel, Op: op, Type: snap.Type,
		FuelLimit: limits.Fuel, MemoryLimit: limits.MemoryPages, Budget: limits.Budget, Started: time.Now(), Shadow: s.shadow}
	sc.snap = *snap
	sc.snap.Config = s.config
	if rec.Input = sc.given; rec.Input == nil {
		sc.input = pluginapi.AppendInput(sc.input[:0], op, &sc.snap, shards)
		rec.Input = sc.input
	}
	var in *instance
	if s.native != nil {
		err = s.callNative(sc, shards)
	} else {
		in, err = s.callWasm(ctx, sc, limits, mostOutput(len(snap.Owners)+len(shards)))
	}
	ended := err == nil
	if ended {
		if op == pluginapi.OpAllocate {
			homes, err = readHomes(&sc.check, snap, shards, rec.Output)
		} else {
			plan, err = readPlan(&sc.check, snap, rec.Output)
		}
	}
	rec.Elapsed = time.Since(rec.Started)
	if err != nil {
		rec.fail(err)
	}
	if err != nil || len(plan.Moves) > 0 || len(homes.Nodes) > 0 {
		rec.DigestInput() // what follows from the call tells by it what it followed from
	}
	if s.recorder != nil {
		s.recorder.Record(rec)
	}
	if keep != nil {
		keep(rec)
	}
	if in != nil {
		lines, dropped := in.logs.take()
		s.wasm.giveBack(in, ended)
		s.wasm.relay.relay(ctx, lines, dropped)
	}
	return plan, homes, err
}

// fail fills in how a call ended that did not end well.
func (r *Record) fail(err error) {
	r.Error = err.Error()
	v, ok := VerdictOf(err)
	if !ok {
		v = VerdictRefused
	}
	r.Verdict = v
}

// callWasm runs the guest and fills in output, of at most so many bytes, fuel,
// pages and log. The output is a part of the memory of the instance that it
// returns, which is to be given back; nil if there was none to be had.
func (s *Strategy) callWasm(ctx context.Context, sc *scratch, l Limits, most uint32) (*instance, error) {
	w := s.wasm
	in, since, err := w.pool.get(ctx, l.Budget)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &CallError{Verdict: VerdictBudget, Detail: "the caller gave up: " + context.Cause(ctx).Error(), Cause: context.Cause(ctx)}
		}
		return nil, err
	}
	if w.image != nil && !in.restore(w.image) {
		return in, fmt.Errorf("%s: an instance could not be brought back to its image", s.name)
	}
	rec := &sc.rec
	f := in.rebalance
	if rec.Op == pluginapi.OpAllocate {
		f = in.allocate
	}
	in.begin(ctx, l, since) // bringing the instance to its image, or making one, is part of the call
	rec.Output, err = in.ask(f, rec.Input, most)
	rec.Pages = in.pages()
	in.logs.finish()
	rec.Log = in.logs.lines
	rec.Fuel = sc.spent(in.meter.used(), l.Fuel, err)
	return in, err
}

// spent is what a record says of the fuel: what was used if the guest returned,
// the limit if that ran out, nil if it is not known.
func (sc *scratch) spent(used, limit int64, err error) *int64 {
	verdict := VerdictOK
	if err != nil {
		v, ok := VerdictOf(err)
		if !ok {
			return nil
		}
		verdict = v
	}
	switch verdict {
	case VerdictOK, VerdictOutput:
		sc.fuel = used
	case VerdictFuel:
		sc.fuel = limit
	default:
		return nil
	}
	return &sc.fuel
}

// giveBack returns an instance to the pool, or closes it: one whose call failed,
// one that has to be new for each call, one whose memory cannot be had back.
func (w *wasmStrategy) giveBack(in *instance, ended bool) {
	reusable := ended && w.image != nil && in.shrink(w.image.bytes)
	if err := w.pool.put(in, reusable); err != nil {
		w.mod.rt.log.Warn("an instance of a strategy could not be closed", "digest", w.mod.Digest(), "error", err)
	}
}

// callNative runs a native strategy. A panic of its is a trap.
func (s *Strategy) callNative(sc *scratch, shards []uint32) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &CallError{Verdict: VerdictTrap, Detail: fmt.Sprintf("panic: %v", p)}
		}
	}()
	rec := &sc.rec
	snap := sc.snap // the strategy's own, should it keep it
	if rec.Op == pluginapi.OpAllocate {
		homes, err := s.native.Allocate(&snap, shards)
		if err != nil {
			return badAnswer(err)
		}
		sc.output = pluginapi.AppendHomes(sc.output[:0], &homes)
	} else {
		plan, err := s.native.Rebalance(&snap)
		if err != nil {
			return badAnswer(err)
		}
		sc.output = pluginapi.AppendPlan(sc.output[:0], &plan)
	}
	rec.Output = sc.output
	return nil
}

func badAnswer(err error) *CallError {
	return &CallError{Verdict: VerdictOutput, Detail: clean(err.Error(), maxText), Cause: err}
}

func readPlan(check *placement.Checker, snap *pluginapi.Snapshot, out []byte) (pluginapi.Plan, error) {
	// More moves than shards must move one twice; there is no need to read on.
	plan, err := pluginapi.DecodePlanUpTo(out, len(snap.Owners))
	if err == nil {
		plan.Moves, err = check.Plan(snap, plan.Moves)
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

func readHomes(check *placement.Checker, snap *pluginapi.Snapshot, shards []uint32, out []byte) (pluginapi.Homes, error) {
	homes, err := pluginapi.DecodeHomes(out, len(shards))
	if err == nil {
		err = check.Homes(snap, shards, homes.Nodes)
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

// CallFigures are how one call ended, in figures.
type CallFigures struct {
	Verdict Verdict
	Fuel    int64 // -1 if not known; see Record.Fuel
	Elapsed time.Duration
}

// Decision is what a node acts on.
type Decision struct {
	Plan  pluginapi.Plan  // of Rebalance; empty if the strategy failed
	Homes pluginapi.Homes // of Allocate; likewise
	// InputDigest is that of the last call's input, by which its record is found;
	// zero if nothing follows from the call: it worked, and moves nothing.
	InputDigest Digest
	Err         error // why the strategy did not decide; see Result.Err

	calls [2]CallFigures
	made  int
}

// Calls tells of the calls that it took, in order: one, or two.
func (d *Decision) Calls() []CallFigures { return d.calls[:d.made] }

// ask makes a call for the decision.
func (d *Decision) ask(ctx context.Context, s *Strategy, op pluginapi.Op, snap *pluginapi.Snapshot, shards []uint32, budget time.Duration) {
	sc := scratches.Get().(*scratch)
	defer sc.release()
	d.Plan, d.Homes, d.Err = s.call(ctx, sc, op, snap, shards, budget, nil)
	f := CallFigures{Verdict: sc.rec.Verdict, Fuel: -1, Elapsed: sc.rec.Elapsed}
	if sc.rec.Fuel != nil {
		f.Fuel = *sc.rec.Fuel
	}
	d.InputDigest, d.calls[d.made] = sc.rec.InputDigest, f
	d.made++
}

// Rebalance asks for moves. If the strategy fails there are none (spec 1.3).
func (s *Strategy) Rebalance(ctx context.Context, snap *pluginapi.Snapshot) (d Decision) {
	d.ask(ctx, s, pluginapi.OpRebalance, snap, nil, 0)
	return d
}

// Allocate asks for homes. A call that blew its budget is made once more with
// twice the budget (spec 1.3). If the strategy still gives none it is for the
// caller to fall back: the coordinator has the built-in hash for that.
func (s *Strategy) Allocate(ctx context.Context, snap *pluginapi.Snapshot, shards []uint32) (d Decision) {
	d.ask(ctx, s, pluginapi.OpAllocate, snap, shards, 0)
	if errors.Is(d.Err, ErrBudget) && ctx.Err() == nil {
		d.ask(ctx, s, pluginapi.OpAllocate, snap, shards, 2*s.limits.Budget)
	}
	return d
}
