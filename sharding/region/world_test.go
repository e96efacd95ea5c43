package region

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

const worldShards = 3

func member(n string) sharding.Member {
	m := sharding.Member{Node: sharding.NodeID(n)}
	m.Incarnation[0] = n[0]
	return m
}

// tester is what a history needs of rapid.T, and of the hunt for a failure below.
type tester interface {
	Helper()
	Logf(string, ...any)
	Fatalf(string, ...any)
}

// world is three regions with a scripted coordinator, links that keep order and delay at will, and entities that answer when told to.
type world struct {
	t      tester
	draw   func(limit int) int // a number below limit
	now    sharding.Instant
	ttl    time.Duration
	nodes  []*wnode
	links  [3][3][]protocol.Message
	index  uint64
	homes  [worldShards]protocol.ShardRecord
	moving [worldShards]int // target of a handoff under way, -1: none
	faults bool
	lies   bool // somebody forges frames
	limit  int

	sent     []string // "a 0 17": node, shard, command: in order of submission
	begun    []string
	lastSeq  map[string]uint64
	begunCmd map[uint64]int
	ended    map[uint64][]protocol.Status
	asks     map[uint64]bool
	dead     map[uint64]string
	commands uint64
	stops    map[string]int
	aborted  map[string]bool   // generations that an abort has superseded
	killed   map[uint64]bool   // messages that were killed with them
	answered map[uint64]string // which generation has made the reply
}

type wnode struct {
	i       int
	self    sharding.Member
	r       *Region
	control []Event
	running map[sharding.ShardID]*wshard
	down    [3]bool
	until   sharding.Instant // of the lease
}

type wshard struct {
	epoch    sharding.Epoch
	queue    []*protocol.Deliver
	stopping bool
}

func newWorld(t tester, draw func(int) int, faults bool, limit int, off Mutations) *world {
	w := &world{
		t: t, draw: draw, now: 1, ttl: 80 * time.Millisecond, faults: faults, limit: limit, lastSeq: map[string]uint64{}, begunCmd: map[uint64]int{}, ended: map[uint64][]protocol.Status{},
		asks: map[uint64]bool{}, dead: map[uint64]string{}, stops: map[string]int{},
		aborted: map[string]bool{}, killed: map[uint64]bool{}, answered: map[uint64]string{},
	}
	for i := range 3 {
		n := &wnode{i: i, self: member(string(rune('a' + i))), running: map[sharding.ShardID]*wshard{}}
		n.r = New(Config{Self: n.self, Type: "t", NumShards: worldShards, Hosts: true, MaxMessages: limit, Off: off})
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		for _, m := range w.nodes {
			n.r.Step(w.now, MemberCame{m.self})
		}
	}
	for s := range w.homes {
		w.homes[s].Shard = sharding.ShardID(s)
		w.moving[s] = -1
	}
	return w
}

var worldEntities = func() (ids [worldShards]string) {
	for i := 0; slices.Contains(ids[:], ""); i++ {
		id := fmt.Sprint("e", i)
		if s := sharding.ShardOf(id, worldShards); ids[s] == "" {
			ids[s] = id
		}
	}
	return ids
}()

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("at %d: %s", w.now, fmt.Sprintf(format, args...))
}

func (w *world) step(n *wnode, ev Event) {
	w.t.Logf("%s <- %T %+v", n.self.Node, ev, ev)
	w.run(n, n.r.Step(w.now, ev))
	if c, b := n.r.Buffered(); c > w.limit || c < 0 || b < 0 {
		w.fail("I14: %s buffers %d messages, %d bytes; the limit is %d", n.self, c, b, w.limit)
	}
}

