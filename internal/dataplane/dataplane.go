// Package dataplane is the shell round a node's session and regions: it owns the goroutines that step these machines, runs their commands,
// and gives the node AskEntity, TellEntity and the views of the shard map. It knows neither sockets nor raft: it sends through Sender.
//
// Goroutines, all ended by Close: one owns the Session; one a type owns its Region and drives its entity runtime; one ticks them all; one a
// subscription to the map, which its context ends too.
// Each is reached through its queue. Handlers of the transport wait when a region's queue is full, so that a slow node slows its senders down.
package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover/internal/entity"
	"github.com/droverhq/drover/internal/loglimit"
	"github.com/droverhq/drover/internal/queue"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// Sender sends frames to members, this node included. An error means that the frame surely does not arrive.
type Sender interface {
	SendControl(to sharding.Member, frame []byte) error
	SendData(to sharding.Member, frame []byte) error
}

// Type is one type as this node has it.
type Type struct {
	Info protocol.RegionInfo
	Kind sharding.Kind // of a type that this node hosts
}

// Config opens a Plane.
type Config struct {
	Session     region.SessionConfig // Regions is filled in from Types
	Types       []Type
	Sender      Sender
	Pool        *entity.Pool
	Now         func() sharding.Instant
	Logger      *slog.Logger
	MaxMessages int // buffer bounds, a region
	MaxBytes    int
	DeadLetters int // how many are kept; default 1 000
	// The hooks are called by the session's goroutine and must not block.
	OnRegistered func(cluster sharding.Incarnation, term uint64)
	OnRefused    func(protocol.Refusal)
	OnLeader     func(leader sharding.Member, term uint64)
	// Measure fills in what a node knows of its load besides entities and messages. It may be nil.
	Measure func(*protocol.NodeLoad)
}

// Plane is a node's data plane.
type Plane struct {
	cfg     Config
	session *region.Session
	inbox   *queue.Queue[sessionItem]
	asks    asks
	letters *DeadLetters
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	drained chan struct{} // closed by Drained
	ticking atomic.Bool   // see shell
	leader  atomic.Pointer[sharding.Member]
	// leaderless is the Instant from which on nobody leads, unless a leader is heard from before; 0: none has been yet.
	leaderless atomic.Int64
	hosts      atomic.Pointer[map[sharding.TypeName]bool] // types that some member hosts; nil before the first map
	counts     Counters
	watches    watches
	refused    loglimit.Limiter // what others sent and was dropped

	mu      sync.RWMutex
	regions map[sharding.TypeName]*shell
	owned   map[sharding.TypeName][]protocol.ShardEpoch
	closed  bool
}

// Counters count since the start. They are read while they grow.
type Counters struct {
	Dropped     [8]atomic.Uint64 // directives, by region.DropReason
	DeadLetters atomic.Uint64
	Panics      atomic.Uint64
	BadFrames   atomic.Uint64
	Claims      atomic.Uint64 // words about a sender's numbers that did not count, see region.DropClaim
	Asks, Tells atomic.Uint64
	SendErrors  atomic.Uint64
	Suspended   atomic.Uint64 // shards, each time that their lease lapsed or was taken
}

type sessionItem struct {
	event region.Event
	call  func()
}

const (
	tickEvery  = 20 * time.Millisecond
	loadEvery  = time.Second
	sweepEvery = 250 * time.Millisecond
	inboxLimit = 16 << 10 // items that wait for a region
	inboxBytes = 16 << 20 // likewise, of their payloads
	// DefaultAskTimeout bounds an Ask whose context has no deadline.
	DefaultAskTimeout = 30 * time.Second
)

