package region

import (
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

const (
	defaultMaxMessages  = 100_000
	defaultMaxBytes     = 64 << 20
	defaultAskHomeEvery = 500 * time.Millisecond
	defaultHoldFor      = 5 * time.Second
	forgetAfter         = time.Minute // what is known of a member that is gone, and of former ways
)

// Region is one type on one node: a sender of this node's messages, the owner of some shards, and a former owner of others. One
// goroutine owns it. Errors and limits come out as commands; no input makes it panic.
type Region struct {
	cfg    Config
	now    sharding.Instant
	out    []Command
	shards []shard

	coveredTo uint64           // map index up to which grants are covered
	until     sharding.Instant // … until then
	lapsed    bool             // the lease has run out, and the started shards are suspended
	// extendDue: the started shards are to be told that the lease has been extended since extendedAt.
	extendDue  bool
	extendedAt sharding.Instant
	briefed    []sharding.ShardID // shards with a StartShard that wait for the lease to cover them

	members   map[sharding.Member]struct{}         // of the map
	strangers map[sharding.Member]sharding.Instant // senders that the map does not have, and since when they are kept
	strange   int                                  // their entries in all shards
	brought   map[sharding.Member]int              // … by the peer that spoke first of them
	spans     int                                  // settled ones of all senders
	forgetAt  sharding.Instant

	down map[sharding.Member]bool
	gone map[sharding.Member]sharding.Instant
	back map[sharding.Member]sharding.Instant // members that were gone and came back into the map, without a stream to them so far
	// closed: members whose data stream to here ended and that have not been heard since. An owner that leaves tells the next one, which
	// would wait for what they had sent.
	closed map[sharding.Member]sharding.Instant

	count, bytes int // of all buffers: unsent, arrived, ahead, held, effects
	aheadCount   int // … of them, ahead
	aheadBytes   int
	timers       map[sharding.ShardID]struct{} // shards that a Ticked may have work for
	looks        looks                         // … and when
	asking       []sharding.ShardID            // homes to ask for when the step ends
	confirmed    []protocol.ShardEpoch         // shards to tell of as started when the step ends
	stops        []protocol.ShardEpoch         // … as stopped, or a little later where all are stopping
	stopsAt      sharding.Instant              // when that was last told
	renewNow     bool                          // when the step ends
	started      int                           // shards that have been started and not ended
	owns         int                           // shards of which this node is the owner, as far as it knows
	ownedChanged bool                          // since OwnedChanged
	ownedAt      sharding.Instant              // when that was last told
	ending       bool                          // RegionStopped
	endedAt      sharding.Instant              // when Stopping was last sent; 0: not yet
	stats        Stats
}

// Stats counts what a region did that no command shows.
type Stats struct {
	Late      uint64 // frames dropped because their number was not above the last one begun
	Held      uint64 // messages that had to wait for forwarded ones
	HoldsCut  uint64 // holds that ended by HoldFor
	Effects   uint64 // effects dropped because their epoch was superseded
	Corrected uint64 // last numbers that another peer had overstated, until the sender itself showed it
	Unsettled uint64 // numbers that will not come, and for which there was no room to note it
}

// stage is what this node is to a shard.
type stage uint8

const (
	idle     stage = iota // not the owner; forwards what arrives
	granted               // owner by the map; waits for StartShard or the lease
	serving               // started
	stopping              // its entities are ending, what arrives is buffered
	stopped               // ended or killed; waits to see the new owner
)

// way is the present way of this node's messages: to the member it takes for the owner.
type way struct {
	dest  sharding.Member
	epoch sharding.Epoch
	first uint64 // first number on this way; none was sent while it is above shard.seq
	floor uint64 // up to here numbers went to owners of which this one knows nothing; 0: none
	lost  span   // numbers that went to a former owner to whom there is no stream any more, so that it can't be told; to 0: none
	told  bool   // dest has been told of floor and lost
}

type shard struct {
	home protocol.ShardRecord // newest that is known

	// as a sender
	seq uint64 // last number given
	way way
	// remote: nothing stands between a submitted message and the stream to way.dest. local: … and an entity of this node.
	remote, local bool
	unsent        []unsent
	wanted        bool             // a ShardRef wants a home
	askedAt       sharding.Instant // GetShardHome was sent; 0: not
	lookAt        sharding.Instant // when a tick is to look at it; 0: it is not watched

	// as an owner
	stage     stage
	epoch     sharding.Epoch
	granted   uint64
	chain     sharding.Epoch // of the grant: see protocol.ShardRecord
	since     sharding.Epoch // first epoch of this unbroken ownership: a sender that believes in it or a later one sends straight to here
	dead      sharding.Epoch // up to here nothing is served ever again
	briefed   bool           // StartShard of epoch came
	started   bool           // StartLocal of epoch was given, and neither KillLocal nor the end of StopLocal
	suspended bool
	fenced    bool
	ended     bool             // ShardStopped came while replies wait for the lease
	handOff   bool             // ordered before StartShard came: complete as soon as it does
	parted    bool             // it had no owner since it was owned here
	hold      bool             // after a handoff: a sender's direct messages wait for the forwarded ones
	source    sharding.Member  // who forwards
	report    protocol.Message // HandOffComplete or ShardsStopped, repeated until the map shows another owner or epoch
	reported  sharding.Instant
	senders   map[sharding.Member]*sender
	self      *sender // senders[Self]
	effects   []effect

	// as owner or former owner
	ownedAt sharding.Instant // when epoch was granted here
	left    bool             // has left since the next owner was told what it needs not wait for
	arrived []waiting        // in order; served or forwarded from the front
	ahead   []waiting        // in order; what their senders believe this node has yet to hear of
	next    []successor
}

// New makes the region of a type. It knows no home yet.
func New(cfg Config) *Region {
	if cfg.MaxMessages <= 0 {
		cfg.MaxMessages = defaultMaxMessages
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.AskHomeEvery <= 0 {
		cfg.AskHomeEvery = defaultAskHomeEvery
	}
	if cfg.HoldFor <= 0 {
		cfg.HoldFor = defaultHoldFor
	}
	cfg.NumShards = max(cfg.NumShards, 1)
	r := &Region{
		cfg: cfg, shards: make([]shard, cfg.NumShards), down: map[sharding.Member]bool{}, gone: map[sharding.Member]sharding.Instant{}, back: map[sharding.Member]sharding.Instant{}, closed: map[sharding.Member]sharding.Instant{},
		timers: map[sharding.ShardID]struct{}{}, members: map[sharding.Member]struct{}{}, strangers: map[sharding.Member]sharding.Instant{}, brought: map[sharding.Member]int{},
	}
	for i := range r.shards {
		r.shards[i].home.Shard = sharding.ShardID(i)
	}
	return r
}

// Step takes one event and gives what follows from it, in order.
func (r *Region) Step(at sharding.Instant, ev Event) []Command {
	switch ev := ev.(type) {
	case Submitted:
		return r.Submit(at, &ev, nil)
	case Arrived:
		return r.Arrive(at, ev.From, ev.Deliver, nil)
	}
	r.begin(at, nil)
	switch ev := ev.(type) {
	case Ticked:
		r.tick()
	case SenderMovedArrived:
		r.heard(ev.From)
		m := &ev.Message
		r.claimArrived(ev.From, m.Shard, &protocol.SenderDone{Epoch: m.Epoch, Sender: ev.From, From: m.From, Seq: m.Seq}, m.Seq == 0)
	case SenderDoneArrived:
		r.heard(ev.From)
		m := ev.Message
		r.claimArrived(ev.From, m.Shard, &m, false)
	case PeerClosed:
		r.peerClosed(ev.Peer)
	case PeerDown:
		r.peerDown(ev.Peer)
	case PeerUp:
		r.peerUp(ev.Peer)
	case MemberCame:
		r.memberCame(ev.Member)
	case MemberGone:
		r.memberGone(ev.Member)
	case MapChanged:
		r.mapChanged(ev)
	case Covered:
		r.covered(ev)
	case Ordered:
		r.ordered(ev.Directive)
	case ShardStopped:
		r.shardStopped(ev)
	case EffectReady:
		r.effectReady(ev)
	case HomeWanted:
		if sh := r.shard(ev.Shard); sh != nil {
			sh.wanted = !sh.routable()
			r.wantHome(sh)
		}
	case LeaderReached:
		r.repeat()
	case RegionStopped:
		r.end()
	}
	return r.finish()
}

func (r *Region) begin(at sharding.Instant, out []Command) {
	r.out = out
	if at > r.now {
		r.now = at
	}
	if r.now >= r.until && !r.lapsed {
		r.lapse()
	}
}

// finish ends a step with what was gathered in it.
func (r *Region) finish() []Command {
	if len(r.stops) > 0 && (!r.ending || r.started == 0 || len(r.stops) >= shardsTogether || r.now >= r.stopsAt.Add(manyEvery)) {
		r.tellStops()
	}
	if len(r.asking) > 0 {
		slices.Sort(r.asking)
		r.asking = slices.Compact(r.asking)
		r.toCoordinator(&protocol.GetShardHome{Type: r.cfg.Type, Shards: r.asking})
		r.asking = nil
	}
	if len(r.confirmed) > 0 {
		r.toCoordinator(&protocol.ShardStarted{Type: r.cfg.Type, Shards: r.confirmed})
		r.confirmed = nil
	}
	if r.renewNow {
		r.renewNow = false
		r.emit(RenewNow{})
	}
	if r.ownedChanged && (r.cfg.NumShards <= fewShards || r.started == 0 || r.now >= r.ownedAt.Add(manyEvery)) {
		r.ownedChanged, r.ownedAt = false, r.now
		r.emit(OwnedChanged{Shards: r.Owned()})
	}
	out := r.out
	r.out = nil
	return out
}

// Where there are more than a few shards, what takes a look at all of them is done at most every manyEvery: they start and stop by the thousand, one a
// step.
const (
	fewShards = 256
	manyEvery = 50 * time.Millisecond
)

// shardsTogether is how many shards one message to the coordinator names.
const shardsTogether = 4096

// sayStopped tells that a generation is served no more, together with others of the step; while all are stopping, with others of the moment.
func (r *Region) sayStopped(id sharding.ShardID, epoch sharding.Epoch) {
	r.stops = append(r.stops, protocol.ShardEpoch{Shard: id, Epoch: epoch})
}

func (r *Region) tellStops() {
	for part := range slices.Chunk(r.stops, shardsTogether) {
		r.toCoordinator(&protocol.ShardsStopped{Type: r.cfg.Type, Shards: part})
	}
	r.stops, r.stopsAt = nil, r.now
}

// say tells what became of a shard that this node has stopped.
func (r *Region) say(sh *shard) {
	sh.reported = r.now
	if m, stopped := sh.report.(*protocol.ShardsStopped); stopped {
		r.stops = append(r.stops, m.Shards...)
		return
	}
	r.toCoordinator(sh.report)
}

// setStarted notes that the shard has been started, or has ended.
func (r *Region) setStarted(sh *shard, on bool) {
	sh.started, r.ownedChanged = on, true
	if on {
		r.started++
	} else {
		r.started--
	}
}

func (r *Region) emit(c Command) { r.out = append(r.out, c) }

func (r *Region) toCoordinator(m protocol.Message) { r.emit(ToCoordinator{Message: m}) }

func (r *Region) shard(id sharding.ShardID) *shard {
	if uint32(id) >= r.cfg.NumShards {
		return nil
	}
	return &r.shards[id]
}

// routable says whether messages may be put on the way to the owner that is known. A fenced owner serves no more; its shard gets a
// new home soon.
func (sh *shard) routable() bool {
	return !sh.home.Owner.IsZero() && (sh.home.State == protocol.Homed || sh.home.State == protocol.Moving)
}

// tick does what time alone brings: deadlines, holds that last too long, repeats, forgetting.
func (r *Region) tick() {
	for _, id := range r.dueLooks() {
		sh := &r.shards[id]
		r.expire(sh)
		r.cutHolds(sh)
		r.wantHome(sh)
		if sh.report != nil && r.now >= sh.reported.Add(r.cfg.AskHomeEvery) {
			r.say(sh)
		}
		if len(sh.unsent) == 0 && len(sh.arrived) == 0 && len(sh.ahead) == 0 && sh.report == nil && !sh.wanted && !sh.holds() {
			delete(r.timers, id)
		} else {
			r.watch(sh, r.nextLook(sh))
		}
	}
	if r.extendDue && !r.lapsed && r.now >= r.extendedAt.Add(manyEvery) {
		r.extend()
	}
	if r.endedAt > 0 && r.now >= r.endedAt.Add(r.cfg.AskHomeEvery) {
		r.ended()
	}
	r.forget()
}

// repeat asks and reports again at once: a coordinator can be reached.
func (r *Region) repeat() {
	for _, id := range slices.Sorted(maps.Keys(r.timers)) {
		sh := &r.shards[id]
		sh.askedAt = 0
		r.wantHome(sh)
		if sh.report != nil {
			r.say(sh)
		}
	}
	if r.endedAt > 0 {
		r.ended()
	}
}

// wantHome asks for the shard's home if something waits for it, at most every AskHomeEvery.
func (r *Region) wantHome(sh *shard) {
	if !r.waitsForHome(sh) {
		sh.askedAt = 0
		return
	}
	if sh.askedAt == 0 || r.now >= sh.askedAt.Add(r.cfg.AskHomeEvery) {
		if sh.askedAt > 0 || !r.ending || sh.stage != stopped { // where all stop here the map tells soon where they went
			r.asking = append(r.asking, sh.home.Shard)
		}
		sh.askedAt = max(r.now, 1)
	}
	r.watch(sh, sh.askedAt.Add(r.cfg.AskHomeEvery))
}

func (r *Region) waitsForHome(sh *shard) bool {
	if sh.stage == stopped { // the source asks where its shard went
		return true
	}
	if sh.wanted || len(sh.unsent) > 0 {
		if !sh.routable() {
			return true
		}
	}
	if sh.stage == idle && len(sh.ahead) > 0 {
		return true
	}
	if sh.stage == idle && len(sh.arrived) > 0 {
		_, ok := r.successor(sh, sh.arrived[0].class)
		return !ok
	}
	return false
}

// Owned gives the shards that have been started and not ended, by number.
func (r *Region) Owned() []protocol.ShardEpoch {
	var owned []protocol.ShardEpoch
	for i := range r.shards {
		if sh := &r.shards[i]; sh.started {
			owned = append(owned, protocol.ShardEpoch{Shard: sh.home.Shard, Epoch: sh.epoch})
		}
	}
	return owned
}

// Home gives the newest record of a shard that this region knows; Epoch 0: none.
func (r *Region) Home(id sharding.ShardID) protocol.ShardRecord {
	if sh := r.shard(id); sh != nil {
		return sh.home
	}
	return protocol.ShardRecord{Shard: id}
}

// Buffered gives the messages and bytes in the region's buffers; never above MaxMessages and MaxBytes (I14).
func (r *Region) Buffered() (messages, bytes int) { return r.count, r.bytes }

// Stats gives the counters.
func (r *Region) Stats() Stats { return r.stats }
