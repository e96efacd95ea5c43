package node

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// absurd gives at least one message of every kind, with fields that no node in order would send. me sends them; other is a node that it is not.
func absurd(me, other sharding.Member) []protocol.Message {
	const most = math.MaxUint64
	nobody := sharding.Member{Node: sharding.NodeID(strings.Repeat("n", protocol.MaxName)), Incarnation: sharding.NewIncarnation()}
	rev := sharding.Revision{Term: most, Index: most}
	record := protocol.ShardRecord{Shard: math.MaxUint32, State: 255, Owner: me, Epoch: most, Granted: most, Target: nobody, Source: other, Chain: most}
	stolen := protocol.ShardRecord{Shard: 1, State: protocol.Homed, Owner: me, Epoch: 1 << 40, Granted: 1}
	every := make([]protocol.ShardEpoch, numShards)
	for i := range every {
		every[i] = protocol.ShardEpoch{Shard: sharding.ShardID(i), Epoch: 1}
	}
	id := strings.Repeat("\xff", sharding.MaxEntityID)
	deliver := func(change func(*protocol.Deliver)) protocol.Message {
		// Its shard is not that of its entity: whatever else is wrong, nothing of it may begin.
		d := &protocol.Deliver{Type: "ledger", Shard: (sharding.ShardOf(id, numShards) + 1) % numShards, Sender: me, Seq: 1, Entity: id, Payload: []byte("\x00junk")}
		change(d)
		return d
	}
	return []protocol.Message{
		&protocol.Register{Info: protocol.NodeInfo{Address: strings.Repeat("a", 1<<20)}, Owned: []protocol.TypeShards{{Type: "ledger", Shards: every}}},
		&protocol.Register{Info: protocol.NodeInfo{MinWire: 200, MaxWire: 201}, Supersedes: []sharding.Incarnation{other.Incarnation}, Applied: rev},
		&protocol.Renew{Seq: most, SentAt: math.MinInt64, Applied: rev, Load: &protocol.NodeLoad{Shards: make([]protocol.ShardLoad, 10_000)}},
		&protocol.Stopping{Types: []sharding.TypeName{"ledger", "", "nope"}},
		&protocol.Stopping{},
		&protocol.GetShardHome{Type: "ledger", Shards: []sharding.ShardID{1, 1, math.MaxUint32}},
		&protocol.GetShardHome{Type: "nope", Shards: make([]sharding.ShardID, 100_000)},
		&protocol.HandOffComplete{Type: "ledger", Shard: 1, Epoch: 1, Senders: []protocol.SenderSeq{{Sender: other, Seq: most}}},
		&protocol.HandOffComplete{Type: "ledger", Shard: math.MaxUint32, Epoch: most},
		&protocol.HandOffRefused{Type: "ledger", Shard: 1, Asked: most, Owner: me, Epoch: most},
		&protocol.ShardsStopped{Type: "ledger", Shards: every},
		&protocol.ShardStarted{Type: "ledger", Shards: append(every[:1:1], protocol.ShardEpoch{Shard: math.MaxUint32, Epoch: most})},
		&protocol.RegisterAck{Term: most, ClusterID: sharding.NewIncarnation(), Revision: rev, LeaseTTL: math.MinInt64, Refused: []protocol.Refusal{{Type: "ledger"}}},
		&protocol.LeaseAck{Term: most, Seq: 1, SentAt: math.MaxInt64, Revision: rev, TTL: math.MaxInt64},
		&protocol.ShardMapUpdate{Term: most, To: rev, Full: true, Part: math.MaxUint32, More: true, Gone: []sharding.Member{other},
			Types: []protocol.TypeDelta{{Type: "ledger", NumShards: math.MaxUint32, Shards: []protocol.ShardRecord{record, stolen}}}},
		&protocol.ShardHome{Term: most, Type: "ledger", Shard: stolen},
		&protocol.StartShard{Term: most, Type: "ledger", Shard: record, Handed: true, Senders: []protocol.SenderSeq{{Sender: nobody, Seq: most}}},
		&protocol.HandOff{Term: most, Type: "ledger", Shard: 1, Epoch: 1},
		&protocol.KillShard{Term: most, Type: "ledger", Shard: 1, Epoch: most},
		&protocol.Leading{Term: most},
		deliver(func(*protocol.Deliver) {}),
		deliver(func(d *protocol.Deliver) { d.Seq, d.Hops, d.Epoch = most, 255, most }),
		deliver(func(d *protocol.Deliver) { d.Shard = math.MaxUint32 }),
		deliver(func(d *protocol.Deliver) { d.Shard, d.Sender = sharding.ShardOf(id, numShards), other }), // in another's name
		deliver(func(d *protocol.Deliver) { d.Shard, d.Seq = sharding.ShardOf(id, numShards), 0 }),
		deliver(func(d *protocol.Deliver) { d.Type, d.Mode, d.Ask, d.Sender = "nope", protocol.Ask, 1, nobody }),
		deliver(func(d *protocol.Deliver) {
			d.Mode, d.Ask, d.Deadline, d.Held, d.Hops, d.Sender = protocol.Start, most, math.MaxInt64, math.MaxUint32, 255, nobody
		}),
		deliver(func(d *protocol.Deliver) { d.Entity = "" }),
		&protocol.Deliver{Type: "ledger", Shard: 1, Sender: me, Seq: most, Epoch: most, Entity: accountOn(1)},
		&protocol.Deliver{Type: "ledger", Shard: 1, Sender: other, Seq: most, Hops: 1, Epoch: 1, Entity: accountOn(1)},
		&protocol.Deliver{Type: "ledger", Shard: 1, Sender: other, Seq: most, Hops: 5, Epoch: most, Entity: accountOn(1)},
		deliver(func(d *protocol.Deliver) { d.Payload = make([]byte, 1<<20) }),
		&protocol.Reply{Ask: most, Status: protocol.StatusMoved, Home: &protocol.MovedTo{Type: "ledger", Shard: 1, Owner: me, Epoch: most}},
		&protocol.Reply{Ask: 1, Payload: make([]byte, 1<<20)},
		&protocol.SenderMoved{Type: "ledger", Shard: 1, Epoch: 1, From: 1, Seq: most},
		&protocol.SenderMoved{Type: "ledger", Shard: math.MaxUint32, Epoch: most, From: most, Seq: 1},
		&protocol.SenderMoved{Type: "nope"},
		&protocol.SenderDone{Type: "ledger", Shard: 1, Epoch: 1, Sender: nobody, From: 1, Seq: most},
		&protocol.SenderDone{Type: "ledger", Shard: 1, Sender: me},
		&protocol.SenderDone{Type: sharding.TypeName(strings.Repeat("t", protocol.MaxName)), Sender: other, From: most, Seq: 1},
	}
}

