package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/strategist"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// putModule stores a module on this node. An error says that it is not kept.
func (n *Node) putModule(wasm []byte) (modules.Digest, error) { return n.modules.Put(wasm) }

// unstored is what the client of a swap is told where this node could not store the module: sent again it would fail again.
func (n *Node) unstored(err error) error {
	return &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: fmt.Sprintf("node %s: %v", n.self.Node, err),
		Hint: fmt.Sprintf("the old strategy stays; see that node %s can write to its data_dir, and that its disk has room, then send it again", n.self.Node)}
}

// swap is a strategy change proposed at this node (spec 1.4): admitted and compiled here, then ordered from the leader. It gives what is odd about it, short of a refusal.
func (n *Node) swap(ctx context.Context, r httpapi.SwapRequest) ([]httpapi.Finding, error) {
	present, err := n.strategyOf(ctx, r.Type)
	if err != nil {
		return nil, err
	}
	spec, err := changed(present.Spec, r)
	if err != nil {
		return nil, err
	}
	wasm := r.Module
	switch {
	case len(wasm) > 0:
	case r.Digest != nil:
		if wasm, err = n.modules.Get(*r.Digest); errors.Is(err, modules.ErrNotHere) {
			wasm, err = n.fetchModule(ctx, *r.Digest)
		}
		if err != nil {
			return nil, &httpapi.Problem{Kind: httpapi.KindUnknownModule, Detail: err.Error()}
		}
	case spec.Digest == ([32]byte{}):
		return nil, &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("%s has no strategy module at present: the built-in hash gives homes, which has no configuration and no limits", r.Type),
			Hint: fmt.Sprintf("name a strategy: drover strategy swap %s builtin:leastshard", r.Type)}
	default: // configuration and limits alone
		if wasm, err = n.modules.Get(spec.Digest); errors.Is(err, modules.ErrNotHere) {
			wasm, err = n.fetchModule(ctx, spec.Digest)
		}
		if err != nil {
			return nil, &httpapi.Problem{Kind: httpapi.KindUnknownModule, Detail: err.Error()}
		}
	}
	name, warnings, err := n.strategist.Admit(ctx, wasm, spec)
	if err != nil {
		return nil, refusal(err)
	}
	n.warn(r.Type, spec.Source, warnings)
	if spec.Digest, err = n.putModule(wasm); err != nil {
		return nil, n.unstored(err)
	}
	if spec.Source == "" {
		spec.Source = name
	}
	order := swapOrder{Type: r.Type, Spec: spec, Expect: present.Seq, Module: wasm}
	if r.Shadow {
		order.ShadowExpect = &present.ShadowSeq
	}
	body, err := cbor.Marshal(order)
	if err != nil {
		return nil, err
	}
	_, err = n.callLeader(ctx, callSwap, body)
	return findingsOf(warnings), err
}

// changed gives the present strategy with what a request changes.
func changed(spec protocol.StrategySpec, r httpapi.SwapRequest) (protocol.StrategySpec, error) {
	if len(r.Module) > 0 || r.Digest != nil {
		spec.Source = r.Source
		if spec.Source == "" && r.Digest != nil {
			spec.Source = sourceOf("sha256:"+modules.Digest(*r.Digest).String(), *r.Digest)
		}
	}
	if r.Config != nil {
		config, err := snapshotfile.ParseConfig(r.Config)
		if err != nil {
			return spec, &httpapi.Problem{Kind: httpapi.KindBadRequest, Detail: "config: " + err.Error()}
		}
		spec.Config = config
	}
	if l := r.Limits; l != nil {
		set(&spec.Fuel, l.Fuel)
		set(&spec.Budget, l.BudgetMillis)
		set(&spec.Memory, l.Memory)
		set(&spec.MaxFailures, l.MaxFailures)
		set(&spec.MovesPass, l.MovesPerPass)
	}
	return spec, nil
}

func set[T any](into *T, from *T) {
	if from != nil {
		*into = *from
	}
}

