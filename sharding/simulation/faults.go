package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// The schedule of a run: the cluster forms, faults come and heal, and then progress is checked (finale.go).
const (
	faultsFrom = 1500 * time.Millisecond
	faultsTill = 16 * time.Second
	minFaults  = 20
	raiseAt    = 6 * time.Second
)

// faultKind is something that can go wrong, or that an operator asks for at a bad moment.
type faultKind struct {
	name   string
	weight int
	fault  bool // counts as a fault; the others are operators' requests
	do     func(w *world)
}

func faultKinds() []faultKind {
	return []faultKind{
		{"crash", 6, true, func(w *world) { w.crashFor(w.anyNode(), w.upTo(4*time.Second)) }},
		{"crash of the leader", 4, true, func(w *world) { w.crashFor(w.leaderNode(), w.upTo(4*time.Second)) }},
		{"quick restart", 3, true, func(w *world) { w.crashFor(w.anyNode(), w.upTo(50*time.Millisecond)) }},
		{"data lost", 2, true, func(w *world) { w.loseData(w.upTo(2 * time.Second)) }},
		{"modules lost", 2, true, func(w *world) {
			w.crashFor(w.forgetful, w.upTo(2*time.Second))
			w.forgetful.modules = map[[32]byte]bool{} // but for those of its file, once it starts
		}},
		{"stop with drain", 3, true, func(w *world) { w.stopNode(w.anyNode(), true) }},
		{"stop", 2, true, func(w *world) { w.stopNode(w.anyNode(), false) }},
		{"pause", 7, true, func(w *world) { w.pauseFor(w.anyNode(), w.upTo(w.ttl*2)) }},
		{"pause of the leader", 5, true, func(w *world) { w.pauseFor(w.leaderNode(), w.upTo(w.ttl*2)) }},
		{"stalled goroutine", 5, true, func(w *world) { w.stallFor(w.anyNode(), w.upTo(w.ttl*3/2)) }},
		{"stalled goroutine of the leader", 3, true, func(w *world) { w.stallFor(w.leaderNode(), w.upTo(w.ttl*3/2)) }},
		{"isolation", 5, true, func(w *world) { w.isolate(w.anyNode(), w.upTo(w.ttl*3), true, true) }},
		{"isolation of the leader", 5, true, func(w *world) { w.isolate(w.leaderNode(), w.upTo(w.ttl*3), true, true) }},
		{"one-way isolation", 4, true, func(w *world) {
			in := w.rng.IntN(2) == 0
			w.isolate(w.anyNode(), w.upTo(w.ttl*3), in, !in)
		}},
		{"one-way isolation of the leader", 3, true, func(w *world) {
			in := w.rng.IntN(2) == 0
			w.isolate(w.leaderNode(), w.upTo(w.ttl*3), in, !in)
		}},
		{"leader kept from the servers", 5, true, func(w *world) { w.deafLeader(w.upTo(w.ttl * 3)) }},
		{"split", 3, true, func(w *world) { w.split(w.upTo(w.ttl * 2)) }},
		{"cut link", 5, true, func(w *world) { w.cutLink(w.upTo(w.ttl * 2)) }},
		{"broken streams", 8, true, func(w *world) { w.breakSome() }},
		{"slow links", 5, true, func(w *world) { w.slowLinks(w.upTo(3 * time.Second)) }},
		{"wall clock jump", 2, true, func(w *world) {
			n := w.nodes[w.rng.IntN(len(w.nodes))]
			n.clock.jump += w.upTo(2*time.Hour) - time.Hour
		}},
		{"false suspicion", 3, true, func(w *world) { w.suspect() }},
		{"late directives", 10, true, func(w *world) { w.lateDirectives() }},
		{"forged directives", 4, true, func(w *world) { w.forgedDirectives() }},
		{"strategy fails", 2, true, func(w *world) {
			w.strategy.failing = true
			w.soon(w.upTo(2*time.Second), func() { w.strategy.failing = false })
		}},
		{"slow strategy", 3, true, func(w *world) {
			w.strategy.slow = w.upTo(time.Second)
			w.soon(w.upTo(3*time.Second), func() { w.strategy.slow = 0 })
		}},
		{"hanging stop", 2, true, func(w *world) {
			k := w.anyShard()
			w.stuck[k] = true
			w.soon(w.upTo(4*time.Second), func() { delete(w.stuck, k) })
		}},
		{"transfer of leadership", 5, true, func(w *world) { w.transfer() }},

		{"move", 24, false, func(w *world) { w.moveShard(w.anyShard(), w.anyNode(), nil) }},
		{"drain", 4, false, func(w *world) { w.drainFor(w.anyNode(), w.upTo(3*time.Second)) }},
		{"pin", 4, false, func(w *world) { w.pinFor(w.anyShard(), w.anyNode(), w.upTo(5*time.Second)) }},
		{"forget", 3, false, func(w *world) { w.ask(coordinator.ForgetNode{Node: w.anyNode().name}, nil) }},
		{"pause of rebalancing", 1, false, func(w *world) {
			w.ask(coordinator.Pause{On: true}, nil)
			w.soon(w.upTo(2*time.Second), func() { w.ask(coordinator.Pause{}, nil) })
		}},
		{"swap", 6, false, func(w *world) {
			s := w.anySpec()
			w.change(s, true, coordinator.SwapStrategy{Type: w.anyType(), Spec: s, Cause: protocol.CauseOperator})
		}},
		{"shadow", 7, false, func(w *world) {
			s := w.anySpec()
			w.change(s, true, coordinator.SetShadow{Type: w.anyType(), Spec: s})
		}},
		{"end of a shadow", 1, false, func(w *world) { w.ask(coordinator.SetShadow{Type: w.anyType()}, nil) }},
		{"promote", 8, false, func(w *world) { w.promote(w.anyType()) }},
		{"rollback", 6, false, func(w *world) { w.rollBack(w.anyType()) }},
	}
}