// hostileFrames are those messages, and what the wires and a bad build could make of them.
func hostileFrames(t *testing.T, me, other sharding.Member) (frames [][]byte) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := map[protocol.FrameKind]bool{}
	for _, m := range absurd(me, other) {
		b, err := protocol.AppendFrame(nil, m)
		require.NoError(t, err, "%T", m)
		kinds[m.FrameKind()] = true
		frames = append(frames, b, b[:len(b)/2], append(bytes.Clone(b), 0xff, 0))
		for range 12 {
			x := bytes.Clone(b)
			for range 1 + random.IntN(4) {
				x[random.IntN(min(len(x), 64))] = byte(random.Uint32())
			}
			frames = append(frames, x)
		}
	}
	for k := range 256 { // what no build knows, and what each is without a body
		kind := protocol.FrameKind(k)
		name := kind.String()
		unknown := strings.HasPrefix(name, "frame ") || name == "RememberedEntities" // which nothing sends yet
		require.Equal(t, !unknown, kinds[kind], "absurd has nothing of kind %s", kind)
		for _, body := range []string{"", "\xa0", "\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\xbb\xff\xff\xff\xff\xff\xff\xff\xff", "\xa1\x00\x9b\x00\x00\x00\x00\xff\xff\xff\xff", strings.Repeat("\x81", 500)} {
			frames = append(frames, append([]byte{protocol.Version, byte(k)}, body...))
		}
	}
	return append(frames, nil, []byte{0}, []byte{0, 1}, []byte{protocol.Version + 1, 64}, []byte{255, 255}, make([]byte, 1<<20))
}