// Open starts the machines. Nothing is sent before a leader is known.
func Open(cfg Config) *Plane {
	if cfg.DeadLetters <= 0 {
		cfg.DeadLetters = 1000
	}
	for _, t := range cfg.Types {
		cfg.Session.Regions = append(cfg.Session.Regions, t.Info)
	}
	p := &Plane{cfg: cfg, session: region.NewSession(cfg.Session), inbox: queue.New[sessionItem](0), letters: newDeadLetters(cfg.DeadLetters),
		drained: make(chan struct{}), regions: make(map[sharding.TypeName]*shell), owned: make(map[sharding.TypeName][]protocol.ShardEpoch), refused: loglimit.Limiter{Every: logEvery}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.asks.waiting = make(map[uint64]chan protocol.Reply)
	for _, t := range cfg.Types {
		p.addRegion(t)
	}
	p.wg.Add(2)
	go p.own()
	go p.tick()
	return p
}

// Close ends everything at once: entities without Stop, and what waits for a region unhandled. Drain comes before, for an orderly end.
func (p *Plane) Close() {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	for _, s := range p.regions {
		s.inbox.Close()
	}
	p.mu.Unlock()
	p.inbox.Close()
	p.wg.Wait()
	p.asks.failAll()
}

// own is the session's goroutine.
func (p *Plane) own() {
	defer p.wg.Done()
	for {
		items, ok := p.inbox.Take()
		if !ok {
			return
		}
		for _, it := range items {
			switch {
			case it.call != nil: // somebody may wait for it
				it.call()
			case p.ctx.Err() == nil:
				p.step(it.event)
			}
		}
		if a := p.session.Authority(); a.Heard > 0 {
			p.leaderless.Store(int64(a.Heard.Add(2 * a.Patience)))
		}
	}
}

func (p *Plane) step(ev region.Event) {
	for _, c := range p.session.Step(p.cfg.Now(), ev) {
		p.do(c)
	}
}

func (p *Plane) post(ev region.Event) { p.inbox.Put(sessionItem{event: ev}) }

func (p *Plane) do(c region.Command) {
	switch c := c.(type) {
	case region.SendLeader:
		p.sendControl(c.To, c.Message)
	case region.ToRegion:
		p.toRegions(c)
	case region.DropDirective:
		p.counts.Dropped[int(c.Reason)%len(p.counts.Dropped)].Add(1)
		level := slog.LevelWarn
		if c.Reason == region.DropRenewal { // an answer that comes after a change of leader, or twice: it extends nothing, and nobody meant harm
			level = slog.LevelDebug
		}
		if ok, hidden := p.refused.Pass(fmt.Sprint(c.From.Node, "|", c.Kind, "|", c.Reason)); ok { // who floods must not fill the disk
			p.cfg.Logger.Log(context.Background(), level, "an order did not count", "from", c.From, "kind", c.Kind, "term", c.Term, "reason", c.Reason, "repeated", hidden)
		}
	case region.MapAdvanced:
		p.mapAdvanced()
	case region.RegionRefused:
		p.cfg.OnRefused(c.Refusal)
	case region.LeaderChanged:
		p.leader.Store(&c.Leader)
		p.cfg.OnLeader(c.Leader, c.Term)
	case region.Registered:
		p.cfg.OnRegistered(c.ClusterID, c.Term)
	case region.Drained:
		select {
		case <-p.drained:
		default:
			close(p.drained)
		}
	default:
		panic(fmt.Sprintf("dataplane: the session has a command that nobody runs: %T", c))
	}
}

func (p *Plane) toRegions(c region.ToRegion) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if c.Type != "" {
		if s := p.regions[c.Type]; s != nil {
			s.inbox.Put(regionItem{event: c.Event})
		}
		return
	}
	for _, s := range p.regions {
		s.inbox.Put(regionItem{event: c.Event})
	}
}

func (p *Plane) sendControl(to sharding.Member, m protocol.Message) {
	frame, err := protocol.AppendFrame(nil, m)
	if err == nil {
		err = p.cfg.Sender.SendControl(to, frame)
	}
	if r, ok := m.(*protocol.Renew); ok && err != nil && r.Load != nil { // the lease must not lapse for want of room for a hint
		bare := *r
		bare.Load = nil
		p.sendControl(to, &bare)
		return
	}
	if err != nil { // whoever needs an answer repeats its message
		p.counts.SendErrors.Add(1)
		p.cfg.Logger.Debug("a control message could not be sent", "to", to, "kind", m.FrameKind(), "error", err)
	}
}

func (p *Plane) tick() {
	defer p.wg.Done()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	var loadAt, sweepAt sharding.Instant
	meter := newMeter()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
		}
		now := p.cfg.Now()
		if !p.ticking.Swap(true) { // likewise
			p.inbox.Put(sessionItem{call: func() { p.ticking.Store(false); p.step(region.Ticked{}) }})
		}
		sweep := now >= sweepAt
		if sweep {
			sweepAt = now.Add(sweepEvery)
		}
		for _, s := range p.shells() { // not under the lock: a sweep of many entities must not hold up those who look for their region
			s.tick()
			if sweep && s.runtime != nil {
				s.runtime.Sweep()
			}
		}
		if now >= loadAt {
			loadAt = now.Add(loadEvery)
			p.post(region.LoadMeasured{Load: p.load(meter, now)})
		}
	}
}

func (p *Plane) shells() []*shell {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := make([]*shell, 0, len(p.regions))
	for _, s := range p.regions {
		all = append(all, s)
	}
	return all
}

