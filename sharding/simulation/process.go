package simulation

import (
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// node is a computer with a data_dir; processes come and go on it.
type node struct {
	slot   int
	name   sharding.NodeID
	server bool
	proxy  bool // hosts nothing of the second type
	clock  clock
	disk   *raftDisk
	proc   *process // nil: none runs
	starts int
	late   bool // joins while the cluster has run for a while

	// In its data_dir:
	modules map[[32]byte]bool
	former  []sharding.Incarnation
	cluster sharding.Incarnation
}

// process is one incarnation of a node: the shell around the machines, as package node is in the real thing.
type process struct {
	w        *world
	node     *node
	id       int
	self     sharding.Member
	alive    bool
	paused   bool
	leaving  bool
	deferred []event

	session   *region.Session
	following sharding.Member // the leader, by the session
	regions   []*host
	machine   *coordinator.Machine // nil on a node without raft server
	leads     uint64               // the term of which it was last told
	raft      *raft
	seen      map[sharding.Member]coordinator.MemberStatus // Serf's view, as told to the machine
	client    *client

	sessionLane, machineLane lane

	ready    map[[32]byte]bool            // modules that are compiled here
	wanted   map[sharding.TypeName]wanted // what this server is to have ready
	fetching map[[32]byte]bool

	closedFrom map[int]int64 // process id: when the last data stream from it was reported closed
}

// host is a region with the runtime of its entities.
type host struct {
	p      *process
	lane   lane
	region *region.Region
	conf   region.Config
	shards map[sharding.ShardID][]*shardRun // generations that run here, oldest first
	owned  []protocol.ShardEpoch            // as OwnedChanged told
	orders map[protocol.ShardEpoch]bool     // handoffs begun here (I10)
}

func (p *process) now() sharding.Instant { return p.node.clock.at(p.w.now) }

// after runs f in the process when d has passed on its own clock.
func (p *process) after(d time.Duration, f func()) {
	p.w.schedule(p.w.now+p.node.clock.span(d), p, f)
}

// later runs f within d, at a random moment.
func (p *process) later(d time.Duration, f func()) {
	p.w.schedule(p.w.now+1+p.w.rng.Int64N(int64(d)), p, f)
}

// do runs f after what is being done now.
func (p *process) do(f func()) { p.w.do(p, f) }

// start begins a new incarnation on a node.
func (w *world) start(n *node) *process {
	n.starts++
	p := &process{w: w, node: n, id: len(w.procs), alive: true, closedFrom: map[int]int64{}, ready: map[[32]byte]bool{}, wanted: map[sharding.TypeName]wanted{}, fetching: map[[32]byte]bool{}}
	p.self = sharding.Member{Node: n.name, Incarnation: w.incarnation()}
	for _, t := range w.types { // of its file
		n.modules[digestOf(t.strategy)] = true
	}
	p.sessionLane.p, p.machineLane.p = p, p
	w.procs = append(w.procs, p)
	w.byMember[p.self] = p
	n.proc = p
	w.logf("life", p, "starts (%d. time)", n.starts)

	info := protocol.NodeInfo{Address: string(n.name) + ":7000", Zone: []string{"a", "b"}[n.slot%2], Version: "1.0", Capacity: 100}
	conf := region.SessionConfig{
		Self: p.self, Info: info, Supersedes: slices.Clone(n.former), ClusterID: n.cluster, RegisterEvery: 2 * time.Second, Off: w.opts.Region,
	}
	for i, t := range w.types {
		hosts := i == 0 || !n.proxy
		conf.Regions = append(conf.Regions, protocol.RegionInfo{
			Type: t.name, NumShards: t.shards, Hosts: hosts, Place: t.place, Expect: uint32(w.servers),
			Strategy: protocol.StrategySpec{Source: "sim:" + t.strategy, Digest: digestOf(t.strategy), MovesPass: 4, MaxFailures: 3},
		})
		h := &host{p: p, lane: lane{p: p}, shards: map[sharding.ShardID][]*shardRun{}, orders: map[protocol.ShardEpoch]bool{}}
		h.conf = region.Config{
			Self: p.self, Type: t.name, NumShards: t.shards, Hosts: hosts,
			MaxMessages: w.maxMessages, MaxBytes: w.maxBytes, AskHomeEvery: 300 * time.Millisecond, HoldFor: w.holdFor, Off: w.opts.Region,
		}
		h.region = region.New(h.conf)
		p.regions = append(p.regions, h)
	}
	p.session = region.NewSession(conf)
	n.former = append(n.former, p.self.Incarnation)

	if n.server {
		p.machine = p.newMachine()
		p.seen = map[sharding.Member]coordinator.MemberStatus{}
		if n.disk.snapIndex > 0 {
			p.restoreMachine(n.disk.snapIndex, n.disk.snap)
		}
		p.raft = newRaft(w, p, n.disk)
		p.tickMachine()
	}
	p.client = newClient(p)
	p.tickSession()
	for _, h := range p.regions {
		h.tick()
	}
	p.measureLoad()
	p.client.next()
	w.serfJoined(p)
	return p
}

func (p *process) newMachine() *coordinator.Machine {
	w := p.w
	return coordinator.New(coordinator.Config{
		Self: p.self, RebalanceInterval: w.interval, MoveCooldown: w.interval / 2, Settle: 500 * time.Millisecond,
		HandOffTimeout: w.handOffTimeout, MapPart: w.opts.MapPart, Seed: w.opts.Seed<<8 | uint64(p.id), Off: w.opts.Coordinator,
	})
}

func (p *process) restoreMachine(index uint64, data []byte) {
	p.machineLane.post(func() {
		if err := p.machine.Restore(data); err != nil {
			p.w.fail("I9", "snapshot of index %d does not restore on %v: %v", index, p.self, err)
		}
	})
}

// crash ends a process at once: memory is lost, the disk stays.
func (p *process) crash(why string) {
	if !p.alive {
		return
	}
	p.w.logf("life", p, "ends: %s", why)
	p.w.disturbed(Disturbed{Kind: DisturbedProcess, A: p.self})
	p.alive = false
	p.deferred = nil
	p.node.proc = nil
	p.w.net.died(p)
	p.w.serfLost(p, p.leaving)
}

// pause stops the process as SIGSTOP does; resume lets it go on, with everything late.
func (p *process) pause() { p.paused = true }

func (p *process) resume() {
	if !p.alive || !p.paused {
		return
	}
	p.paused = false
	late := p.deferred
	p.deferred = nil
	for _, l := range p.lanes() { // the goroutines go on in any order
		l.stall(p.w.upTo(5 * time.Millisecond))
	}
	for _, e := range late {
		p.w.schedule(p.w.now, p, e.do)
	}
}

func (p *process) tickMachine() {
	p.stepMachine(coordinator.Ticked{Wall: p.node.clock.wall(p.w.now)})
	p.after(90*time.Millisecond, p.tickMachine)
}

func (p *process) tickSession() {
	p.stepSession(region.Ticked{})
	p.after(48*time.Millisecond, p.tickSession)
}

// measureLoad tells the session now and then what a node would measure.
func (p *process) measureLoad() {
	w := p.w
	entities := uint64(0)
	load := protocol.NodeLoad{Entities: &entities}
	for _, h := range p.regions {
		for _, g := range h.owned {
			s := protocol.ShardLoad{Type: h.conf.Type, Shard: g.Shard, Entities: w.rng.Uint32N(20), Rate: w.rng.Uint32N(1000)}
			entities += uint64(s.Entities)
			load.Shards = append(load.Shards, s)
		}
	}
	p.stepSession(region.LoadMeasured{Load: load})
	p.after(time.Second, p.measureLoad)
}

func (h *host) tick() {
	h.step(region.Ticked{})
	h.p.after(48*time.Millisecond, h.tick)
}

// receive takes a message from the network.
func (p *process) receive(from *process, c class, m protocol.Message) {
	if c == classControl {
		p.control(from.self, m)
		return
	}
	switch m := m.(type) {
	case *protocol.Deliver:
		p.w.observe(Came{Global: p.w.now, Command: m.Command, Member: p.self})
		if h := p.host(m.Type); h != nil {
			h.step(region.Arrived{From: from.self, Deliver: m})
		}
	case *protocol.Reply:
		p.client.replied(m)
	case *protocol.SenderMoved:
		if h := p.host(m.Type); h != nil {
			h.step(region.SenderMovedArrived{From: from.self, Message: *m})
		}
	case *protocol.SenderDone:
		if h := p.host(m.Type); h != nil {
			h.step(region.SenderDoneArrived{From: from.self, Message: *m})
		}
	}
}

// control takes a control message of an authenticated peer, this process included.
func (p *process) control(from sharding.Member, m protocol.Message) {
	if d, ok := m.(protocol.Directive); ok {
		sender := p.w.member(from)
		p.stepSession(region.DirectiveReceived{From: from, Coordinator: sender.node.server, Message: d})
		return
	}
	if p.machine != nil {
		p.stepMachine(coordinator.Received{From: from, Message: m})
	}
}

// sendControl puts a control message on the way; to itself a process does not need the network.
func (p *process) sendControl(to sharding.Member, m protocol.Message) {
	if to == p.self {
		self := p.self
		m = p.w.overWire(m)
		p.later(200*time.Microsecond, func() { p.control(self, m) })
		return
	}
	if q := p.w.member(to); q != nil {
		p.w.net.send(p, q, classControl, m)
	}
}

func (p *process) host(t sharding.TypeName) *host {
	for _, h := range p.regions {
		if h.conf.Type == t {
			return h
		}
	}
	return nil
}

func (p *process) eachHost(ev func() region.Event) {
	for _, h := range p.regions {
		h.step(ev())
	}
}

func (p *process) peerClosed(m sharding.Member) {
	p.w.logf("net", p, "stream from %v closed", m)
	p.eachHost(func() region.Event { return region.PeerClosed{Peer: m} })
}

func (p *process) peerDown(m sharding.Member) {
	p.w.logf("net", p, "no stream to %v", m)
	p.eachHost(func() region.Event { return region.PeerDown{Peer: m} })
}

func (p *process) peerUp(m sharding.Member) {
	p.w.logf("net", p, "stream to %v again", m)
	p.eachHost(func() region.Event { return region.PeerUp{Peer: m} })
}

func (p *process) leaderHinted(m sharding.Member, term uint64) {
	p.later(3*time.Millisecond, func() { p.stepSession(region.LeaderHinted{Leader: m, Term: term}) })
}

// stepSession feeds the session and does what it asks.
func (p *process) stepSession(ev region.Event) {
	p.sessionLane.post(func() {
		w := p.w
		w.steps++
		commands := p.session.Step(p.now(), ev)
		w.logStep("session", p, ev, len(commands))
		if d, ok := ev.(region.DirectiveReceived); ok {
			w.judged(p, d, commands)
		}
		for _, c := range commands {
			w.logCommand("session", p, c)
			p.sessionCommand(c)
		}
	})
}

func (p *process) sessionCommand(c region.Command) {
	switch c := c.(type) {
	case region.SendLeader:
		p.sendControl(c.To, c.Message)
	case region.ToRegion:
		for _, h := range p.regions {
			if c.Type == "" || c.Type == h.conf.Type {
				h.step(c.Event)
			}
		}
	case region.MapAdvanced:
		p.w.observe(Advanced{Member: p.self, Revision: c.Revision})
	case region.LeaderChanged:
		p.following = c.Leader
	case region.Registered:
		p.node.cluster = c.ClusterID
	case region.Drained:
		p.w.logf("life", p, "drained")
		p.w.stopped(p)
	case region.RegionRefused:
		p.w.fail("setup", "%v: region %s refused: %s", p.self, c.Refusal.Type, c.Refusal.Detail)
	}
}

// step feeds a region and does what it asks.
func (h *host) step(ev region.Event) {
	p := h.p
	h.lane.post(func() {
		w := p.w
		w.steps++
		commands := h.region.Step(p.now(), ev)
		w.logStep(string(h.conf.Type), p, ev, len(commands))
		if o, ok := ev.(region.Ordered); ok {
			if d, ok := o.Directive.(*protocol.HandOff); ok {
				h.handOffTaken(d, commands)
			}
		}
		for _, c := range commands {
			w.logCommand(string(h.conf.Type), p, c)
			h.command(c)
		}
		h.bounds()
	})
}

func (h *host) command(c region.Command) {
	p := h.p
	switch c := c.(type) {
	case *region.Transmit:
		h.transmit(c)
	case *region.DeliverLocal:
		h.deliver(c)
	case region.StartLocal:
		h.start(c.Shard, c.Epoch)
	case region.ExtendLocal:
		h.extend(c)
	case region.SuspendLocal:
		h.suspend(c)
	case region.StopLocal:
		h.stop(c.Shard, c.Epoch)
	case region.KillLocal:
		h.kill(c.Shard, c.Epoch)
	case region.ReplyLocal:
		r := c.Reply
		p.w.effect(p, p.self, &r)
		p.client.replied(&r)
	case region.DropClaim:
		if q := p.w.member(c.Sender); p.w.honest() && q != nil && q.alive { // a node that has come since need not know one that is dead
			p.w.fail("I11", "%v does not know the sender %v, of which %v speaks", p.self, c.Sender, c.From)
		}
	case region.DeadLetter:
		if q := p.w.member(c.Deliver.Sender); c.Reason == region.DeadUnknownSender && p.w.honest() && q != nil && q.alive {
			p.w.fail("I11", "%v does not know the sender %v of a message", p.self, c.Deliver.Sender)
		}
		p.w.observe(DeadLettered{Global: p.w.now, Member: p.self, Command: c.Deliver.Command, Reason: c.Reason})
	case region.ToCoordinator:
		if !p.following.IsZero() {
			p.sendControl(p.following, c.Message)
		}
	case region.RenewNow:
		p.stepSession(region.RenewRequested{})
	case region.OwnedChanged:
		h.owned = append(h.owned[:0:0], c.Shards...)
		p.reportOwned()
	}
}

func (p *process) reportOwned() {
	var all []protocol.TypeShards
	for _, h := range p.regions {
		if len(h.owned) > 0 {
			all = append(all, protocol.TypeShards{Type: h.conf.Type, Shards: h.owned})
		}
	}
	p.stepSession(region.OwnedReported{Owned: all})
}

// transmit sends a data frame.
func (h *host) transmit(c *region.Transmit) {
	p := h.p
	if r, ok := c.Message.(*protocol.Reply); ok {
		p.w.effect(p, c.To, r)
	}
	if c.To == p.self {
		p.w.fail("shell", "%v transmits %T to itself", p.self, c.Message)
		return
	}
	q := p.w.member(c.To)
	if q == nil {
		return
	}
	d, isDeliver := c.Message.(*protocol.Deliver)
	sent := p.w.net.send(p, q, classData, c.Message)
	switch {
	case isDeliver && sent:
		p.w.observe(Carried{Global: p.w.now, Command: d.Command, From: p.self, To: c.To})
	case isDeliver:
		p.refuse(d, reasonNoStream)
	}
}

// refuse ends a message that surely has not begun, as the shell does.
func (p *process) refuse(d *protocol.Deliver, why string) {
	if d.Mode == protocol.Tell {
		p.w.observe(DeadLettered{Global: p.w.now, Member: p.self, Command: d.Command, Reason: why})
		return
	}
	r := &protocol.Reply{Ask: d.Ask, Status: protocol.StatusUnavailable, Payload: []byte(why)}
	if d.Sender == p.self {
		p.client.replied(r)
	} else if q := p.w.member(d.Sender); q != nil {
		p.w.net.send(p, q, classData, r)
	}
}

// stepMachine feeds the coordinator and does what it asks.
func (p *process) stepMachine(ev coordinator.Event) {
	p.machineLane.post(func() { p.runMachine(ev) })
}

func (p *process) runMachine(ev coordinator.Event) {
	w := p.w
	w.steps++
	switch ev := ev.(type) {
	case coordinator.Elected:
		p.leads = ev.Term
	case coordinator.Received:
		if _, ok := ev.Message.(*protocol.Register); ok {
			w.observe(RegisterReceived{Leader: p.self, Member: ev.From})
		}
	}
	commands := p.machine.Step(p.now(), ev)
	w.logStep("coordinator", p, ev, len(commands))
	for _, c := range commands {
		w.logCommand("coordinator", p, c)
		p.machineCommand(c)
	}
}

func (p *process) machineCommand(c coordinator.Command) {
	w := p.w
	act := Acted{Global: w.now, Member: p.self, At: p.now(), Leads: p.leads}
	switch c := c.(type) {
	case coordinator.Propose:
		act.What, act.Entry = "propose", c.Entry
		d := decision(c.Entry)
		act.Ready = d == nil || d.Digest == [32]byte{} || p.ready[d.Digest]
		w.observe(act)
		p.raft.propose(c.Entry)
	case coordinator.Barrier:
		p.raft.barrier(c.Term)
	case coordinator.Send:
		act.What = "send"
		if d, ok := c.Message.(protocol.Directive); ok {
			act.Term = d.DirectiveTerm()
		}
		w.observe(act)
		w.remember(p, c)
		p.sendControl(c.To, c.Message)
	case coordinator.Broadcast:
		act.What = "broadcast"
		w.observe(act)
		for _, q := range w.procs {
			if s, known := p.seen[q.self]; known && s == coordinator.MemberUp {
				p.sendControl(q.self, c.Message)
			}
		}
	case coordinator.AskStrategy:
		act.What = "ask"
		w.observe(act)
		w.askStrategy(p, c)
	case coordinator.PrepareStrategy:
		want := p.wanted[c.Type]
		want.strategy = c.Spec.Digest
		p.want(c.Type, want)
	case coordinator.PrepareShadow:
		want := p.wanted[c.Type]
		want.shadow = c.Spec.Digest
		p.want(c.Type, want)
	case coordinator.Answer:
		w.answered(c)
	}
}
