package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies/hash"
)

// world is a cluster around the machines: a log that commits at once, nodes that do as they are told, and a clock that the script moves.
type world struct {
	now      sharding.Instant
	ttl      time.Duration
	machines map[string]*Machine
	servers  []string // in order
	leader   string
	term     uint64 // raft's
	log      []Committed
	nodes    map[sharding.Member]*fakeNode
	held     []*protocol.Entry // proposals that the script has held back
	hold     bool
	strategy string // ok, or a verdict
	shadows  map[string]bool
	prepared bool
	requests uint64
	out      *strings.Builder
	queue    []func() // what is to happen next, in order
	draining bool
	asks     []AskStrategy
	holdAsks bool
	starts   bool                             // say what nodes are told to start
	violate  func(format string, args ...any) // a rule is broken
}

// fakeNode renews its lease, confirms what it starts and completes handoffs, unless told not to.
type fakeNode struct {
	member    sharding.Member
	info      protocol.NodeInfo
	regions   []protocol.RegionInfo
	applied   sharding.Revision
	records   map[TypeShard]protocol.ShardRecord
	renewed   sharding.Instant
	seq       uint64
	silent    bool                         // sends nothing, receives nothing
	stuck     bool                         // does not complete handoffs, nor kills
	unstarted bool                         // does not confirm StartShard
	covered   sharding.Instant             // its lease, on its own clock
	serves    map[TypeShard]sharding.Epoch // covered by the lease, unless it has lapsed
	stopped   map[TypeShard]sharding.Epoch // served no more, whatever the map says
}

func newFakeNode(m sharding.Member) *fakeNode {
	return &fakeNode{member: m, records: map[TypeShard]protocol.ShardRecord{}, serves: map[TypeShard]sharding.Epoch{}, stopped: map[TypeShard]sharding.Epoch{}}
}

func newWorld(out *strings.Builder) *world {
	violate := func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
	return &world{violate: violate, ttl: 5 * time.Second, machines: map[string]*Machine{}, nodes: map[sharding.Member]*fakeNode{}, strategy: verdictOK, out: out, shadows: map[string]bool{}}
}

func inc(n int) sharding.Incarnation { return sharding.Incarnation{byte(n)} }

// who reads "a" or "a2": node a, incarnation 1 or 2.
func who(s string) sharding.Member {
	name := strings.TrimRight(s, "0123456789")
	n := 1
	if d := s[len(name):]; d != "" {
		n, _ = strconv.Atoi(d)
	}
	return sharding.Member{Node: sharding.NodeID(name), Incarnation: inc(n)}
}

func short(m sharding.Member) string {
	if m.IsZero() {
		return "-"
	}
	if m.Incarnation == inc(1) {
		return string(m.Node)
	}
	return fmt.Sprintf("%s%d", m.Node, m.Incarnation[0])
}

func (w *world) wall() int64 { return 1_700_000_000_000 + int64(w.now)/1e6 }