func (p *Plane) shell(t sharding.TypeName) *shell {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.regions[t]
}

// region gives the shell of a type: one that the node has, or a proxy for one that only others have. The error is ErrNoType for a type that
// the cluster does not know, and ErrUnavailable while this node cannot tell: it has no map yet, or it is stopping.
func (p *Plane) region(t sharding.TypeName) (*shell, error) {
	s := p.shell(t)
	if s != nil {
		return s, nil
	}
	var noMap bool
	running := p.call(func() {
		shards := p.session.NumShards(t)
		if shards == 0 {
			noMap = p.session.Revision() == sharding.Revision{}
			return
		}
		p.session.Follow(t)
		var first []region.Event
		for _, m := range p.session.Members() {
			first = append(first, region.MemberCame{Member: m.Member})
		}
		var records []protocol.ShardRecord
		for r := range p.session.Map(t) {
			records = append(records, r)
		}
		first = append(first, region.MapChanged{Revision: p.session.Revision(), Full: true, Records: records})
		// On this goroutine no change of the map slips between the copy and the region's first event.
		s = p.addRegion(Type{Info: protocol.RegionInfo{Type: t, NumShards: shards}}, first...)
	})
	switch {
	case s != nil:
		return s, nil
	case !running || p.ctx.Err() != nil:
		return nil, errStopping
	case noMap:
		return nil, fmt.Errorf("%w: this node has no shard map yet and cannot tell who hosts %s: send again once it has joined (/readyz)", sharding.ErrUnavailable, t)
	}
	return nil, fmt.Errorf("%w: %s", sharding.ErrNoType, t)
}

var errStopping = fmt.Errorf("%w: the node is stopping", sharding.ErrUnavailable)

// call runs f on the session's goroutine; it returns false, without having run it, once the plane is closed.
func (p *Plane) call(f func()) bool {
	done := make(chan struct{})
	if !p.inbox.Put(sessionItem{call: func() { f(); close(done) }}) {
		return false
	}
	<-done
	return true
}

// HandleControl takes a directive from an authenticated peer, and waits until it has been dealt with: so a peer that floods waits for the session, and
// never has more than one directive in memory or in the way of the leader's.
func (p *Plane) HandleControl(from sharding.Member, coordinator bool, m protocol.Directive) {
	p.call(func() { p.step(region.DirectiveReceived{From: from, Coordinator: coordinator, Message: m}) })
}

// HandleData takes a data frame from an authenticated peer. The frame is copied. It waits while the region is busy. Names in the decoded
// message alias the copy; those that the region keeps for long (type, sender) are replaced by ones that do not hold on to a whole frame.
func (p *Plane) HandleData(from sharding.Member, frame []byte) {
	m, err := protocol.DecodeFrame(append([]byte(nil), frame...))
	if err != nil {
		p.counts.BadFrames.Add(1)
		p.sayBad("a data frame does not decode: it is dropped", from, "error", err)
		return
	}
	switch m := m.(type) {
	case *protocol.Deliver:
		s, err := p.region(m.Type)
		if err != nil {
			status := protocol.StatusUnavailable
			if errors.Is(err, sharding.ErrNoType) {
				status = protocol.StatusNoType
			}
			p.refuse(m, status, err.Error())
			return
		}
		m.Type, m.Sender = s.typ, lasting(m.Sender, from)
		if !s.inbox.PutWait(regionItem{from: from, deliver: m}, len(m.Payload)) {
			p.refuse(m, protocol.StatusUnavailable, errStopping.Error())
		}
	case *protocol.Reply:
		p.asks.end(*m)
	case *protocol.SenderMoved:
		if s := p.claimed(from, m.Type); s != nil {
			m.Type = s.typ
			s.inbox.PutWait(regionItem{event: region.SenderMovedArrived{From: from, Message: *m}}, 0)
		}
	case *protocol.SenderDone:
		if s := p.claimed(from, m.Type); s != nil {
			m.Type, m.Sender = s.typ, lasting(m.Sender, from)
			s.inbox.PutWait(regionItem{event: region.SenderDoneArrived{From: from, Message: *m}}, 0)
		}
	default:
		p.counts.BadFrames.Add(1)
		p.sayBad("a control message came over the data connection: it is dropped", from, "kind", m.FrameKind())
	}
}

// claimed gives the shell that a word about a sender's numbers is for. Without one there is nobody to be told: a region that this node makes
// later holds nothing back.
func (p *Plane) claimed(from sharding.Member, t sharding.TypeName) *shell {
	s := p.shell(t)
	if s == nil {
		p.counts.BadFrames.Add(1)
		p.sayBad("a data frame is about a type that this node has no region of: it is dropped", from, "type", strings.Clone(string(t)))
	}
	return s
}