func (w *world) run(n *wnode, commands []Command) {
	for _, c := range commands {
		w.t.Logf("  %s -> %T %+v", n.self.Node, c, c)
		switch c := c.(type) {
		case *Transmit:
			j := int(c.To.Node[0] - 'a')
			w.t.Logf("    %+v", c.Message)
			if m, ok := c.Message.(*protocol.Reply); ok && m.Status == protocol.StatusOK {
				w.leased(n, "a reply leaves")
			}
			if !n.down[j] {
				w.links[n.i][j] = append(w.links[n.i][j], c.Message)
			}
		case *DeliverLocal:
			w.deliver(n, c)
		case StartLocal:
			n.running[c.Shard] = &wshard{epoch: c.Epoch}
		case StopLocal:
			key := fmt.Sprint(c.Shard, "/", c.Epoch)
			if w.stops[key]++; w.stops[key] > 1 {
				w.fail("I10: shard %s is stopped twice", key)
			}
			n.running[c.Shard].stopping = true
		case KillLocal:
			if !w.aborted[fmt.Sprint(c.Shard, "/", c.Epoch)] {
				w.fail("%s kills %d/%d, which nothing has superseded", n.self, c.Shard, c.Epoch)
			}
			if run := n.running[c.Shard]; run != nil {
				for _, d := range run.queue {
					w.killed[d.Command.Seq] = true
				}
				delete(n.running, c.Shard)
			}
			for cmd, gen := range w.answered { // its reply may be waiting for the lease
				if gen == fmt.Sprint(c.Shard, "/", c.Epoch) {
					w.killed[cmd] = true
				}
			}
		case ReplyLocal:
			cmd := c.Reply.Ask
			if c.Reply.Status == protocol.StatusOK {
				w.leased(n, "a reply ends")
			}
			w.ended[cmd] = append(w.ended[cmd], c.Reply.Status)
		case DeadLetter:
			if c.Reason != DeadLate {
				w.dead[c.Deliver.Command.Seq] = c.Reason
			} else if !w.faults {
				w.fail("%s drops %+v as late, without a fault", n.self, c.Deliver)
			}
		case ToCoordinator:
			w.coordinator(n, c.Message)
		}
	}
}

func (w *world) leased(n *wnode, what string) {
	if w.now >= n.until {
		w.fail("I3: at %s %s at %d, the lease lapsed at %d", n.self, what, w.now, n.until)
	}
}

// renew extends a node's lease as of now.
func (w *world) renew(n *wnode) {
	n.control = append(n.control, Covered{Revision: sharding.Revision{Index: w.index}, Until: w.now.Add(w.ttl)})
}

// abort gives a moving shard back to its owner under a new epoch.
func (w *world) abort(s sharding.ShardID) {
	h := w.homes[s]
	if h.State != protocol.Moving {
		return
	}
	w.aborted[fmt.Sprint(s, "/", h.Epoch)] = true
	w.moving[s] = -1
	w.grant(s, int(h.Owner.Node[0]-'a'), sharding.Member{}, false, nil)
}

func (w *world) deliver(n *wnode, c *DeliverLocal) {
	d := c.Deliver
	w.leased(n, "a message begins")
	run := n.running[c.Shard]
	h := w.homes[c.Shard]
	if run == nil || run.epoch != c.Epoch || run.stopping || h.Owner != n.self || h.Epoch != c.Epoch && !w.aborted[fmt.Sprint(c.Shard, "/", c.Epoch)] {
		w.fail("I1: %s begins %+v, but does not run shard %d at epoch %d", n.self, d, c.Shard, c.Epoch)
	}
	if d.Command.Seq == forged {
		run.queue = append(run.queue, d)
		return
	}
	key := fmt.Sprint(d.Sender.Node, " ", d.Shard)
	if d.Seq <= w.lastSeq[key] {
		w.fail("I12: sender and shard %s: number %d begins after %d", key, d.Seq, w.lastSeq[key])
	}
	w.lastSeq[key] = d.Seq
	if w.begunCmd[d.Command.Seq]++; w.begunCmd[d.Command.Seq] > 1 {
		w.fail("I11: command %d begins twice", d.Command.Seq)
	}
	w.begun = append(w.begun, fmt.Sprint(d.Sender.Node, " ", d.Shard, " ", d.Command.Seq))
	run.queue = append(run.queue, d)
}

func (w *world) publish(s sharding.ShardID) {
	for _, n := range w.nodes {
		n.control = append(n.control, MapChanged{Revision: sharding.Revision{Index: w.index}, Records: []protocol.ShardRecord{w.homes[s]}})
		w.renew(n)
	}
}