func (w *world) printf(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

// step queues an event for a server: everything happens in the order in which it was caused.
func (w *world) step(server string, ev Event) {
	w.enqueue(server, ev)
	w.drain()
}

func (w *world) enqueue(server string, ev Event) {
	w.queue = append(w.queue, func() { w.run(server, w.machines[server].Step(w.now, ev)) })
}

func (w *world) drain() {
	if w.draining {
		return
	}
	w.draining = true
	for n := 0; len(w.queue) > 0; n++ {
		if n > 100_000 {
			panic("the machines never come to rest")
		}
		next := w.queue[0]
		w.queue = w.queue[1:]
		next()
	}
	w.draining = false
}

func (w *world) toLeader(ev Event) {
	if w.leader != "" {
		w.step(w.leader, ev)
	}
}

// commit appends an entry to the log and gives it to every server.
func (w *world) commit(term uint64, e *protocol.Entry) {
	b, err := protocol.EncodeEntry(e)
	if err != nil {
		panic(err)
	}
	if e, err = protocol.DecodeEntry(b); err != nil {
		panic(err)
	}
	c := Committed{Index: uint64(len(w.log) + 1), Term: term, Entry: e}
	w.log = append(w.log, c)
	for _, s := range w.servers { // all have it before anything that follows from it
		w.enqueue(s, c)
	}
	w.drain()
}

func (w *world) run(server string, cmds []Command) {
	for _, c := range cmds {
		switch c := c.(type) {
		case Propose:
			if w.hold {
				w.held = append(w.held, c.Entry)
			} else {
				w.commit(w.term, c.Entry)
			}
		case Barrier:
			if !w.hold {
				w.step(server, BarrierDone{Term: c.Term})
			}
		case Send:
			b, err := protocol.AppendFrame(nil, c.Message)
			if err != nil {
				panic(err)
			}
			msg, err := protocol.DecodeFrame(b)
			if err != nil {
				panic(err)
			}
			w.deliver(c.To, msg)
		case Broadcast:
			for _, n := range w.sorted() {
				w.deliver(n.member, c.Message)
			}
		case AskStrategy:
			w.asked(c)
		case PrepareStrategy:
			if w.prepared {
				w.printf("%s prepares %s", server, c.Spec.Source)
			}
		case PrepareShadow:
			switch {
			case !w.prepared:
			case c.Spec.Digest == [32]byte{}:
				w.printf("%s has no shadow to prepare", server)
			default:
				w.printf("%s prepares the shadow %s", server, c.Spec.Source)
			}
		case Answer:
			if c.Code == "" {
				w.printf("answer %d: ok", c.ID)
			} else {
				w.printf("answer %d: %s: %s", c.ID, c.Code, c.Err)
			}
		case Note:
			where := ""
			if c.Kind == NoteShardMoved || c.Kind == NoteHandOffStarted || c.Kind == NoteHandOffTimedOut || c.Kind == NoteShardReleased || c.Kind == NoteShardFenced {
				where = fmt.Sprintf(" shard %d", c.Shard)
			}
			w.printf("%s%s: %s %s", c.Kind, where, c.Node, c.Text)
		}
	}
}

func (w *world) asked(c AskStrategy) {
	if err := c.Input.Validate(c.Shards); err != nil {
		panic(err)
	}
	if h := c.Shadow; h != nil {
		if err := h.Input.Validate(c.Shards); err != nil {
			panic(err)
		}
		w.shadows[fmt.Sprintf("%s of term %d: %s (%d) beside %d, at most %d moves", c.Op, h.Term, h.Spec.Source, h.Seq, h.Against, h.Input.MaxMoves)] = true
	}
	if w.holdAsks {
		w.asks = append(w.asks, c)
		return
	}
	ev := StrategyAnswered{Ask: c.Ask, Record: [32]byte{byte(c.Ask)}}
	switch {
	case w.strategy != verdictOK:
		ev.Failure = &StrategyFailure{Verdict: w.strategy, Detail: "as the script says"}
	case c.Op == pluginapi.OpAllocate:
		ev.Homes, _ = answer(c.Spec).Allocate(c.Input, c.Shards)
	default:
		ev.Plan, _ = answer(c.Spec).Rebalance(c.Input)
	}
	w.toLeader(ev)
}

// answer picks a native strategy by the spec's source; fill puts everything on the first candidate and moves nothing.
func answer(spec protocol.StrategySpec) pluginapi.Strategy {
	if spec.Source == "fill" {
		return pluginapi.OneByOne{Place: func(s *pluginapi.Snapshot, _ *pluginapi.Placement, _ uint32) (int, error) {
			return s.Candidates[0], nil
		}}
	}
	return hash.Strategy{}
}

func specOf(name string) protocol.StrategySpec {
	return protocol.StrategySpec{Source: name, Digest: [32]byte{name[0], byte(len(name))}, MaxFailures: 3, MovesPass: 100}
}

func (w *world) sorted() []*fakeNode {
	var out []*fakeNode
	for _, n := range w.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *fakeNode) int {
		if a.member.Less(b.member) {
			return -1
		}
		return 1
	})
	return out
}