func (p *Plane) sayBad(what string, from sharding.Member, key string, value any) {
	if ok, hidden := p.refused.Pass(what + string(from.Node)); ok {
		p.cfg.Logger.Warn(what, "from", from, key, value, "repeated", hidden)
	}
}

// lasting gives m with a name that holds on to no frame.
func lasting(m, from sharding.Member) sharding.Member {
	if m == from {
		return from
	}
	m.Node = sharding.NodeID(strings.Clone(string(m.Node)))
	return m
}

// refuse answers an Ask that will not be delivered, wherever its sender is; a Tell becomes a dead letter.
func (p *Plane) refuse(d *protocol.Deliver, status protocol.Status, why string) {
	if d.Mode == protocol.Tell {
		p.letter(d, why)
		return
	}
	p.reply(d.Sender, protocol.Reply{Ask: d.Ask, Status: status, Payload: []byte(why)})
}

func (p *Plane) reply(to sharding.Member, r protocol.Reply) {
	if to == p.cfg.Session.Self {
		if len(r.Payload) > protocol.MaxPayload { // as it would be from another node
			r = lost(r, fmt.Errorf("at most %d are legal", protocol.MaxPayload))
		}
		p.asks.end(r)
		return
	}
	frame, err := protocol.AppendFrame(nil, &r)
	if err == nil {
		err = p.cfg.Sender.SendData(to, frame)
	}
	if err != nil {
		p.replyLost(to, r, err)
	}
}

// replyLost says at least that there was an answer, for one that is too large to be sent. Where that cannot be sent either, the asker runs into
// its time-out: the outcome is unknown to it.
func (p *Plane) replyLost(to sharding.Member, r protocol.Reply, cause error) {
	p.counts.SendErrors.Add(1)
	instead := lost(r, cause)
	frame, err := protocol.AppendFrame(nil, &instead)
	if err == nil && r.Status == protocol.StatusOK {
		err = p.cfg.Sender.SendData(to, frame)
	}
	p.cfg.Logger.Debug("a reply could not be sent", "to", to, "bytes", len(r.Payload), "error", cause, "told", err == nil && r.Status == protocol.StatusOK)
}

// lost is what an asker gets in the place of an answer that cannot be sent.
func lost(r protocol.Reply, cause error) protocol.Reply {
	why := fmt.Sprintf("the entity has handled the message, but its answer of %d bytes could not be sent: %v", len(r.Payload), cause)
	return protocol.Reply{Ask: r.Ask, Status: protocol.StatusFailed, Payload: []byte(why)}
}

func (p *Plane) letter(d *protocol.Deliver, why string) {
	p.counts.DeadLetters.Add(1)
	if p.letters.add(d, why) {
		p.cfg.Logger.Warn("a message could not be delivered", "type", d.Type, "shard", d.Shard, "entity", d.Entity, "reason", why)
	}
}

// toAll hands an event to every region.
func (p *Plane) toAll(ev region.Event) { p.toRegions(region.ToRegion{Event: ev}) }

// PeerClosed: the data stream from a peer has ended. PeerDown, PeerUp: so has, or stands, the one to it.
func (p *Plane) PeerClosed(m sharding.Member) { p.toAll(region.PeerClosed{Peer: m}) }
func (p *Plane) PeerDown(m sharding.Member)   { p.toAll(region.PeerDown{Peer: m}) }
func (p *Plane) PeerUp(m sharding.Member)     { p.toAll(region.PeerUp{Peer: m}) }

// MembershipChanged makes the session register again. LeaderHinted says what raft knows.
func (p *Plane) MembershipChanged() { p.post(region.MembershipChanged{}) }
func (p *Plane) LeaderHinted(m sharding.Member, term uint64) {
	p.post(region.LeaderHinted{Leader: m, Term: term})
}

// Drain hands off every shard and ends the regions, bounded by ctx; with handOff false they stop where they are. Afterwards the node only
// routes. A drain with handoff that was given up may be followed by one without.
func (p *Plane) Drain(ctx context.Context, handOff bool) error {
	p.post(region.StopRequested{Drain: handOff})
	select {
	case <-p.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain did not end in time: %w", context.Cause(ctx))
	case <-p.ctx.Done():
		return errStopping
	}
}

// Counters gives the counters.
func (p *Plane) Counters() *Counters { return &p.counts }

// DeadLetters gives the ring of dead letters.
func (p *Plane) DeadLetters() *DeadLetters { return p.letters }
