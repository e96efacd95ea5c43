package region

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

const (
	defaultRegisterEvery = 5 * time.Second
	retryEvery           = 500 * time.Millisecond // a Register, Stopping or resync that was not answered
	openRenewals         = 16                     // renewals kept that may still be acknowledged
)

// Session is a node's side of the talk with the coordinator. One goroutine owns it. The views (Leader, Map, …) are for that goroutine.
type Session struct {
	cfg SessionConfig
	now sharding.Instant
	out []Command

	term       uint64 // newest seen; only its leader may order
	leader     sharding.Member
	hinted     sharding.Member // by raft, for a term that has not spoken yet
	hintedTerm uint64
	cluster    sharding.Incarnation

	registered   bool             // RegisterAck of the present leader came
	registerAt   sharding.Instant // when to register next
	hintAgain    sharding.Instant // likewise, with a leader that raft hints at and that has not answered: it was not ready then
	resyncAt     sharding.Instant // not before this is a Register sent for a gap in the map
	ttl          time.Duration
	renewAt      sharding.Instant
	seq          uint64
	open         []renewal        // sent to the present leader in its term, oldest first
	unanswered   bool             // the newest of them is
	renewNext    bool             // a renewal was wanted meanwhile
	heard        sharding.Instant // see Authority
	leaseUntil   sharding.Instant // what the newest acknowledgement grants
	renewApplied uint64           // an ack named this map index, which was not applied: renew as soon as it is
	renewedAt    sharding.Instant // when the last renewal was sent
	load         *protocol.NodeLoad
	owned        []protocol.TypeShards

	shardMap

	stopping, draining, drained bool
	stopAt                      sharding.Instant
}

type renewal struct {
	seq    uint64
	sentAt sharding.Instant
}

// NewSession makes the session of a node that knows no leader yet.
func NewSession(cfg SessionConfig) *Session {
	if cfg.RegisterEvery <= 0 {
		cfg.RegisterEvery = defaultRegisterEvery
	}
	s := &Session{cfg: cfg, cluster: cfg.ClusterID}
	s.types = map[sharding.TypeName]*typeMap{}
	s.members = map[sharding.Member]protocol.MemberRecord{}
	return s
}

// Step takes one event and gives what follows from it, in order.
func (s *Session) Step(at sharding.Instant, ev Event) []Command {
	s.now = max(s.now, at)
	s.out = nil
	switch ev := ev.(type) {
	case Ticked:
		s.tick()
	case DirectiveReceived:
		s.directive(ev)
	case LeaderHinted:
		s.hint(ev)
	case MembershipChanged:
		s.register()
	case LoadMeasured:
		load := ev.Load
		s.load = &load
	case OwnedReported:
		s.owned = ev.Owned
		s.checkDrained()
	case RenewRequested:
		s.renewSoon()
	case StopRequested:
		s.stop(ev)
	}
	return s.out
}

func (s *Session) emit(c Command) { s.out = append(s.out, c) }

func (s *Session) tick() {
	if s.now >= s.registerAt || s.hintedTerm > s.term && s.now >= s.hintAgain {
		s.register()
	}
	if s.registered && s.now >= s.renewAt {
		s.renew()
	}
	// A renewal tells the leader that the map here has not come up to what it acknowledged: an update was lost.
	if s.renewNext || s.renewApplied > s.revision.Index && s.now >= s.renewedAt.Add(retryEvery/2) {
		s.renewSoon()
	}
	if _, here := s.members[s.cfg.Self]; s.stopping && s.now >= s.stopAt && (!s.drained || here && !s.draining) {
		s.sendStopping()
	}
	s.checkDrained()
}

// hint helps to register sooner; the leader is followed once it has spoken itself.
func (s *Session) hint(ev LeaderHinted) {
	if ev.Leader.IsZero() || ev.Term <= s.term || ev.Term < s.hintedTerm {
		return
	}
	if ev.Leader == s.hinted && ev.Term == s.hintedTerm {
		return
	}
	s.hinted, s.hintedTerm = ev.Leader, ev.Term
	s.register()
}

