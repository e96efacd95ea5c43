package coordinator

import (
	"fmt"
	"time"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Machine is the coordinator of one raft server: the replicated State, and what a leader needs beside it. One goroutine owns it.
type Machine struct {
	cfg   Config
	state *State
	seed  uint64

	at   sharding.Instant
	wall int64
	cmds []Command

	elected bool // raft says that this server leads, in term
	active  bool // and the barrier has passed: it may act (I5)
	term    uint64
	callAt  sharding.Instant // when to call those again that Serf sees up and that have not registered
	awake   sharding.Instant // after a stall of this process silence counts from here: renewals may wait to be read
	floor   sharding.Instant // leases that earlier leaders acknowledged have lapsed after this (I7)

	seen map[sharding.Member]sight // Serf's view; kept without leadership too

	// What follows is the leader's own and is made anew with each term.
	peers    map[sharding.Member]*peer
	runs     map[sharding.TypeName]*run
	starts   []*starts          // by slot
	pending  map[uint64]pending // by command number
	commands uint64             // last command number
	asks     uint64             // last ask number
	granting bool               // one GrantLeases in flight
	hinted   map[sharding.Member]sharding.Instant
	joined   bool              // look at candidates again
	changed  bool              // registrations or drains have changed: whatever the look shows
	live     []sharding.Member // at the last look
}

// sight is what Serf says of a member.
type sight struct {
	status MemberStatus
	coord  pluginapi.Coord
}

// pending is an entry on its way through the log. done is called once, with what it did or with CodeUnavailable.
type pending struct {
	done func(Result)
}

// stalled is how long without an event this process must have stood still: ticks come every 100 ms.
const stalled = 300 * time.Millisecond

// The time between repeats of a directive that has not been answered.
const repeatEvery = time.Second

// never is after all instants.
const never = sharding.Instant(1<<63 - 1)

// retryAfter is how long a type rests after an entry of it was not appended: while raft hands leadership over it refuses each at once.
const retryAfter = repeatEvery / 4

// New makes a machine with an empty state. Zero times take their defaults.
func New(cfg Config) *Machine {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.RebalanceInterval, 2*time.Second)
	def(&cfg.MoveCooldown, 2*time.Second)
	def(&cfg.Settle, time.Second)
	def(&cfg.HandOffTimeout, 10*time.Second)
	if cfg.MapPart <= 0 {
		cfg.MapPart = 8192
	}
	if cfg.StartWindow <= 0 {
		cfg.StartWindow = 1024
	}
	m := &Machine{cfg: cfg, state: NewState(cfg.Off), seed: cfg.Seed, seen: map[sharding.Member]sight{}}
	m.reset()
	return m
}

// State is the replicated state: read only, and only until the next Step or Restore.
func (m *Machine) State() *State { return m.state }

// Leading says that this machine leads and its barrier has passed.
func (m *Machine) Leading() bool { return m.active }

// Term is the one that this machine leads, or led last.
func (m *Machine) Term() uint64 { return m.term }

// reset forgets all that belongs to one term of leadership.
func (m *Machine) reset() {
	m.elected, m.active, m.granting, m.joined = false, false, false, false
	m.changed, m.live = true, nil
	m.peers = map[sharding.Member]*peer{}
	m.runs = map[sharding.TypeName]*run{}
	m.pending = map[uint64]pending{}
	m.starts = nil
	m.hinted = map[sharding.Member]sharding.Instant{}
}

// hint tells a member who leads, at most once a second: one whose registration is refused would else be told for ever.
func (m *Machine) hint(who sharding.Member) {
	if last, ok := m.hinted[who]; ok && m.at < last.Add(repeatEvery) {
		return
	}
	if len(m.hinted) >= maxGone {
		clear(m.hinted)
	}
	m.hinted[who] = m.at
	m.send(who, &protocol.Leading{Term: m.term})
}