func (w *world) grant(s sharding.ShardID, to int, source sharding.Member, handed bool, senders []protocol.SenderSeq) {
	w.index++
	h := &w.homes[s]
	*h = protocol.ShardRecord{Shard: s, State: protocol.Homed, Owner: w.nodes[to].self, Epoch: h.Epoch + 1, Granted: w.index, Source: source}
	w.publish(s)
	n := w.nodes[to]
	n.control = append(n.control, Ordered{&protocol.StartShard{Type: "t", Shard: *h, Senders: senders, Handed: handed}})
}

func (w *world) coordinator(n *wnode, m protocol.Message) {
	switch m := m.(type) {
	case *protocol.GetShardHome:
		for _, s := range m.Shards {
			if w.homes[s].Epoch == 0 {
				w.grant(s, (n.i+int(s))%3, sharding.Member{}, false, nil)
			}
		}
	case *protocol.HandOffComplete:
		h := w.homes[m.Shard]
		if to := w.moving[m.Shard]; to >= 0 && h.Owner == n.self && h.Epoch == m.Epoch {
			w.moving[m.Shard] = -1
			w.grant(m.Shard, to, n.self, true, m.Senders)
		}
	}
}

func (w *world) move(s sharding.ShardID, to int) {
	h := &w.homes[s]
	if h.State == protocol.Moving && h.Epoch > 0 { // an order repeated
		from := int(h.Owner.Node[0] - 'a')
		w.nodes[from].control = append(w.nodes[from].control, Ordered{&protocol.HandOff{Type: "t", Shard: s, Epoch: h.Epoch}})
		return
	}
	if h.State != protocol.Homed || h.Owner == w.nodes[to].self {
		return
	}
	from := int(h.Owner.Node[0] - 'a')
	w.index++
	h.State, h.Target = protocol.Moving, w.nodes[to].self
	w.moving[s] = to
	w.publish(s)
	w.nodes[from].control = append(w.nodes[from].control, Ordered{&protocol.HandOff{Type: "t", Shard: s, Epoch: h.Epoch}})
}

func (w *world) submit(n *wnode, s int, ask bool) {
	w.commands++
	ev := Submitted{Entity: worldEntities[s], Command: protocol.Command{Seq: w.commands}, Payload: []byte{1, 2, 3}}
	if ask {
		ev.Mode, ev.Ask = protocol.Ask, w.commands
		w.asks[w.commands] = true
	}
	w.sent = append(w.sent, fmt.Sprint(n.self.Node, " ", s, " ", w.commands))
	w.step(n, ev)
}

// carry brings the first frame of a link.
func (w *world) carry(i, j int) bool {
	q := w.links[i][j]
	if len(q) == 0 {
		return false
	}
	w.links[i][j] = q[1:]
	from, n := w.nodes[i].self, w.nodes[j]
	switch m := q[0].(type) {
	case *protocol.Deliver:
		w.step(n, Arrived{from, m})
	case *protocol.Reply:
		w.ended[m.Ask] = append(w.ended[m.Ask], m.Status)
	case *protocol.SenderMoved:
		w.step(n, SenderMovedArrived{from, *m})
	case *protocol.SenderDone:
		w.step(n, SenderDoneArrived{from, *m})
	}
	return true
}

func (w *world) obey(n *wnode) bool {
	if len(n.control) == 0 {
		return false
	}
	ev := n.control[0]
	n.control = n.control[1:]
	if c, ok := ev.(Covered); ok {
		n.until = max(n.until, c.Until)
	}
	w.step(n, ev)
	return true
}

// work lets an entity finish a message, or a stopping shard end.
func (w *world) work(n *wnode, s sharding.ShardID) bool {
	run := n.running[s]
	if run == nil {
		return false
	}
	if len(run.queue) > 0 {
		d := run.queue[0]
		run.queue = run.queue[1:]
		if d.Mode == protocol.Ask {
			w.answered[d.Command.Seq] = fmt.Sprint(s, "/", run.epoch)
			w.step(n, EffectReady{Shard: s, Epoch: run.epoch, To: d.Sender, Reply: protocol.Reply{Ask: d.Ask}})
		}
		return true
	}
	if run.stopping {
		delete(n.running, s)
		w.step(n, ShardStopped{s, run.epoch})
		return true
	}
	return false
}