// Spec 2.1, 5.2: whatever frames an authenticated peer sends, on either connection, before and after it has registered: nothing panics, what makes no sense
// is dropped and counted, memory stays bounded, and the others notice nothing.
func TestHostileFrames(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	b := f.start(f.config("b"))
	f.settled()
	before := map[sharding.ShardID]receipt{}
	for i := range sharding.ShardID(numShards) {
		before[i] = a.add(t, accountOn(i), 1)
	}
	leader := f.leader()
	_, term := b.data.Leader()
	voters, err := leader.plane.VoterIDs()
	require.NoError(t, err)
	s := f.stranger(a, b)
	me := s.SelfPeer().Member
	heapBefore := heapAlloc()

	send := func(to *member, class transport.Class, frame []byte) {
		if s.Send(to.self, class, frame) == nil {
			return
		}
		require.Eventually(t, func() bool {
			err := s.Send(to.self, class, frame)
			return err == nil || !errors.Is(err, transport.ErrBackPressure) && !errors.As(err, new(*transport.UnavailableError)) && assert.NoError(t, err)
		}, patience, poll)
	}
	for _, pass := range []string{"stranger", "member"} {
		t.Run(pass, func(t *testing.T) {
			if pass == "member" {
				frame, err := protocol.AppendFrame(nil, &protocol.Register{})
				require.NoError(t, err)
				send(leader, transport.Control, frame)
				require.Eventually(t, func() bool { return len(leader.data.Members()) == 3 }, patience, poll)
			}
			for _, to := range []*member{a, b} {
				var bad, orders, letters uint64
				counts := to.data.Counters()
				badBefore, ordersBefore, lettersBefore := counts.BadFrames.Load(), counts.Dropped[region.DropNotCoordinator].Load(), counts.DeadLetters.Load()
				for _, frame := range hostileFrames(t, me, b.self) {
					m, err := protocol.DecodeFrame(frame)
					_, isOrder := m.(protocol.Directive)
					if d, ok := m.(*protocol.Deliver); ok && d.Mode == protocol.Tell && d.Type == "ledger" && d.Entity != accountOn(1) {
						letters++
					}
					isData := err == nil && m.FrameKind() >= protocol.FrameDeliver
					for class, isBad := range map[transport.Class]bool{transport.Control: err != nil || isData, transport.Data: !isData} {
						if isBad {
							bad++
						}
						if class == transport.Control && isOrder {
							orders++
						}
						send(to, class, frame)
					}
				}
				assert.Eventually(t, func() bool {
					return counts.BadFrames.Load()-badBefore >= bad && counts.DeadLetters.Load()-lettersBefore >= letters
				}, patience, poll, "%s: %d of %d bad frames, %d of %d dead letters", to.self.Node, counts.BadFrames.Load()-badBefore, bad, counts.DeadLetters.Load()-lettersBefore, letters)
				assert.Eventually(t, func() bool { return counts.Dropped[region.DropNotCoordinator].Load()-ordersBefore == orders }, patience, poll)
				assert.Positive(t, bad)
				assert.Positive(t, orders)
				assert.Positive(t, letters)
			}
			for i, r := range before {
				now := b.add(t, accountOn(i), 1)
				assert.Equal(t, receipt{r.Node, r.Epoch, r.Total + 1}, now, "shard %d has moved, or lost or gained a message", i)
				before[i] = now
			}
		})
	}
	t.Run("calls", func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		for _, method := range []string{callModuleGet, callModulePut, callReady, callShardStats, callOperate, callStrategies, callSwap, callExplain, callElectorate, callShard, "", "nope"} {
			for _, body := range [][]byte{nil, {0xff}, {0xa0}, []byte("\xbb\xff\xff\xff\xff\xff\xff\xff\xff"), bytes.Repeat([]byte{0x81}, 1000), make([]byte, 1<<20), bytes.Repeat([]byte{0xff}, 32)} {
				for range 3 {
					answer, err := s.Call(t.Context(), leader.self, method, body)
					if err != nil {
						assert.ErrorAs(t, err, new(*transport.RemoteError), "%s", method)
					} else {
						assert.NoError(t, cbor.Unmarshal(answer, new(outcome)), "%s", method)
					}
					if body = bytes.Clone(body); len(body) > 0 {
						body[random.IntN(len(body))] ^= byte(1 << random.IntN(8))
					}
				}
			}
		}
	})

	for i, r := range before {
		assert.Equal(t, receipt{r.Node, r.Epoch, r.Total + 1}, a.add(t, accountOn(i), 1), "shard %d", i)
	}
	_, termNow := b.data.Leader()
	assert.Equal(t, term, termNow, "there was an election")
	now, err := leader.plane.VoterIDs()
	require.NoError(t, err)
	assert.Equal(t, voters, now)
	assert.Less(t, heapAlloc(), heapBefore+64<<20, "what was sent is kept")
}

