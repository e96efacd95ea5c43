package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/boottime"
	"github.com/droverhq/drover/internal/entity"
	"github.com/droverhq/drover/internal/queue"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// world is some planes, the real coordinator machine with a log of one server, and a network that keeps the order of each (from, to, class).
type world struct {
	t     *testing.T
	coord *coordHost
	nodes []*node
	pool  *entity.Pool
	kinds *kinds

	mu    sync.Mutex
	wires map[wire]*queue.Queue[func()]
	cut   map[wire]error // refuses what is sent
	once  map[wire]bool  // refuses the next frame alone
	ended bool           // no wire is laid any more
	wg    sync.WaitGroup
}

type wire struct {
	from, to sharding.Member
	control  bool
}

type node struct {
	w    *world
	self sharding.Member
	*Plane
	refused    chan protocol.Refusal
	registered chan sharding.Incarnation
}

// kinds counts what entities do.
type kinds struct {
	stops atomic.Int64
	gate  chan struct{}
	later chan func(any, error)

	mu    sync.Mutex
	begun []string // "entity epoch node"
}

type probeMsg struct {
	Add int    `json:"add,omitempty"`
	Do  string `json:"do,omitempty"`
}

type probe struct {
	k     *kinds
	node  sharding.NodeID
	value int
}

func (p *probe) Receive(ctx sharding.Context, m probeMsg) (int, error) {
	p.k.mu.Lock()
	p.k.begun = append(p.k.begun, fmt.Sprintf("%s %d %s", ctx.ID(), ctx.Epoch(), p.node))
	p.k.mu.Unlock()
	switch m.Do {
	case "panic":
		panic("on request")
	case "fail":
		return 0, errors.New("refused by the entity")
	case "block":
		<-p.k.gate
	case "later":
		p.k.later <- ctx.Later()
	}
	p.value += m.Add
	return p.value, nil
}

func (p *probe) Stop(sharding.Context) { p.k.stops.Add(1) }

func (k *kinds) kind(n sharding.NodeID) sharding.Kind {
	return sharding.NewKind("probe", func(sharding.Context) sharding.Entity[probeMsg, int] { return &probe{k: k, node: n} }, sharding.Options[probeMsg, int]{})
}

// hub sends a node's frames.
type hub struct {
	w    *world
	from sharding.Member
}

var errCut = errors.New("no stream")

func (h hub) SendControl(to sharding.Member, frame []byte) error {
	return h.w.send(h.from, to, true, frame)
}
func (h hub) SendData(to sharding.Member, frame []byte) error {
	return h.w.send(h.from, to, false, frame)
}

func (w *world) send(from, to sharding.Member, control bool, frame []byte) error {
	frame = append([]byte(nil), frame...)
	k := wire{from, to, control}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.cut[k]; err != nil {
		return err
	}
	if w.once[k] {
		delete(w.once, k)
		return errors.New("too large")
	}
	q := w.wires[k]
	if q == nil && w.ended {
		return errCut
	}
	if q == nil {
		q = queue.New[func()](0)
		w.wires[k] = q
		w.wg.Go(func() {
			for {
				items, ok := q.Take()
				if !ok {
					return
				}
				for _, f := range items {
					f()
				}
			}
		})
	}
	q.Put(func() { w.arrive(from, to, control, frame) })
	return nil
}

func (w *world) find(m sharding.Member) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if n.self == m {
			return n
		}
	}
	return nil
}

func (w *world) arrive(from, to sharding.Member, control bool, frame []byte) {
	n := w.find(to)
	if n == nil {
		return
	}
	if !control {
		n.HandleData(from, frame)
		return
	}
	m, err := protocol.DecodeFrame(frame)
	if err != nil {
		w.t.Errorf("a control frame does not decode: %v", err)
		return
	}
	if d, ok := m.(protocol.Directive); ok {
		n.HandleControl(from, true, d)
		return
	}
	w.coord.inbox.Put(coordinator.Received{From: from, Message: m})
}