func (w *world) breakLink(i, j int) {
	if w.nodes[i].down[j] {
		w.nodes[i].down[j] = false
		w.step(w.nodes[i], PeerUp{w.nodes[j].self})
		return
	}
	w.links[i][j] = nil
	w.nodes[i].down[j] = true
	w.step(w.nodes[i], PeerDown{w.nodes[j].self})
	w.step(w.nodes[j], PeerClosed{w.nodes[i].self})
}

// settle lets everything come to rest.
func (w *world) settle() {
	for i := range 3 {
		for j := range 3 {
			if w.nodes[i].down[j] {
				w.breakLink(i, j)
			}
		}
	}
	w.ttl = 24 * time.Hour
	for _, n := range w.nodes {
		w.renew(n)
	}
	for quiet := 0; quiet < 3; {
		quiet++
		for i, n := range w.nodes {
			for w.obey(n) {
				quiet = 0
			}
			for j := range 3 {
				for w.carry(i, j) {
					quiet = 0
				}
			}
			for s := range sharding.ShardID(worldShards) {
				for w.work(n, s) {
					quiet = 0
				}
			}
			w.now += sharding.Instant(200 * time.Millisecond)
			w.step(n, Ticked{})
			if w.faults && quiet > 0 {
				if c, _ := n.r.Buffered(); c > 0 && w.now < sharding.Instant(time.Hour) {
					quiet = 0
				}
			}
		}
	}
}

func (w *world) check() {
	for _, n := range w.nodes {
		if c, b := n.r.Buffered(); c != 0 || b != 0 {
			w.fail("%s still buffers %d messages, %d bytes when all is at rest", n.self, c, b)
		}
		if cut := n.r.Stats().HoldsCut; cut > 0 && !w.faults {
			w.fail("%s cut %d holds, without a fault", n.self, cut)
		}
	}
	for cmd := range w.asks {
		ends := w.ended[cmd]
		if len(ends) > 1 {
			w.fail("I13: ask %d ends %d times: %v", cmd, len(ends), ends)
		}
		if len(ends) == 1 && ends[0] == protocol.StatusUnavailable && w.begunCmd[cmd] > 0 {
			w.fail("I13: ask %d is called unavailable, but was begun", cmd)
		}
		if len(ends) == 0 && !w.faults && !w.killed[cmd] {
			w.fail("I13: ask %d does not end", cmd)
		}
	}
	if w.faults {
		return
	}
	var sent []string // what was refused at a full buffer counts as ended
	for _, s := range w.sent {
		var node string
		var shard, cmd uint64
		fmt.Sscan(s, &node, &shard, &cmd)
		refused := w.dead[cmd] != "" || slices.Contains(w.ended[cmd], protocol.StatusUnavailable)
		if refused && w.begunCmd[cmd] > 0 {
			w.fail("I11: command %d is refused and begun", cmd)
		}
		if refused && w.limit > 1000 {
			w.fail("command %d is refused (%s) within the bounds", cmd, w.dead[cmd])
		}
		if !refused {
			sent = append(sent, s)
		}
	}
	byWay := func(lines []string) []string {
		slices.SortStableFunc(lines, func(a, b string) int { return slices.Compare([]byte(a[:3]), []byte(b[:3])) })
		return lines
	}
	if a, b := byWay(sent), byWay(w.begun); !slices.Equal(a, b) {
		w.fail("I11, I12: sent and begun differ\nsent  %v\nbegun %v", a, b)
	}
}

// play draws a history. Weights: mostly messages and frames, some moves.
func (w *world) play(steps int) {
	for range steps {
		w.now += sharding.Instant(time.Millisecond)
		op := w.draw(100)
		n := w.nodes[w.draw(3)]
		k := w.draw(3)
		switch {
		case op < 25:
			w.submit(n, k, op%2 == 0)
		case op < 55:
			w.carry(n.i, k)
		case op < 75:
			w.obey(n)
		case op < 87:
			w.work(n, sharding.ShardID(k))
		case op >= 92 && w.lies && n.i != k:
			w.lie(n, w.nodes[k])
		case op < 95:
			w.move(sharding.ShardID(k), n.i)
		case op < 96:
			w.step(n, Ticked{})
		case op < 97:
			w.abort(sharding.ShardID(k))
		case op < 98:
			w.renew(n)
		case w.faults && n.i != k:
			w.breakLink(n.i, k)
		}
	}
	w.settle()
	w.check()
}