// register tells the leader, or the one that raft hints at, what this node is and serves. Whether it is answered is seen on the timer.
func (s *Session) register() {
	to := s.leader
	if s.hintedTerm > s.term {
		to = s.hinted
	}
	every := s.cfg.RegisterEvery
	if !s.registered {
		every = min(every, retryEvery)
	}
	s.registerAt = s.now.Add(every)
	s.hintAgain = s.now.Add(retryEvery)
	if to.IsZero() || s.stopping && !s.draining && s.drained {
		return
	}
	s.emit(SendLeader{To: to, Message: &protocol.Register{
		Info: s.cfg.Info, Regions: s.cfg.Regions, Owned: s.owned, Applied: s.revision, Supersedes: s.cfg.Supersedes,
	}})
}

// renewSoon sends a renewal for what has been granted, or leaves it to the answer of the one that is on its way: grants come by the thousand, and one
// renewal covers all. One that is not answered in retryEvery is taken for lost.
func (s *Session) renewSoon() {
	if s.renewNext = s.unanswered && s.now < s.open[len(s.open)-1].sentAt.Add(retryEvery); !s.renewNext {
		s.renew()
	}
}

// renew sends a renewal, at most one an instant.
func (s *Session) renew() {
	if !s.registered || len(s.open) > 0 && s.open[len(s.open)-1].sentAt == s.now {
		return
	}
	s.seq++
	if len(s.open) == openRenewals {
		s.open = append(s.open[:0:0], s.open[1:]...)
	}
	s.open = append(s.open, renewal{s.seq, s.now})
	s.unanswered, s.renewNext, s.renewedAt = true, false, s.now
	s.renewAt = s.now.Add(s.ttl / 3)
	s.emit(SendLeader{To: s.leader, Message: &protocol.Renew{Seq: s.seq, SentAt: s.now, Applied: s.revision, Load: s.load}})
	s.load = nil // the leader keeps it until the next measurement: it names every shard, and a renewal follows each grant
}

func (s *Session) drop(ev DirectiveReceived, why DropReason) {
	s.emit(DropDirective{From: ev.From, Kind: ev.Message.FrameKind(), Term: ev.Message.DirectiveTerm(), Reason: why})
}

// directive judges who ordered (spec 2.1, I4) before it looks at what. Nothing of a directive that does not count is kept.
func (s *Session) directive(ev DirectiveReceived) {
	term := ev.Message.DirectiveTerm()
	ack, isAck := ev.Message.(*protocol.RegisterAck)
	_, isLeading := ev.Message.(*protocol.Leading)
	switch {
	case !ev.Coordinator:
		s.drop(ev, DropNotCoordinator)
		return
	case isAck && !s.cluster.IsZero() && ack.ClusterID != s.cluster || isAck && ack.ClusterID.IsZero():
		s.drop(ev, DropCluster)
		return
	case term < s.term:
		s.drop(ev, DropStaleTerm)
		return
	case term == s.term && ev.From != s.leader:
		s.drop(ev, DropNotLeader)
		return
	}
	if term > s.term { // whatever it says: from now on nothing of an older term counts (I4)
		s.follow(ev.From, term)
		if !isAck {
			s.register()
		}
		if !isAck && !isLeading {
			s.drop(ev, DropNotLeader) // it has not said yet that it leads
			return
		}
	}
	switch m := ev.Message.(type) {
	case *protocol.Leading:
		if !s.registered && s.now >= s.registerAt {
			s.register()
		}
	case *protocol.RegisterAck:
		s.acknowledged(m)
	case *protocol.LeaseAck:
		s.leased(ev, m)
	case *protocol.ShardMapUpdate:
		s.mapUpdated(m)
	case *protocol.StartShard:
		if m.Shard.Owner != s.cfg.Self {
			s.drop(ev, DropIncarnation)
			return
		}
		s.pass(ev, m.Type) // its region asks for a renewal where the lease does not cover it yet: each one costs a look at every shard
	case *protocol.ShardHome:
		s.pass(ev, m.Type)
		if m.Shard.Owner == s.cfg.Self {
			s.renewSoon()
		}
	case *protocol.HandOff:
		s.pass(ev, m.Type)
	case *protocol.KillShard:
		s.pass(ev, m.Type)
	}
}