// cutOff refuses data from one node to another, as a transport without a stream does, and says so to the sender's regions.
func (w *world) cutOff(from, to *node) {
	w.mu.Lock()
	w.cut[wire{from.self, to.self, false}] = errCut
	w.mu.Unlock()
	from.PeerDown(to.self)
}

// coordHost runs the machine with a log that commits at once.
type coordHost struct {
	w       *world
	self    sharding.Member
	machine *coordinator.Machine
	inbox   *queue.Queue[coordinator.Event]
	index   uint64
	answers sync.Map // id → chan coordinator.Answer
	ids     atomic.Uint64
	stop    chan struct{}
}

func (c *coordHost) run() {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	c.w.wg.Go(func() {
		for {
			select {
			case <-ticker.C:
				c.inbox.Put(coordinator.Ticked{Wall: time.Now().UnixMilli()})
			case <-c.stop:
				c.inbox.Close()
				return
			}
		}
	})
	for {
		items, ok := c.inbox.Take()
		if !ok {
			return
		}
		for _, ev := range items {
			c.step(ev)
		}
	}
}

func (c *coordHost) step(ev coordinator.Event) {
	for _, cmd := range c.machine.Step(boottime.Now(), ev) {
		switch cmd := cmd.(type) {
		case coordinator.Propose:
			c.index++
			c.inbox.Put(coordinator.Committed{Index: c.index, Term: cmd.Entry.Term, Entry: cmd.Entry})
		case coordinator.Barrier:
			c.inbox.Put(coordinator.BarrierDone{Term: cmd.Term})
		case coordinator.Send:
			c.send(cmd.To, cmd.Message)
		case coordinator.Broadcast:
			for _, n := range c.w.all() {
				c.send(n.self, cmd.Message)
			}
		case coordinator.Answer:
			if ch, ok := c.answers.LoadAndDelete(cmd.ID); ok {
				ch.(chan coordinator.Answer) <- cmd
			}
		}
	}
}

func (c *coordHost) send(to sharding.Member, m protocol.Message) {
	frame, err := protocol.AppendFrame(nil, m)
	if err == nil {
		err = c.w.send(c.self, to, true, frame)
	}
	if err != nil {
		c.w.t.Logf("to %s: %v", to, err)
	}
}

func (c *coordHost) request(r coordinator.Request) coordinator.Answer {
	ch := make(chan coordinator.Answer, 1)
	id := c.ids.Add(1)
	c.answers.Store(id, ch)
	c.inbox.Put(coordinator.Requested{ID: id, Request: r})
	return <-ch
}

func (w *world) all() []*node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*node(nil), w.nodes...)
}

const (
	patience = 20 * time.Second
	poll     = 5 * time.Millisecond
	shards   = 8
)

// newWorld starts a coordinator and a plane a name. A name that ends in * hosts nothing and has no type configured.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{t: t, pool: entity.NewPool(), kinds: &kinds{gate: make(chan struct{}), later: make(chan func(any, error), 64)},
		wires: map[wire]*queue.Queue[func()]{}, cut: map[wire]error{}, once: map[wire]bool{}}
	first := sharding.Member{Node: sharding.NodeID(strings.TrimSuffix(names[0], "*")), Incarnation: sharding.NewIncarnation()}
	w.coord = &coordHost{w: w, self: first, inbox: queue.New[coordinator.Event](0), stop: make(chan struct{}),
		machine: coordinator.New(coordinator.Config{Self: first, Settle: time.Millisecond, MoveCooldown: time.Millisecond, HandOffTimeout: 2 * time.Second})}
	w.wg.Go(w.coord.run)
	w.coord.inbox.Put(coordinator.Elected{Term: 1})
	require.Eventually(t, func() bool {
		return w.coord.request(coordinator.CreateCluster{Body: protocol.CreateCluster{ClusterID: sharding.NewIncarnation(), Label: "t",
			Settings: protocol.Settings{LeaseTTL: 1000}}}).Err == ""
	}, patience, poll)
	t.Cleanup(func() {
		for _, n := range w.all() {
			n.Close()
		}
		close(w.coord.stop)
		w.mu.Lock()
		w.ended = true // the coordinator may be sending still
		for _, q := range w.wires {
			q.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
		w.pool.Close()
	})
	for i, name := range names {
		self := first
		if i > 0 {
			self = sharding.Member{Node: sharding.NodeID(strings.TrimSuffix(name, "*")), Incarnation: sharding.NewIncarnation()}
		}
		w.start(self, !strings.HasSuffix(name, "*"), nil)
	}
	for _, n := range w.all() {
		require.Eventually(t, func() bool { ok, rev := n.Registered(); return ok && rev.Index > 0 }, patience, poll)
	}
	return w
}