// deliver gives a directive to a node, which answers at once.
func (w *world) deliver(to sharding.Member, msg protocol.Message) {
	n := w.nodes[to]
	if n == nil || n.silent {
		return
	}
	switch msg := msg.(type) {
	case *protocol.Leading:
		w.register(n, nil)
	case *protocol.RegisterAck:
		for _, r := range msg.Refused {
			w.printf("%s is refused: %s: %s", short(to), r.Code, r.Detail)
		}
	case *protocol.ShardMapUpdate:
		n.follow(msg)
	case *protocol.LeaseAck:
		if n.applied.Index >= msg.Revision.Index {
			n.covered = max(n.covered, msg.SentAt.Add(time.Duration(msg.TTL)*time.Millisecond))
			for ts, r := range n.records {
				if r.Owner == to && (r.State == protocol.Homed || r.State == protocol.Moving) && r.Granted <= msg.Revision.Index && n.stopped[ts] < r.Epoch {
					n.serves[ts] = r.Epoch
					w.checkAlone(n, ts)
				}
			}
		}
	case *protocol.StartShard:
		if w.starts {
			w.printf("%s <- StartShard %d@%d", short(to), msg.Shard.Shard, msg.Shard.Epoch)
		}
		if !n.unstarted {
			w.toLeader(Received{From: to, Message: &protocol.ShardStarted{Type: msg.Type, Shards: []protocol.ShardEpoch{{Shard: msg.Shard.Shard, Epoch: msg.Shard.Epoch}}}})
		}
	case *protocol.HandOff:
		w.printf("%s <- HandOff %d@%d", short(to), msg.Shard, msg.Epoch)
		if !n.stuck {
			n.stop(TypeShard{msg.Type, msg.Shard}, msg.Epoch)
			w.toLeader(Received{From: to, Message: &protocol.HandOffComplete{Type: msg.Type, Shard: msg.Shard, Epoch: msg.Epoch, Senders: []protocol.SenderSeq{{Sender: to, Seq: 7}}}})
		}
	case *protocol.KillShard:
		w.printf("%s <- KillShard %d@%d", short(to), msg.Shard, msg.Epoch)
		if !n.stuck {
			n.stop(TypeShard{msg.Type, msg.Shard}, msg.Epoch)
			w.toLeader(Received{From: to, Message: &protocol.ShardsStopped{Type: msg.Type, Shards: []protocol.ShardEpoch{{Shard: msg.Shard, Epoch: msg.Epoch}}}})
		}
	}
}

// checkAlone: nobody else may be serving what n serves from now on (I1).
func (w *world) checkAlone(n *fakeNode, ts TypeShard) {
	for _, o := range w.sorted() {
		if e := o.serves[ts]; o != n && e != 0 && w.now < o.covered && w.now < n.covered {
			w.violate("%s serves shard %d at epoch %d, and so does %s at %d until %v", n.member, ts.Shard, n.serves[ts], o.member, e, time.Duration(o.covered))
		}
	}
}

func (n *fakeNode) stop(ts TypeShard, e sharding.Epoch) {
	delete(n.serves, ts)
	n.stopped[ts] = e
}

// follow applies a map update as a session does.
func (n *fakeNode) follow(u *protocol.ShardMapUpdate) {
	if u.Full {
		n.records = map[TypeShard]protocol.ShardRecord{}
	} else if n.applied.Index < u.From.Index {
		return
	}
	for _, d := range u.Types {
		for _, r := range d.Shards {
			ts := TypeShard{d.Type, r.Shard}
			n.records[ts] = r
			if r.Owner != n.member || r.Epoch != n.serves[ts] || r.State == protocol.Fenced {
				delete(n.serves, ts)
			}
		}
	}
	n.applied = u.To
}

func (w *world) register(n *fakeNode, supersedes []sharding.Incarnation) {
	owned := map[sharding.TypeName][]protocol.ShardEpoch{}
	var out []protocol.TypeShards
	for _, g := range n.regions {
		for i := sharding.ShardID(0); i < sharding.ShardID(g.NumShards); i++ {
			if r := n.records[TypeShard{g.Type, i}]; r.Owner == n.member && r.State == protocol.Homed && !n.unstarted {
				owned[g.Type] = append(owned[g.Type], protocol.ShardEpoch{Shard: i, Epoch: r.Epoch})
			}
		}
		out = append(out, protocol.TypeShards{Type: g.Type, Shards: owned[g.Type]})
	}
	w.toLeader(Received{From: n.member, Message: &protocol.Register{Info: n.info, Regions: n.regions, Owned: out, Applied: n.applied, Supersedes: supersedes}})
	w.renew(n)
}