// plan draws the whole schedule.
func (w *world) plan() {
	kinds := faultKinds()
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	draw := func() faultKind {
		n := w.rng.IntN(total)
		for _, k := range kinds {
			if n -= k.weight; n < 0 {
				return k
			}
		}
		return kinds[0]
	}
	faults, wanted := 0, minFaults+w.rng.IntN(12)
	for faults < wanted {
		k := draw()
		if k.fault {
			faults++
		}
		at := int64(faultsFrom) + w.rng.Int64N(int64(faultsTill-faultsFrom))
		w.schedule(at, nil, func() {
			w.logf("FAULT", nil, "%s", k.name)
			if k.fault {
				w.result.Faults++
			}
			k.do(w)
		})
	}
	if w.opts.Raise {
		w.schedule(int64(raiseAt), nil, w.raise)
	}
	w.schedule(int64(faultsTill), nil, w.heal)
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// soon runs f in the world after d, and before the faults end.
func (w *world) soon(d time.Duration, f func()) {
	w.schedule(min(w.now+int64(d), int64(faultsTill)-1), nil, f)
}

func (w *world) anyNode() *node { return w.nodes[w.rng.IntN(len(w.nodes))] }

// leaderProc is the newest leader that lives; nil: none.
func (w *world) leaderProc() *process {
	for term := w.lastTerm; term > 0 && term+8 > w.lastTerm; term-- {
		if p := w.byMember[w.leaders[term]]; p != nil && p.alive && p.raft.role == leader {
			return p
		}
	}
	return nil
}

func (w *world) leaderNode() *node {
	if p := w.leaderProc(); p != nil {
		return p.node
	}
	return w.nodes[w.rng.IntN(w.servers)]
}

func (w *world) anyShard() ShardKey {
	t := w.types[w.pick(len(w.types))]
	return ShardKey{t.name, sharding.ShardOf(t.entities[w.rng.IntN(len(t.entities))], t.shards)}
}

func (w *world) crashFor(n *node, d time.Duration) {
	p := n.proc
	if p == nil {
		return
	}
	p.crash("crash")
	w.soon(d, func() { w.revive(n) })
}

// loseData restarts a plain node with an empty data_dir: nobody learns from it that the process before is dead. A server that loses its
// disk is another server (spec 2.1), and servers do not change here.
func (w *world) loseData(d time.Duration) {
	n := w.nodes[w.servers+w.rng.IntN(len(w.nodes)-w.servers)]
	w.crashFor(n, d)
	n.former, n.cluster = nil, sharding.Incarnation{}
}

func (w *world) revive(n *node) {
	if n.proc == nil {
		w.start(n)
	}
}

// stopNode ends a process in order, with or without draining; its node starts again later.
func (w *world) stopNode(n *node, drain bool) {
	p := n.proc
	if p == nil || p.leaving || p.paused {
		return
	}
	p.leaving = true
	w.observe(Left{Member: p.self})
	if !drain {
		w.disturbed(Disturbed{Kind: DisturbedProcess, A: p.self})
	}
	p.stepSession(stopRequest(drain))
	w.soon(w.handOffTimeout*3, func() {
		if p.alive {
			p.crash("stopping took too long")
			w.revive(n)
		}
	})
}

// stopped: a process that was told to stop owns nothing any more.
func (w *world) stopped(p *process) {
	if !p.leaving {
		return
	}
	p.later(50*time.Millisecond, func() {
		p.crash("stopped")
		w.soon(w.upTo(2*time.Second), func() { w.revive(p.node) })
	})
}

func (w *world) pauseFor(n *node, d time.Duration) {
	p := n.proc
	if p == nil || p.paused {
		return
	}
	p.pause()
	w.whilePaused(d, p.self)
	w.soon(d, p.resume)
	if d > time.Second {
		w.soon(w.upTo(time.Second), func() { w.tell(p.self, coordinator.MemberSuspect, time.Second) })
		w.soon(d+w.upTo(time.Second), func() { w.tell(p.self, coordinator.MemberUp, time.Second) })
	}
}

// stallFor holds up one goroutine of a process while the others go on.
func (w *world) stallFor(n *node, d time.Duration) {
	p := n.proc
	if p == nil {
		return
	}
	d = min(d, faultsTill-time.Duration(w.now))
	lanes := p.lanes()
	l := lanes[w.rng.IntN(len(lanes))]
	l.stall(d)
	if l == &p.sessionLane || l == &p.machineLane { // a region that stands still is no reason for a lapse
		w.whilePaused(d, p.self)
	}
}

// whilePaused repeats that a member is disturbed until d has passed.
func (w *world) whilePaused(d time.Duration, m sharding.Member) {
	w.disturbed(Disturbed{Kind: DisturbedMember, A: m})
	if d <= 0 || w.now >= int64(faultsTill) {
		return
	}
	step := min(d, 200*time.Millisecond)
	w.schedule(w.now+int64(step), nil, func() { w.whilePaused(d-step, m) })
}

// cutFor blocks the ways from a to b (slots) for d.
func (w *world) cutFor(a, b int, d time.Duration) {
	w.soon(d, w.net.cut(a, b))
	w.whileCut(d, a, b)
}

// whileCut repeats that whatever runs on two nodes is disturbed until d has passed.
func (w *world) whileCut(d time.Duration, a, b int) {
	if pa, pb := w.nodes[a].proc, w.nodes[b].proc; pa != nil && pb != nil {
		w.disturbed(Disturbed{Kind: DisturbedMember, A: pa.self, B: pb.self})
	}
	if d <= 0 || w.now >= int64(faultsTill) {
		return
	}
	step := min(d, 200*time.Millisecond)
	w.schedule(w.now+int64(step), nil, func() { w.whileCut(d-step, a, b) })
}

func (w *world) isolate(n *node, d time.Duration, in, out bool) {
	for _, o := range w.nodes {
		if o == n {
			continue
		}
		if out {
			w.cutFor(n.slot, o.slot, d)
		}
		if in {
			w.cutFor(o.slot, n.slot, d)
		}
	}
	if p := n.proc; p != nil && d > 500*time.Millisecond {
		w.soon(w.upTo(time.Second), func() { w.tell(p.self, coordinator.MemberFailed, time.Second) })
		w.soon(d+w.upTo(time.Second), func() {
			if p.alive {
				w.tell(p.self, coordinator.MemberUp, time.Second)
			}
		})
	}
}

// deafLeader cuts a leader off from the other servers and leaves it its way to the plain nodes: it goes on thinking that it leads.
func (w *world) deafLeader(d time.Duration) {
	n := w.leaderNode()
	for _, o := range w.nodes[:w.servers] {
		if o != n {
			w.cutFor(n.slot, o.slot, d)
			w.cutFor(o.slot, n.slot, d)
		}
	}
}

func (w *world) split(d time.Duration) {
	side := make([]bool, len(w.nodes))
	for i := range side {
		side[i] = w.rng.IntN(2) == 0
	}
	for a := range w.nodes {
		for b := range w.nodes {
			if side[a] != side[b] {
				w.cutFor(a, b, d)
			}
		}
	}
}

func (w *world) cutLink(d time.Duration) {
	a, b := w.rng.IntN(len(w.nodes)), w.rng.IntN(len(w.nodes))
	if a == b {
		return
	}
	w.cutFor(a, b, d)
	if w.rng.IntN(3) > 0 {
		w.cutFor(b, a, d)
	}
}

func (w *world) breakSome() {
	for _, s := range w.net.sorted() {
		if w.rng.IntN(4) == 0 {
			w.net.breakStream(s)
		}
	}
}

func (w *world) slowLinks(d time.Duration) {
	slow := w.rng.Int64N(int64(800*time.Millisecond)) + 1
	for a := range w.nodes {
		for b := range w.nodes {
			if w.rng.IntN(3) == 0 {
				w.net.slow[a][b] += slow
				w.soon(d, func() { w.net.slow[a][b] -= slow })
				w.whileCut(d+time.Duration(slow), a, b)
			}
		}
	}
}

func (w *world) suspect() {
	n := w.anyNode()
	if n.proc == nil {
		return
	}
	m := n.proc.self
	w.tell(m, coordinator.MemberSuspect, 300*time.Millisecond)
	if w.rng.IntN(2) == 0 {
		w.tell(m, coordinator.MemberFailed, 600*time.Millisecond)
	}
	w.soon(w.upTo(2*time.Second), func() {
		if n.proc != nil {
			w.tell(n.proc.self, coordinator.MemberUp, 500*time.Millisecond)
		}
	})
}

func (w *world) transfer() {
	if p := w.leaderProc(); p != nil {
		to := w.rng.IntN(w.servers)
		if to != p.node.slot {
			p.raft.transfer(to)
		}
	}
}

// coordinatorSend is a directive that was sent once.
type coordinatorSend struct {
	from *process
	to   sharding.Member
	m    protocol.Directive
}

// remember keeps some directives, to come again when they are late.
func (w *world) remember(p *process, c coordinator.Send) {
	d, ok := c.Message.(protocol.Directive)
	if !ok {
		return
	}
	if len(w.past) < 400 {
		w.past = append(w.past, coordinatorSend{p, c.To, d})
		return
	}
	w.past[w.rng.IntN(len(w.past))] = coordinatorSend{p, c.To, d}
}

// lateDirectives delivers directives of deposed leaders, over connections of their own, and HandOffs of any leader once more.
func (w *world) lateDirectives() {
	n := 0
	for _, i := range w.rng.Perm(len(w.past)) {
		s := w.past[i]
		_, again := s.m.(*protocol.HandOff)
		if !s.from.alive || s.m.DirectiveTerm() == w.lastTerm && !again {
			continue
		}
		w.logf("late", s.from, "to %v: %v", s.to, s.m)
		s.from.sendControl(s.to, s.m)
		if n++; n == 6 {
			return
		}
	}
}

// forgedDirectives come from a living node that does not lead the term they name; some of them may not coordinate at all.
func (w *world) forgedDirectives() {
	n := 0
	for _, i := range w.rng.Perm(len(w.past)) {
		s := w.past[i]
		p := w.anyNode().proc
		if p == nil || p.self == w.leaderOf(s.m.DirectiveTerm()) {
			continue
		}
		if p.node.server && s.m.DirectiveTerm() > w.heard[s.to] {
			continue // who leads a new term nobody knows but from its own word, and servers are believed not to lie
		}
		w.logf("forged", p, "to %v: %v", s.to, s.m)
		p.sendControl(s.to, s.m)
		if n++; n == 4 {
			return
		}
	}
}