// Step takes one event at a time and returns what is to be done, in order. at never goes back; an earlier one counts as the last.
func (m *Machine) Step(at sharding.Instant, ev Event) []Command {
	if at.Sub(m.at) > stalled {
		m.awake = at.Add(m.ttl() / 2)
	}
	m.at = max(m.at, at)
	m.cmds = nil
	if !m.elected && len(m.pending) > 0 { // see Restore
		m.fail(CodeNotLeader)
	}
	switch ev := ev.(type) {
	case Ticked:
		m.wall = ev.Wall
		m.tick()
	case Elected:
		m.fail(CodeNotLeader)
		m.reset()
		m.elected, m.term = true, ev.Term
		if m.cfg.Off.Barrier {
			m.lead()
		}
		m.do(Barrier{Term: ev.Term})
	case Deposed:
		m.fail(CodeNotLeader)
		m.reset()
	case BarrierDone:
		if m.elected && !m.active && ev.Term == m.term {
			m.lead()
		}
	case Committed:
		m.committed(ev)
	case ProposalFailed:
		m.finish(ev.Command, Result{Code: CodeUnavailable, Detail: ev.Reason})
	case Received:
		if m.active && m.state.created {
			m.received(ev.From, ev.Message)
		}
	case MemberSeen:
		m.sees(ev)
	case StrategyAnswered:
		m.answered(ev)
	case Requested:
		m.requested(ev)
	}
	if m.active && m.state.created {
		m.drive()
	}
	return m.cmds
}

func (m *Machine) do(c Command) { m.cmds = append(m.cmds, c) }

func (m *Machine) send(to sharding.Member, msg protocol.Message) {
	m.do(Send{To: to, Message: msg})
}

func (m *Machine) note(n Note) { m.do(n) }

// lead begins acting: everything committed before has been applied.
func (m *Machine) lead() {
	m.active = true
	m.floor, m.awake = m.at, m.at
	if !m.cfg.Off.LeaseMargin {
		// Where the TTL was raised and nothing granted since, members renew at the pace of the new one.
		ttl := max(m.state.longestTTL, m.state.settings.LeaseTTL)
		m.floor = m.at.Add(withMargin(time.Duration(ttl) * time.Millisecond))
	}
	for _, n := range m.state.members() {
		// Known to the log: it settled under an earlier leader, and may hold a lease until floor.
		m.peers[m.state.slots[n].member] = &peer{known: true, lapse: m.floor}
	}
	live := m.living()
	for _, t := range m.state.types {
		r := m.run(t)
		for i := range t.state {
			m.reconcile(r, t, uint32(i), true)
		}
		r.candidates = m.candidates(t, live)
		m.prepare(t)
		if t.strategy.shadow.on() {
			m.do(PrepareShadow{Type: t.name, Spec: t.strategy.shadow.spec})
		}
	}
	if m.state.created {
		m.do(Broadcast{Message: &protocol.Leading{Term: m.term}})
		for _, n := range m.state.members() { // whom Serf may not know as up yet: they have shards to keep (I16)
			m.send(m.state.slots[n].member, &protocol.Leading{Term: m.term})
		}
	}
}

// fail ends every request that waits for the log, in order.
func (m *Machine) fail(code string) {
	waiting := m.pending
	m.pending = map[uint64]pending{}
	for _, n := range sortedKeys(waiting) {
		waiting[n].done(Result{Code: code, Detail: "this server leads no more"})
	}
}

// propose appends an entry; done hears what became of it, unless leadership ends first and the work with it.
func (m *Machine) propose(e *protocol.Entry, done func(Result)) {
	m.commands++
	e.V, e.Term, e.Now = protocol.Version, m.term, m.wall
	e.Command = protocol.Command{Client: m.cfg.Self.Incarnation, Seq: m.commands}
	m.pending[m.commands] = pending{done: func(r Result) {
		if r.Code != "" && r.Code != CodeNotLeader {
			m.note(Note{Kind: NoteEntryRefused, Level: Warn, Text: fmt.Sprintf("%s: %s (%s)", e.Kind, r.Detail, r.Code)})
		}
		done(r)
	}}
	m.do(Propose{Entry: e})
}

// proposeFor is propose for a type's work, which goes on after a while where the entry was not appended.
func (m *Machine) proposeFor(r *run, e *protocol.Entry, done func(Result)) {
	m.propose(e, func(res Result) {
		if res.Code == CodeUnavailable {
			r.retryAt = m.at.Add(retryAfter)
		}
		done(res)
	})
}

