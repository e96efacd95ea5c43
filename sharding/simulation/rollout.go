package simulation

import (
	"errors"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/rollout"
)

// wanted is what a server is to have ready for a type; zero: nothing.
type wanted struct{ strategy, shadow [32]byte }

// Times of the modules' shell, shortened as the leases are.
const (
	readyPatience = 500 * time.Millisecond // of a call for a module that is being made ready
	storePatience = 1500 * time.Millisecond
	fetchPatience = 600 * time.Millisecond // for one node's answer
	fetchAgain    = 300 * time.Millisecond
)

// want notes what a type needs, and begins to make it ready.
func (p *process) want(t sharding.TypeName, want wanted) {
	p.wanted[t] = want
	for _, d := range [][32]byte{want.strategy, want.shadow} {
		if d != [32]byte{} {
			p.prepare(d)
		}
	}
}

func (p *process) wants(d [32]byte) bool {
	for _, w := range p.wanted { // unordered: any
		if w.strategy == d || w.shadow == d {
			return true
		}
	}
	return false
}

// prepare compiles a module, fetching it from another node where it is not here, again and again while it is wanted.
func (p *process) prepare(d [32]byte) {
	if p.ready[d] || p.fetching[d] {
		return
	}
	p.fetching[d] = true
	p.obtain(d, func(ok bool) {
		p.fetching[d] = false
		switch {
		case ok:
			p.after(p.w.compileTime(), func() { p.ready[d] = true })
		case p.wants(d):
			p.after(fetchAgain, func() { p.prepare(d) })
		}
	})
}

func (w *world) compileTime() time.Duration {
	if w.rng.IntN(10) == 0 {
		return w.upTo(300*time.Millisecond) + 1
	}
	return w.upTo(20*time.Millisecond) + 1
}

// obtain gets a module from the store, or from one node after the other.
func (p *process) obtain(d [32]byte, done func(ok bool)) {
	if p.node.modules[d] {
		p.later(time.Millisecond, func() { done(true) })
		return
	}
	from := p.w.rng.Perm(len(p.w.nodes))
	var next func()
	next = func() {
		if len(from) == 0 {
			done(false)
			return
		}
		q := p.w.nodes[from[0]].proc
		from = from[1:]
		if q == nil || q == p {
			next()
			return
		}
		p.call(q, fetchPatience, func() bool { return q.node.modules[d] }, func(has, answered bool) {
			if !has {
				next()
				return
			}
			p.node.modules[d] = true
			done(true)
		})
	}
	next()
}

// call asks another process something over the network, where question and answer may get lost; done is called once.
func (p *process) call(q *process, patience time.Duration, ask func() bool, done func(yes, answered bool)) {
	ended := false
	end := func(yes, answered bool) {
		if !ended {
			ended = true
			done(yes, answered)
		}
	}
	p.w.net.datagram(p, q, func() {
		yes := ask()
		p.w.net.datagram(q, p, func() { end(yes, true) })
	})
	p.after(patience, func() { end(false, false) })
}

// whenReady goes on once a module is ready in a process, or patience has run out.
func (w *world) whenReady(p *process, d [32]byte, patience time.Duration, do func(ready bool)) {
	const look = 20 * time.Millisecond
	if p.ready[d] || patience <= 0 {
		do(p.ready[d])
		return
	}
	p.prepare(d)
	p.after(look, func() { w.whenReady(p, d, patience-look, do) })
}

func (w *world) anyType() sharding.TypeName { return w.types[w.rng.IntN(len(w.types))].name }

// anySpec is a strategy as an operator would set it, in most cases of a module that no node has.
func (w *world) anySpec() protocol.StrategySpec {
	policy := append([]string{"broken"}, strategyNames...)[w.rng.IntN(1+len(strategyNames))]
	return spec(moduleName(policy, w.rng.IntN(variants)))
}

// promote and rollBack ask whoever leads, for what its state has.
func (w *world) promote(t sharding.TypeName) {
	if p := w.leaderProc(); p != nil {
		if v, _ := p.machine.State().Strategy(t); v.Shadow.On() {
			w.change(v.Shadow.Spec, false, coordinator.PromoteShadow{Type: t, Expect: &v.Seq, Shadow: &v.Shadow.Seq})
			return
		}
	}
	s := w.anySpec()
	w.change(s, true, coordinator.SetShadow{Type: t, Spec: s})
}

func (w *world) rollBack(t sharding.TypeName) {
	if p := w.leaderProc(); p != nil {
		if v, _ := p.machine.State().Strategy(t); v.HasPrevious {
			w.change(v.Previous, false, coordinator.RollBack{Type: t, Expect: &v.Seq})
		}
	}
}

// change rolls a change of strategy out on the leader, as package node does. With given the module comes with the request. In some cases the leader ends
// or hands over in the middle, at whatever step.
func (w *world) change(s protocol.StrategySpec, given bool, req coordinator.Request) {
	p := w.leaderProc()
	if p == nil || p.paused || !p.machine.Leading() {
		return
	}
	r := &rolling{p: p, m: rollout.New(serverOf(p.node), w.opts.Rollout), digest: s.Digest, given: given, req: req}
	r.step(rollout.Began{})
	switch w.rng.IntN(6) {
	case 0:
		w.soon(w.upTo(150*time.Millisecond), func() { w.crashFor(p.node, w.upTo(2*time.Second)) })
	case 1:
		w.soon(w.upTo(150*time.Millisecond), w.transfer)
	}
}