func (w *world) renew(n *fakeNode) {
	n.seq++
	n.renewed = w.now
	w.toLeader(Received{From: n.member, Message: &protocol.Renew{Seq: n.seq, SentAt: w.now, Applied: n.applied}})
}

// pass lets time go by in steps of 100 ms; nodes renew at a third of the TTL.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now < end; {
		w.now = min(end, w.now.Add(100*time.Millisecond))
		for _, s := range w.servers {
			w.step(s, Ticked{Wall: w.wall()})
		}
		for _, n := range w.sorted() {
			if !n.silent && w.now.Sub(n.renewed) >= w.ttl/3 {
				w.renew(n)
			}
		}
	}
}

func (w *world) printMap(server string, t sharding.TypeName) {
	s := w.machines[server].State()
	for _, r := range s.Shards(t) {
		if r.Epoch == 0 && r.State == protocol.Unassigned {
			continue
		}
		state := r.State.String()
		if r.State == protocol.Fenced {
			state = "fenced"
		}
		line := fmt.Sprintf("%d: %s %s@%d", r.Shard, state, short(r.Owner), r.Epoch)
		if !r.Target.IsZero() {
			line += " to " + short(r.Target)
		}
		if !r.Source.IsZero() {
			line += " from " + short(r.Source)
		}
		w.printf("%s", line)
	}
}

func (w *world) request(q Request) {
	w.requests++
	w.toLeader(Requested{ID: w.requests, Request: q})
}

// same holds every server's snapshot against the first one's (I9).
func (w *world) same(t *testing.T) {
	var first []byte
	for _, s := range w.servers {
		b, err := w.machines[s].Snapshot()
		require.NoError(t, err)
		if first == nil {
			first = b
		}
		require.Equal(t, first, b, "servers that applied the same entries differ (I9)")
		again := NewState(Mutations{})
		require.NoError(t, again.Restore(b))
		b2, err := again.Snapshot()
		require.NoError(t, err)
		require.Equal(t, b, b2, "restore changes the snapshot")
	}
}

type args struct{ *datadriven.TestData }

func (a args) str(key, def string) string {
	for _, c := range a.CmdArgs {
		if c.Key == key {
			if len(c.Vals) > 0 {
				return c.Vals[0]
			}
			return "true"
		}
	}
	return def
}

func (a args) num(key string, def int) int {
	n, err := strconv.Atoi(a.str(key, strconv.Itoa(def)))
	if err != nil {
		panic(err)
	}
	return n
}

// seq gives a number that may be left out.
func (a args) seq(key string) *uint64 {
	if !a.has(key) {
		return nil
	}
	n := uint64(a.num(key, 0))
	return &n
}

func (a args) has(key string) bool { return a.str(key, "") != "" }

// shards reads the bare numbers and ranges among the arguments.
func (a args) shards() (out []sharding.ShardID) {
	for _, c := range a.CmdArgs {
		lo, hi, ranged := strings.Cut(c.Key, "-")
		n, err := strconv.Atoi(lo)
		if err != nil || len(c.Vals) > 0 {
			continue
		}
		m := n
		if ranged {
			m, _ = strconv.Atoi(hi)
		}
		for ; n <= m; n++ {
			out = append(out, sharding.ShardID(n))
		}
	}
	return out
}