func (m *Machine) finish(c protocol.Command, r Result) {
	if c.Client != m.cfg.Self.Incarnation {
		return
	}
	if p, ok := m.pending[c.Seq]; ok {
		delete(m.pending, c.Seq)
		p.done(r)
	}
}

// committed applies an entry, on leader and follower alike; a leader then follows up what changed.
func (m *Machine) committed(ev Committed) {
	if m.elected && ev.Term > m.term {
		m.fail(CodeNotLeader) // a later leader's entry: this one has been deposed, whether raft has told it yet or not
		m.reset()
	}
	r := m.state.Apply(ev.Index, ev.Term, ev.Entry)
	if r.Strategy != "" {
		m.prepare(m.state.typeAt(r.Strategy))
	}
	if r.Shadow != "" {
		m.do(PrepareShadow{Type: r.Shadow, Spec: m.state.typeAt(r.Shadow).strategy.shadow.spec})
	}
	if m.active {
		m.joined, m.changed = m.joined || r.Members, m.changed || r.Members
		if r.Members {
			m.syncPeers()
			for _, t := range m.state.types {
				m.run(t).look = true
			}
		}
		if ev.Entry.Kind == protocol.KindPinShard && r.Code == "" {
			m.run(m.state.typeAt(ev.Entry.PinShard.Type)).look = true
		}
		for _, ts := range r.Touched {
			t := m.state.typeAt(ts.Type)
			m.reconcile(m.run(t), t, uint32(ts.Shard), false)
		}
		if ev.Entry.Kind == protocol.KindCreateCluster && r.Code == "" {
			m.do(Broadcast{Message: &protocol.Leading{Term: m.term}})
		}
		if r.Code == "" {
			m.tell(ev.Entry, r)
		}
	}
	m.finish(ev.Entry.Command, r)
}

// tell makes the notes of an entry that counted.
func (m *Machine) tell(e *protocol.Entry, r Result) {
	switch e.Kind {
	case protocol.KindRegister:
		m.note(Note{Kind: NoteMemberRegistered, Node: e.Register.Member.Node, Text: nodeText(e.Register.Member) + " has registered"})
	case protocol.KindDeregister:
		d := e.Deregister
		if len(d.Types) == 0 {
			m.note(Note{Kind: NoteMemberGone, Node: d.Member.Node, Text: fmt.Sprintf("%s is gone: %s", nodeText(d.Member), because(d.Cause))})
		}
		if len(r.Touched) > 0 {
			m.note(Note{Kind: NoteShardsFreed, Node: d.Member.Node, Count: len(r.Touched),
				Text: fmt.Sprintf("%s of %s %s no home any more: %s", count(len(r.Touched), "shard"), nodeText(d.Member), has(len(r.Touched)), because(d.Cause))})
		}
	case protocol.KindAssignHomes:
		n := len(r.Touched)
		m.note(Note{Kind: NoteShardsHomed, Type: e.AssignHomes.Type, Count: n,
			Text: fmt.Sprintf("%s of %s %s got a home: %s", count(n, "shard"), e.AssignHomes.Type, has(n), because(e.AssignHomes.Decision.Cause))})
	case protocol.KindPlanMoves:
		for _, ts := range r.Touched {
			rec, _ := m.state.Shard(ts.Type, ts.Shard)
			m.note(Note{Kind: NoteHandOffStarted, Type: ts.Type, Shard: ts.Shard, Node: rec.Owner.Node,
				Text: fmt.Sprintf("the shard is handed off to %s: %s", nodeText(rec.Target), because(e.PlanMoves.Decision.Cause))})
		}
	case protocol.KindCompleteHandOff:
		c := e.CompleteHandOff
		if rec, _ := m.state.Shard(c.Type, c.Shard); rec.State == protocol.Homed {
			m.note(Note{Kind: NoteShardMoved, Type: c.Type, Shard: c.Shard, Node: rec.Owner.Node, Text: fmt.Sprintf("the shard has moved here from %s", nodeText(c.From))})
		}
	case protocol.KindFenceShards:
		for _, ts := range r.Touched {
			rec, _ := m.state.Shard(ts.Type, ts.Shard)
			n := Note{Kind: NoteShardFenced, Type: ts.Type, Shard: ts.Shard, Node: rec.Owner.Node, Text: fmt.Sprintf("the shard is taken out of the lease of %s: %s", nodeText(rec.Owner), because(e.FenceShards.Cause))}
			if e.FenceShards.Cause == protocol.CauseTimeout {
				n.Kind, n.Level, n.Text = NoteHandOffTimedOut, Warn, fmt.Sprintf("handoff timed out: the shard is taken out of the lease of %s", nodeText(rec.Owner))
			}
			m.note(n)
		}
	case protocol.KindReleaseShards:
		for _, ts := range r.Touched {
			m.note(Note{Kind: NoteShardReleased, Type: ts.Type, Shard: ts.Shard, Text: "the shard may get a new home: " + because(e.ReleaseShards.Cause)})
		}
	case protocol.KindSetStrategy:
		c := e.SetStrategy
		m.tellSet(c.Type, c.Cause)
		m.tellEnded(r, "it is the strategy in force now")
	case protocol.KindPromote:
		m.tellSet(e.Promote.Type, protocol.CausePromote)
		m.tellEnded(r, "it is the strategy in force now")
	case protocol.KindRollback:
		m.tellSet(e.Rollback.Type, protocol.CauseRollback)
		m.tellEnded(r, "it is the strategy in force now")
	case protocol.KindSetShadow:
		if c := e.SetShadow; c.Spec.Digest == [32]byte{} {
			m.tellEnded(r, "an operator wants it so")
		} else {
			v, _ := m.state.Strategy(c.Type)
			m.note(Note{Kind: NoteShadowSet, Type: c.Type, Text: fmt.Sprintf("%s runs beside the strategy of %s, %s, without effect", sourceText(c.Spec), c.Type, sourceText(v.Spec))})
		}
	case protocol.KindStrategyOutcome:
		if r.Strategy != "" {
			v, _ := m.state.Strategy(r.Strategy)
			m.note(Note{Kind: NoteStrategyReverted, Level: Warn, Type: r.Strategy, Text: fmt.Sprintf("the strategy of %s is %s again: %s had %s", r.Strategy, sourceText(v.Spec), sourceText(v.Failed), v.Failure)})
		}
	}
}