func (w *world) start(self sharding.Member, hosts bool, change func(*Config)) *node {
	n := &node{w: w, self: self, refused: make(chan protocol.Refusal, 16), registered: make(chan sharding.Incarnation, 64)}
	cfg := Config{Session: region.SessionConfig{Self: self, Info: protocol.NodeInfo{MinWire: 1, MaxWire: 1}}, Sender: hub{w, self}, Pool: w.pool, Now: boottime.Now,
		Logger: slog.New(slog.DiscardHandler), OnRegistered: func(c sharding.Incarnation, _ uint64) { n.registered <- c },
		OnRefused: func(r protocol.Refusal) { n.refused <- r }, OnLeader: func(sharding.Member, uint64) {}}
	if hosts {
		cfg.Types = []Type{{Kind: w.kinds.kind(self.Node), Info: protocol.RegionInfo{Type: "t", NumShards: shards, Hosts: true}}}
	}
	if change != nil {
		change(&cfg)
	}
	n.Plane = Open(cfg)
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	w.coord.inbox.Put(coordinator.MemberSeen{Member: self, Status: coordinator.MemberUp})
	n.LeaderHinted(w.coord.self, 1)
	return n
}

func (w *world) node(name string) *node {
	for _, n := range w.all() {
		if string(n.self.Node) == name {
			return n
		}
	}
	w.t.Fatalf("no node %q", name)
	return nil
}

// ask sends a probe a message; payloads are JSON.
func (n *node) ask(t testing.TB, id string, m probeMsg) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return n.askFor(ctx, id, m)
}

func (n *node) askFor(ctx context.Context, id string, m probeMsg) (int, error) {
	b, err := n.Ask(ctx, "t", id, payload(m), protocol.Command{})
	if err != nil {
		return 0, err
	}
	var v int
	return v, json.Unmarshal(b[1:], &v)
}

func payload(m probeMsg) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return append([]byte{byte(sharding.FormatJSON)}, b...)
}

// owner waits until every node agrees on who has the entity's shard.
func (w *world) owner(id string) (owner *node, rec protocol.ShardRecord) {
	w.t.Helper()
	s := sharding.ShardOf(id, shards)
	require.Eventually(w.t, func() bool {
		var agreed protocol.ShardRecord
		for i, n := range w.all() {
			rec = n.Home("t", s)
			if rec.State != protocol.Homed || i > 0 && (rec.Epoch != agreed.Epoch || rec.Owner != agreed.Owner) {
				return false
			}
			agreed = rec
		}
		return true
	}, patience, poll)
	return w.find(rec.Owner), rec
}

// move hands an entity's shard to a node and waits for every map to show it.
func (w *world) move(id string, to *node) {
	w.t.Helper()
	s := sharding.ShardOf(id, shards)
	require.Eventually(w.t, func() bool {
		return w.coord.request(coordinator.MoveShard{Type: "t", Shard: s, To: to.self.Node}).Err == ""
	}, patience, poll)
	require.Eventually(w.t, func() bool { owner, _ := w.owner(id); return owner == to }, patience, poll)
}

// other gives a node that hosts and is not n.
func (w *world) other(n *node) *node {
	for _, o := range w.all() {
		if o != n && len(o.cfg.Types) > 0 {
			return o
		}
	}
	w.t.Fatal("no other host")
	return nil
}