func (w *world) exec(t *testing.T, d *datadriven.TestData) {
	a := args{d}
	arg := func(i int) string { return d.CmdArgs[i].Key }
	typ := sharding.TypeName(a.str("type", "t"))
	switch d.Cmd {
	case "servers": // servers x y [window=N]: raft servers
		for i, c := range d.CmdArgs {
			if len(c.Vals) > 0 {
				continue
			}
			w.servers = append(w.servers, arg(i))
			w.machines[arg(i)] = New(Config{Self: who(arg(i)), Seed: uint64(i), StartWindow: a.num("window", 0)})
		}
	case "ttl": // ttl 300ms: of leases, before create or by configuration
		var err error
		w.ttl, err = time.ParseDuration(arg(0))
		require.NoError(t, err)
		if w.leader != "" && w.machines[w.leader].Leading() {
			if _, created := w.machines[w.leader].State().ClusterID(); created {
				w.request(Configure{Settings: protocol.Settings{LeaseTTL: w.ttl.Milliseconds()}})
			}
		}
	case "show-starts": // say which StartShard nodes get from now on
		w.starts = true
	case "elect": // elect x: x leads in the next term
		if w.leader != "" && !a.has("unnoticed") {
			w.step(w.leader, Deposed{})
		}
		w.leader = arg(0)
		w.term++
		w.step(w.leader, Elected{Term: w.term})
	case "barrier": // the barrier of the present term passes
		w.step(w.leader, BarrierDone{Term: w.term})
	case "create": // create the cluster
		w.request(CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(99), Label: "test", Settings: protocol.Settings{LeaseTTL: w.ttl.Milliseconds()}}})
	case "node": // node a [shards=N] [strategy=S] [proxy] [eager expect=N] [supersedes=a1]: a node starts and registers
		n := w.nodes[who(arg(0))]
		if n == nil {
			n = newFakeNode(who(arg(0)))
			w.nodes[n.member] = n
		}
		g := protocol.RegionInfo{Type: typ, NumShards: uint32(a.num("shards", 6)), Hosts: !a.has("proxy"), Role: "compute"}
		if s := a.str("strategy", ""); s != "" {
			g.Strategy = specOf(s)
		}
		if a.has("eager") {
			g.Place, g.Expect = "eager", uint32(a.num("expect", 1))
		}
		n.info = protocol.NodeInfo{Address: string(n.member.Node) + ":1", Roles: []string{a.str("role", "compute")}, Capacity: 100, Version: "1"}
		n.regions = []protocol.RegionInfo{g}
		n.silent = false
		var old []sharding.Incarnation
		if s := a.str("supersedes", ""); s != "" {
			old = []sharding.Incarnation{who(s).Incarnation}
		}
		w.register(n, old)
	case "silence": // silence a: it is paused, cut off or dead
		w.nodes[who(arg(0))].silent = true
	case "wake": // wake a: it goes on where it was
		w.nodes[who(arg(0))].silent = false
		w.renew(w.nodes[who(arg(0))])
	case "stuck": // stuck a [off]: its entities do not stop
		w.nodes[who(arg(0))].stuck = !a.has("off")
	case "unstarted": // unstarted a [off]: it does not confirm StartShard
		w.nodes[who(arg(0))].unstarted = !a.has("off")
	case "started": // started a 3 epoch=1: ShardStarted comes in
		w.toLeader(Received{From: who(arg(0)), Message: &protocol.ShardStarted{Type: typ, Shards: []protocol.ShardEpoch{{Shard: a.shards()[0], Epoch: sharding.Epoch(a.num("epoch", 1))}}}})
	case "contact": // contact a 0-3: node a has messages for these shards
		w.toLeader(Received{From: who(arg(0)), Message: &protocol.GetShardHome{Type: typ, Shards: a.shards()}})
	case "pass": // pass 1s: time goes by
		dur, err := time.ParseDuration(arg(0))
		require.NoError(t, err)
		w.pass(dur)
	case "map": // the shards that were ever granted
		w.printMap(a.str("server", w.leader), typ)
	case "members":
		for _, r := range w.machines[w.leader].State().Members() {
			w.printf("%s draining=%t", short(r.Member), r.Draining)
		}
	case "strategy": // strategy ok|trap|fuel|budget|missing: how calls end from now on
		w.strategy = arg(0)
	case "show-strategy":
		v, _ := w.machines[w.leader].State().Strategy(typ)
		w.printf("%d: %s worked=%t failed=%q", v.Seq, v.Spec.Source, v.Worked, v.Failed.Source)
	case "swap": // swap NAME [expect=N]
		w.request(SwapStrategy{Type: typ, Spec: specOf(arg(0)), Expect: a.seq("expect")})
	case "shadow": // shadow NAME|off [expect=N] [shadow=N]
		q := SetShadow{Type: typ, Expect: a.seq("expect"), Shadow: a.seq("shadow")}
		if arg(0) != "off" {
			q.Spec = specOf(arg(0))
		}
		w.request(q)
	case "promote": // promote [expect=N] [shadow=N]
		w.request(PromoteShadow{Type: typ, Expect: a.seq("expect"), Shadow: a.seq("shadow")})
	case "rollback": // rollback [expect=N]
		w.request(RollBack{Type: typ, Expect: a.seq("expect")})
	case "show-shadow": // what is said of the shadow, and the comparisons that it was asked in since the last look
		v, _ := w.machines[w.leader].State().Strategy(typ)
		if v.Shadow.On() {
			w.printf("shadow %d: %s", v.Shadow.Seq, v.Shadow.Spec.Source)
		}
		if v.HasPrevious {
			w.printf("before it: %s", v.Previous.Source)
		}
		for _, s := range slices.Sorted(maps.Keys(w.shadows)) {
			w.printf("asked %s", s)
		}
		clear(w.shadows)
	case "show-prepared": // say which strategies servers are told to make ready from now on
		w.prepared = true
	case "drain": // drain a [off]
		w.request(DrainNode{Node: who(arg(0)).Node, On: !a.has("off")})
	case "move": // move 3 to=b
		w.request(MoveShard{Type: typ, Shard: a.shards()[0], To: who(a.str("to", "")).Node})
	case "pin": // pin 3 [to=b]
		q := PinShard{Type: typ, Shard: a.shards()[0]}
		if a.has("to") {
			q.Node = who(a.str("to", "")).Node
		}
		w.request(q)
	case "pause":
		w.request(Pause{On: !a.has("off")})
	case "forget":
		w.request(ForgetNode{Node: who(arg(0)).Node})
	case "stopping": // stopping a [drain]: the node says so
		if n := w.nodes[who(arg(0))]; !a.has("drain") {
			clear(n.serves)
		}
		w.toLeader(Received{From: who(arg(0)), Message: &protocol.Stopping{Drain: a.has("drain")}})
	case "complete", "stopped": // complete a 3 epoch=1: HandOffComplete or ShardsStopped comes in
		i, e := a.shards()[0], sharding.Epoch(a.num("epoch", 1))
		var msg protocol.Message = &protocol.HandOffComplete{Type: typ, Shard: i, Epoch: e}
		if d.Cmd == "stopped" {
			msg = &protocol.ShardsStopped{Type: typ, Shards: []protocol.ShardEpoch{{Shard: i, Epoch: e}}}
		}
		w.toLeader(Received{From: who(arg(0)), Message: msg})
	case "hold": // proposals stay uncommitted from now on, barriers do not pass
		w.hold = true
	case "release": // release [term=N]: held entries commit, carried by raft entries of that term
		w.hold = false
		held := w.held
		w.held = nil
		for _, e := range held {
			w.commit(uint64(a.num("term", int(w.term))), e)
		}
	case "held":
		for _, e := range w.held {
			w.printf("%s term %d", e.Kind, e.Term)
		}
	case "explain": // explain 3
		e, _ := w.machines[w.leader].State().Explain(typ, a.shards()[0])
		w.printf("%s: %s verdict=%s seq=%d pass=%t reason=%q", short(e.Record.Owner), e.Decision.Cause, e.Decision.Verdict, e.Decision.Seq, e.Decision.Pass != 0, e.Decision.Reason+e.Reason)
	case "hold-asks": // questions to the strategy stay open from now on
		w.holdAsks = true
	case "answer-asks":
		w.holdAsks = false
		asks := w.asks
		w.asks = nil
		for _, c := range asks {
			w.asked(c)
		}
	case "sees": // sees a up|failed|left: Serf's word
		st := map[string]MemberStatus{"up": MemberUp, "failed": MemberFailed, "left": MemberLeft, "suspect": MemberSuspect}
		for _, s := range w.servers {
			w.step(s, MemberSeen{Member: who(arg(0)), Status: st[arg(1)]})
		}
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	w.same(t)
}

// TestStories runs the stories in testdata: prose first, then every command once. Their output is checked word for word.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var out strings.Builder
		w := newWorld(&out)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out.Reset()
			w.exec(t, d)
			if out.Len() == 0 {
				return "ok\n"
			}
			return out.String()
		})
	})
}