// serverOf is the id of a node's raft server.
func serverOf(n *node) sharding.Incarnation { return sharding.Incarnation{0xff, byte(n.slot)} }

// rolling is the shell of one rollout.Machine, in the process that leads. It ends with it.
type rolling struct {
	p      *process
	m      *rollout.Machine
	digest [32]byte
	given  bool
	req    coordinator.Request
}

func (r *rolling) step(ev rollout.Event) {
	w := r.p.w
	commands := r.m.Step(ev)
	w.logStep("rollout", r.p, ev, len(commands))
	for _, c := range commands {
		w.logCommand("rollout", r.p, c)
		r.command(c)
	}
}

var errRefused = errors.New("refused")

// failed is nil where ok.
func failed(ok bool) error {
	if ok {
		return nil
	}
	return errRefused
}

func (r *rolling) command(c rollout.Command) {
	p, w := r.p, r.p.w
	switch c := c.(type) {
	case rollout.Fetch:
		if r.given {
			p.later(time.Millisecond, func() { r.step(rollout.Fetched{}) })
			return
		}
		p.obtain(r.digest, func(ok bool) { r.step(rollout.Fetched{Err: failed(ok)}) })
	case rollout.Admit:
		p.after(w.compileTime(), func() { r.step(rollout.Admitted{}) })
	case rollout.Store:
		if c.Server == serverOf(p.node) {
			p.later(3*time.Millisecond, func() {
				p.node.modules[r.digest] = true
				r.step(rollout.Stored{Server: c.Server})
			})
			return
		}
		q := w.nodes[c.Server[1]].proc
		if q == nil {
			p.later(time.Millisecond, func() { r.step(rollout.Stored{Server: c.Server, Err: errRefused}) })
			return
		}
		p.call(q, storePatience, func() bool { q.node.modules[r.digest] = true; return true }, func(yes, _ bool) {
			r.step(rollout.Stored{Server: c.Server, Err: failed(yes)})
		})
	case rollout.CountVoters:
		var voters []sharding.Incarnation
		for _, n := range w.nodes[:w.servers] {
			voters = append(voters, serverOf(n))
		}
		p.do(func() { r.step(rollout.Counted{Voters: voters}) })
	case rollout.Order:
		w.request++
		w.answers[w.request] = func(a coordinator.Answer) {
			if a.Code == "" {
				w.result.Changes++
			}
			p.do(func() { r.step(rollout.Ordered{Err: failed(a.Code == "")}) })
		}
		p.stepMachine(coordinator.Requested{ID: w.request, Request: r.req})
	case rollout.End:
	}
}

// strategiesOf gives each type's strategy.
func (w *world) strategiesOf(s *coordinator.State) []coordinator.StrategyView {
	out := make([]coordinator.StrategyView, len(w.types))
	for i, t := range w.types {
		out[i], _ = s.Strategy(t.name)
	}
	return out
}

// activated tells which modules an entry put to use, and who had them.
func (w *world) activated(e *protocol.Entry, before []coordinator.StrategyView) {
	for i, t := range w.types {
		now, was := w.inForce[i], coordinator.StrategyView{}
		if before != nil {
			was = before[i]
		}
		if now.Seq != was.Seq {
			w.tellActivated(e, t.name, now.Spec.Digest, false)
		}
		if now.Shadow.Seq != was.Shadow.Seq {
			w.tellActivated(e, t.name, now.Shadow.Spec.Digest, true)
		}
	}
}

func (w *world) tellActivated(e *protocol.Entry, t sharding.TypeName, d [32]byte, shadow bool) {
	if d == [32]byte{} { // the built-in hash, or the end of a shadow
		return
	}
	f := Activated{Index: w.applied, Type: t, Digest: d, Shadow: shadow, Servers: w.servers,
		Chosen: e.StrategyOutcome == nil && (e.SetStrategy == nil || e.SetStrategy.Cause != protocol.CauseFile)}
	for _, n := range w.nodes[:w.servers] {
		if n.modules[d] {
			f.Have++
		}
	}
	w.observe(f)
}

// settled tells what each server takes for the types' strategies in the end.
func (w *world) settled() {
	leader := w.leaderProc()
	for _, n := range w.nodes[:w.servers] {
		p := n.proc
		for _, t := range w.types {
			v, _ := p.machine.State().Strategy(t.name)
			ready := func(d [32]byte) bool { return d == [32]byte{} || p.ready[d] }
			w.observe(Settled{Server: p.self, Type: t.name, Strategy: v.Spec.Digest, Shadow: v.Shadow.Spec.Digest, Leads: p == leader,
				Ready: ready(v.Spec.Digest) && ready(v.Shadow.Spec.Digest)})
		}
	}
}