// received judges a control message by who sent it, never by what it says of its sender.
func (m *Machine) received(from sharding.Member, msg protocol.Message) {
	if r, ok := msg.(*protocol.Register); ok {
		m.register(from, r)
		return
	}
	if _, reg := m.state.registered(from); reg == nil {
		m.hint(from) // it is not known (any more): it should register
		return
	}
	switch msg := msg.(type) {
	case *protocol.Renew:
		m.renew(from, msg)
	case *protocol.Stopping:
		m.stopping(from, msg)
	case *protocol.GetShardHome:
		m.getShardHome(from, msg)
	case *protocol.HandOffComplete:
		m.handOffComplete(from, msg)
	case *protocol.HandOffRefused:
		m.handOffRefused(from, msg)
	case *protocol.ShardsStopped:
		m.shardsStopped(from, msg)
	case *protocol.ShardStarted:
		m.shardStarted(from, msg)
	}
}

// drive does whatever is due. It looks at members and at types, and at shards only where something is due for them.
func (m *Machine) drive() {
	if m.joined {
		m.joined = false
		m.watchCandidates()
	}
	m.publish()
	m.grant()
	for _, t := range m.state.types {
		r := m.run(t)
		if m.at < r.retryAt {
			continue
		}
		m.driveWork(r, t)
		m.driveHandovers(r, t)
		m.driveStrategy(r, t)
		m.driveHomes(r, t)
		m.driveOrders(r, t)
		m.drivePass(r, t)
	}
	m.driveStarts()
}

// tick is what depends on time alone and concerns members.
func (m *Machine) tick() {
	if !m.active || !m.state.created {
		return
	}
	m.dropLapsed()
	for _, n := range m.state.members() {
		who := m.state.slots[n].member
		if p := m.peers[who]; p != nil && !p.synced {
			m.hint(who) // Leading may have been lost
		}
	}
	if m.at >= m.callAt {
		m.callAt = m.at.Add(repeatEvery)
		m.callStrangers()
	}
	m.joined = true // settle times and lapses pass without an event
}

// random gives the next number of a splitmix64 sequence.
func (m *Machine) random() uint64 {
	m.seed += 0x9e3779b97f4a7c15
	return mix(m.seed)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