func heapAlloc() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// keeper is a peer that reads nothing until it is let, and then keeps the map updates.
type keeper struct {
	deaf
	let   chan struct{}
	parts chan *protocol.ShardMapUpdate
}

func (k keeper) Frame(_ transport.Peer, class transport.Class, frame []byte) {
	<-k.let
	if m, err := protocol.DecodeFrame(frame); err == nil && class == transport.Control {
		if u, ok := m.(*protocol.ShardMapUpdate); ok {
			k.parts <- u
		}
	}
}

// Spec 2.1: nodes follow the map by a stream of deltas. A map that is larger than any queue reaches a node that reads slowly, whole and in order.
func TestMapLargerThanAQueue(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	k := keeper{let: make(chan struct{}), parts: make(chan *protocol.ShardMapUpdate, 1000)}
	s := f.strangerWith(k, a)
	require.NoError(t, s.Send(a.self, transport.Control, []byte("hello"))) // from now on its address is known
	require.Eventually(t, func() bool { return a.data.Counters().BadFrames.Load() == 1 }, patience, poll)

	to := s.SelfPeer().Member
	owner := sharding.Member{Node: sharding.NodeID(strings.Repeat("o", 120)), Incarnation: sharding.NewIncarnation()}
	const shards, part = 1 << 18, 8192
	u := &protocol.ShardMapUpdate{Term: 1, To: sharding.Revision{Index: 98}, Full: true, Types: []protocol.TypeDelta{{Type: "huge", NumShards: shards, Shards: make([]protocol.ShardRecord, shards)}}}
	for i := range u.Types[0].Shards {
		u.Types[0].Shards[i] = protocol.ShardRecord{Shard: sharding.ShardID(i), State: protocol.Homed, Owner: owner, Epoch: 1}
	}
	a.plane.View(func() {
		for _, p := range u.Parts(part) {
			a.do(coordinator.Send{To: to, Message: p})
		}
		a.do(coordinator.Send{To: to, Message: &protocol.ShardMapUpdate{Term: 1, To: sharding.Revision{Index: 99}}})
	})
	close(k.let)
	for n := range uint32(shards / part) {
		got := <-k.parts
		require.Equal(t, fmt.Sprint(98, n), fmt.Sprint(got.To.Index, got.Part))
		require.Equal(t, n+1 < shards/part, got.More)
		require.Len(t, got.Types[0].Shards, part)
	}
	assert.EqualValues(t, 99, (<-k.parts).To.Index)
}