// pass hands a directive that counts to its region. Whether epoch and shard fit is for the region to see, which answers what does not.
func (s *Session) pass(ev DirectiveReceived, t sharding.TypeName) {
	s.emit(ToRegion{Type: t, Event: Ordered{Directive: ev.Message}})
}

// follow switches to the leader of a newer term. Renewals sent to the one before can no longer be acknowledged.
func (s *Session) follow(leader sharding.Member, term uint64) {
	s.leader, s.term, s.heard = leader, term, s.now
	s.registered, s.open = false, nil
	s.unanswered, s.renewNext = false, false
	s.renewApplied = 0
	s.emit(LeaderChanged{Leader: leader, Term: term})
}

func (s *Session) acknowledged(m *protocol.RegisterAck) {
	s.cluster = m.ClusterID
	first := !s.registered
	s.registered = true
	s.ttl = time.Duration(m.LeaseTTL) * time.Millisecond
	for _, r := range m.Refused {
		s.emit(RegionRefused{Refusal: r})
	}
	if !first {
		return
	}
	s.registerAt = s.now.Add(s.cfg.RegisterEvery)
	s.emit(Registered{ClusterID: m.ClusterID, Term: m.Term})
	s.emit(ToRegion{Event: LeaderReached{}})
	s.renew()
	if s.stopping {
		s.sendStopping()
	}
}

// leased extends the lease from when this node SENT the renewal. The acknowledgement must match an open renewal in both number and
// instant, so that a forged or repeated one extends nothing; and it counts only for a map that has been applied.
func (s *Session) leased(ev DirectiveReceived, m *protocol.LeaseAck) {
	at := -1
	for i, r := range s.open {
		if r.seq == m.Seq && r.sentAt == m.SentAt {
			at = i
		}
	}
	if at < 0 || m.TTL <= 0 || m.TTL > protocol.MaxLeaseTTL {
		s.drop(ev, DropRenewal)
		return
	}
	if at == len(s.open)-1 {
		s.unanswered = false
	}
	if s.revision.Less(m.Revision) {
		s.renewApplied = max(s.renewApplied, m.Revision.Index)
		return
	}
	s.open = append(s.open[:0:0], s.open[at+1:]...)
	s.ttl = time.Duration(m.TTL) * time.Millisecond
	s.heard = s.now
	s.leaseUntil = max(s.leaseUntil, m.SentAt.Add(s.ttl))
	s.emit(ToRegion{Event: Covered{Revision: m.Revision, Until: m.SentAt.Add(s.ttl)}})
	if s.renewNext {
		s.renewSoon()
	}
}

func (s *Session) stop(ev StopRequested) {
	s.stopping, s.draining, s.drained = true, ev.Drain, false
	if !ev.Drain {
		s.emit(ToRegion{Event: RegionStopped{}})
	}
	if ev.Drain {
		s.sendStopping()
	}
	s.checkDrained()
}

// sendStopping asks for a drain, or says that the node ends: the latter only once nothing is served, since new owners begin at once.
func (s *Session) sendStopping() {
	s.stopAt = s.now.Add(retryEvery)
	if s.leader.IsZero() || !s.draining && len(s.owned) > 0 {
		return
	}
	s.emit(SendLeader{To: s.leader, Message: &protocol.Stopping{Drain: s.draining}})
}

func (s *Session) checkDrained() {
	if !s.stopping || s.drained || len(s.owned) > 0 || s.draining && (s.revision.Index == 0 || s.mine > 0) {
		return
	}
	s.drained = true
	if !s.draining {
		s.sendStopping()
	}
	s.emit(Drained{})
}