// On planned moves between live nodes nothing is lost, doubled or reordered, however the moves chain (spec 2.3; I10, I11, I12, I13).
func TestMovesLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newWorld(t, drawing(t), false, 1<<20, Mutations{}).play(250) })
}

// Full buffers refuse, never lie: what was refused was not begun, and the bounds hold (I13, I14).
func TestFullBuffersRefuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newWorld(t, drawing(t), true, rapid.IntRange(1, 6).Draw(t, "limit"), Mutations{}).play(250)
	})
}

// Streams that break lose messages, but double and reorder none, and everything comes to rest (spec 2.3).
func TestBrokenStreamsKeepOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newWorld(t, drawing(t), true, 1<<20, Mutations{}).play(250) })
}

// forged is the command of a message that nobody sent.
const forged = 1 << 40

// lie lets a peer say of others what is not so: that it forwards a message of theirs, or that numbers will not come.
func (w *world) lie(n, liar *wnode) {
	shard := sharding.ShardID(w.draw(worldShards))
	sender := w.nodes[w.draw(3)].self
	epoch := w.homes[shard].Epoch + sharding.Epoch(w.draw(4)) - 1
	seq := uint64(1) << w.draw(64)
	switch w.draw(4) {
	case 0:
		w.step(n, SenderDoneArrived{liar.self, protocol.SenderDone{Type: "t", Shard: shard, Epoch: epoch, Sender: sender, From: 1 + seq/2, Seq: seq}})
	case 1:
		w.step(n, SenderMovedArrived{liar.self, protocol.SenderMoved{Type: "t", Shard: shard, Epoch: epoch, From: 1, Seq: seq}})
	default:
		w.step(n, Arrived{liar.self, &protocol.Deliver{Type: "t", Shard: shard, Entity: worldEntities[shard], Epoch: epoch, Sender: sender, Seq: seq, Hops: 1,
			Held: uint32(w.draw(10000)), Command: protocol.Command{Seq: forged}}})
	}
}

// Spec 2.1: whatever a peer says of others' messages, once it has spoken everybody is heard everywhere, and nothing honest is doubled or reordered.
func TestLiesSilenceNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, drawing(t), true, 1<<20, Mutations{})
		w.lies = true
		w.play(250)
		for _, n := range w.nodes {
			for s := range worldShards {
				w.submit(n, s, false)
				w.settle()
				if w.begunCmd[w.commands] != 1 {
					w.fail("%s is silenced at shard %d: its message begins %d times", n.self, s, w.begunCmd[w.commands])
				}
			}
		}
	})
}

func drawing(t *rapid.T) func(int) int {
	return func(limit int) int { return rapid.IntRange(0, limit-1).Draw(t, "n") }
}

// hunted stops a history at its first failure.
type hunted struct{}

type found struct{ what string }

func (hunted) Helper()                      {}
func (hunted) Logf(string, ...any)          {}
func (hunted) Fatalf(f string, args ...any) { panic(found{fmt.Sprintf(f, args...)}) }
func hunt(seed uint64, off Mutations) (what string) {
	defer func() {
		if e := recover(); e != nil {
			what = e.(found).what
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 1))
	newWorld(hunted{}, rng.IntN, false, 1<<20, off).play(250)
	return ""
}

// Without the holds the same histories fail: they can (spec 2.6).
func TestMovesNeedHolds(t *testing.T) {
	for seed := range uint64(1000) {
		if what := hunt(seed, Mutations{}); what != "" {
			t.Fatalf("seed %d fails with every rule on: %s", seed, what)
		}
		if what := hunt(seed, Mutations{Holds: true}); what != "" {
			t.Logf("seed %d: %s", seed, what)
			return
		}
	}
	t.Error("1000 histories pass without holds: they test nothing")
}