// refusal turns an admission error into a problem with its findings. What else went wrong, a caller who gave up too, says nothing about the module.
func refusal(err error) error {
	var refused *host.RefusedError
	if !errors.As(err, &refused) {
		return &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: "the module could not be examined, the old strategy stays: " + err.Error()}
	}
	broken := 0
	for _, f := range refused.Findings {
		if f.Severity == host.SeverityError {
			broken++
		}
	}
	// The findings are told apart: their text in the detail too would say each of them twice.
	p := &httpapi.Problem{Kind: httpapi.KindRefusedStrategy, Detail: fmt.Sprintf("the module is refused by %d rules", broken)}
	if broken == 1 {
		p.Detail = "the module is refused by 1 rule"
	}
	p.Findings = findingsOf(refused.Findings)
	return p
}

func findingsOf(list []host.Finding) (out []httpapi.Finding) {
	for _, f := range list {
		out = append(out, httpapi.Finding{Rule: string(f.Rule), Severity: string(f.Severity), Message: f.Message, Fix: f.Fix, Offset: f.Offset})
	}
	return out
}

// strategyOf gives the strategy that is in force for a type, from the leader.
func (n *Node) strategyOf(ctx context.Context, t sharding.TypeName) (strategyRecord, error) {
	all, err := n.strategies(ctx)
	if err != nil {
		return strategyRecord{}, err
	}
	p := &httpapi.Problem{Kind: httpapi.KindUnknownType, Detail: fmt.Sprintf("the cluster has no type %q", t)}
	for _, r := range all {
		if r.Type == t {
			return r, nil
		}
		p.Known = append(p.Known, string(r.Type))
	}
	return strategyRecord{}, p
}

func (n *Node) strategies(ctx context.Context) ([]strategyRecord, error) {
	body, err := n.callLeader(ctx, callStrategies, nil)
	if err != nil {
		return nil, err
	}
	var all []strategyRecord
	if err := callDecoding.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("strategies: %w", err)
	}
	return all, nil
}

func (n *Node) serveStrategies() ([]byte, error) {
	if !n.leads() {
		return nil, errNotLeader
	}
	var all []strategyRecord
	var views []coordinator.StrategyView
	var term uint64
	n.plane.View(func() {
		s := n.machine.State()
		term = n.machine.Term()
		for _, t := range s.Types() {
			v, _ := s.Strategy(t)
			r := strategyRecord{Type: t, Seq: v.Seq, Spec: v.Spec, Worked: v.Worked, ShadowSeq: v.Shadow.Seq, Previous: v.Previous}
			if f, failed := n.machine.LastFailure(t); failed {
				r.Failure = &strategyFailure{f.Spec.Digest, f.Spec.Source, f.Failure.Verdict, []byte(f.Failure.Detail)}
			}
			all, views = append(all, r), append(views, v)
		}
	})
	for i := range all {
		r := &all[i]
		st := n.strategist.Stats(r.Type, r.Spec)
		r.Calls, r.Failures, r.LastFuel, r.P99Fuel, r.LastMicros, r.P99Micros = st.Calls, st.Failures, st.LastFuel, st.P99Fuel, st.LastMicros, st.P99Micros
		state, name := n.strategist.State(r.Spec)
		r.Name = name
		switch {
		case state == strategist.Missing:
			r.State = string(httpapi.StrategyMissing)
		case state == strategist.Preparing:
			r.State = string(httpapi.StrategyPreparing)
		case views[i].Failure != "": // the one in force stands in for one that failed
			r.State = string(httpapi.StrategyReverted)
		default:
			r.State = string(httpapi.StrategyActive)
		}
		r.Shadow = n.shadowRecord(r.Type, term, &views[i])
	}
	return cbor.Marshal(all)
}

// activate is the leader's part of a swap, and of a shadow: the module on a majority of the voters, then one log entry.
func (n *Node) activate(ctx context.Context, o swapOrder) error {
	if len(o.Module) > 0 && sha256.Sum256(o.Module) != o.Spec.Digest {
		return &httpapi.Problem{Kind: httpapi.KindBadRequest, Detail: "the module is not the one that its digest names"}
	}
	var req coordinator.Request = coordinator.SwapStrategy{Type: o.Type, Spec: o.Spec, Expect: &o.Expect, Cause: protocol.CauseSwap}
	if o.ShadowExpect != nil {
		req = coordinator.SetShadow{Type: o.Type, Spec: o.Spec, Expect: &o.Expect, Shadow: o.ShadowExpect}
	}
	return n.rollOut(ctx, o.Spec, o.Module, req)
}
