package region

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// The scripts: one story a file, prose first. Regions are of one shard, so that every entity is in shard 0. Times are ms, members letters.

func TestRegionScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/region", func(t *testing.T, path string) {
		s := &regionScript{}
		datadriven.RunTest(t, path, s.run)
	})
}

func TestSessionScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/session", func(t *testing.T, path string) {
		s := &sessionScript{}
		datadriven.RunTest(t, path, s.run)
	})
}

// args reads the arguments of one line of a script. What is not there is zero.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) str(key string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals[0]
		}
	}
	return ""
}

func (a args) list(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a args) has(key string) bool {
	return slices.ContainsFunc(a.d.CmdArgs, func(arg datadriven.CmdArg) bool { return arg.Key == key })
}

func (a args) num(key string) uint64 {
	v := a.str(key)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return n
}

func (a args) member(key string) sharding.Member {
	if v := a.str(key); v != "" {
		return member(v)
	}
	return sharding.Member{}
}

func (a args) span() (from, to uint64) {
	if v := a.str("range"); v != "" {
		if _, err := fmt.Sscanf(v, "%d-%d", &from, &to); err != nil {
			a.d.Fatalf(a.t, "range %q: %v", v, err)
		}
	}
	return from, to
}

func (a args) record() protocol.ShardRecord {
	r := protocol.ShardRecord{
		Owner: a.member("owner"), Epoch: sharding.Epoch(a.num("epoch")), Granted: a.num("granted"), Source: a.member("source"),
		Chain: sharding.Epoch(a.num("chain")),
	}
	if !r.Owner.IsZero() {
		r.State = protocol.Homed
	}
	switch a.str("state") {
	case "moving":
		r.State = protocol.Moving
	case "fenced":
		r.State = protocol.Fenced
	case "waiting":
		r.State = protocol.Waiting
	}
	return r
}

func ms(n uint64) sharding.Instant { return sharding.Instant(time.Duration(n) * time.Millisecond) }

// payload makes a payload of size bytes.
func (a args) payload() []byte { return make([]byte, a.num("size")) }

type regionScript struct {
	r   *Region
	now sharding.Instant
}

func (s *regionScript) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	if a.has("t") {
		s.now = ms(a.num("t"))
	}
	var ev Event
	switch d.Cmd {
	case "new":
		s.r = New(Config{Self: a.member("self"), Type: "t", NumShards: 1, Hosts: !a.has("proxy"), MaxMessages: int(a.num("messages")),
			MaxBytes: int(a.num("bytes"))})
		for _, m := range "abcdefg" { // the map has them; x, y and z are strangers
			s.r.Step(0, MemberCame{member(string(m))})
		}
		s.now = ms(1000)
		return "ok\n"
	case "map":
		ev = MapChanged{Revision: sharding.Revision{Index: a.num("rev")}, Full: a.has("full"), Records: []protocol.ShardRecord{a.record()}}
	case "map-without":
		ev = MapChanged{Revision: sharding.Revision{Index: a.num("rev")}, Full: true}
	case "home":
		ev = Ordered{&protocol.ShardHome{Type: "t", Shard: a.record()}}
	case "start":
		m := &protocol.StartShard{Type: "t", Shard: a.record(), Handed: a.has("handed")}
		for _, v := range a.list("senders") {
			name, seq, _ := strings.Cut(v, ":")
			n, err := strconv.ParseUint(seq, 10, 64)
			if err != nil {
				d.Fatalf(t, "senders: %v", err)
			}
			m.Senders = append(m.Senders, protocol.SenderSeq{Sender: member(name), Seq: n})
		}
		ev = Ordered{m}
	case "handoff":
		ev = Ordered{&protocol.HandOff{Type: "t", Epoch: sharding.Epoch(a.num("epoch"))}}
	case "kill":
		ev = Ordered{&protocol.KillShard{Type: "t", Epoch: sharding.Epoch(a.num("epoch"))}}
	case "covered":
		ev = Covered{Revision: sharding.Revision{Index: a.num("rev")}, Until: ms(a.num("until"))}
	case "submit":
		m := Submitted{Entity: a.str("to"), Ask: a.num("ask"), Deadline: ms(a.num("deadline")), Payload: a.payload()}
		if m.Ask > 0 {
			m.Mode = protocol.Ask
		}
		ev = m
	case "arrive":
		m := &protocol.Deliver{Type: "t", Shard: sharding.ShardID(a.num("shard")), Entity: a.str("to"), Seq: a.num("seq"), Ask: a.num("ask"),
			Epoch: sharding.Epoch(a.num("epoch")), Origin: sharding.Epoch(a.num("origin")), Sender: a.member("from"), Hops: uint8(a.num("hops")), Deadline: int64(a.num("deadline")), Payload: a.payload()}
		if a.has("sender") {
			m.Sender = a.member("sender")
		}
		if m.Ask > 0 {
			m.Mode = protocol.Ask
		}
		ev = Arrived{a.member("from"), m}
	case "sender-moved":
		from, to := a.span()
		ev = SenderMovedArrived{a.member("from"), protocol.SenderMoved{Type: "t", Epoch: sharding.Epoch(a.num("epoch")), From: from, Seq: to}}
	case "sender-done":
		from, to := a.span()
		ev = SenderDoneArrived{a.member("from"), protocol.SenderDone{Type: "t", Epoch: sharding.Epoch(a.num("epoch")), Sender: a.member("sender"), From: from, Seq: to}}
	case "closed":
		ev = PeerClosed{a.member("peer")}
	case "down":
		ev = PeerDown{a.member("peer")}
	case "up":
		ev = PeerUp{a.member("peer")}
	case "came":
		ev = MemberCame{a.member("peer")}
	case "gone":
		ev = MemberGone{a.member("peer")}
	case "stopped":
		ev = ShardStopped{Epoch: sharding.Epoch(a.num("epoch"))}
	case "effect":
		ev = EffectReady{Epoch: sharding.Epoch(a.num("epoch")), To: a.member("to"), Reply: protocol.Reply{Ask: a.num("ask"), Payload: a.payload()}}
	case "want":
		ev = HomeWanted{}
	case "leader":
		ev = LeaderReached{}
	case "stop":
		ev = RegionStopped{}
	case "tick":
		ev = Ticked{}
	case "state":
		n, b := s.r.Buffered()
		return fmt.Sprintf("owned %s, buffered %d (%d bytes), stats %+v\n", gens(s.r.Owned()), n, b, s.r.Stats())
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return show(s.r.Step(s.now, ev))
}

type sessionScript struct {
	s   *Session
	now sharding.Instant
}

func cluster(name string) (c sharding.Incarnation) {
	copy(c[:], name)
	return c
}

func (s *sessionScript) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	if a.has("t") {
		s.now = ms(a.num("t"))
	}
	term := a.num("term")
	var m protocol.Directive
	var ev Event
	switch d.Cmd {
	case "new":
		s.s = NewSession(SessionConfig{Self: a.member("self"), Regions: []protocol.RegionInfo{{Type: "t", NumShards: 4, Hosts: true}}, ClusterID: cluster(a.str("cluster"))})
		s.now = ms(1000)
		return "ok\n"
	case "leading":
		m = &protocol.Leading{Term: term}
	case "ack":
		ack := &protocol.RegisterAck{Term: term, ClusterID: cluster(a.str("cluster")), LeaseTTL: int64(a.num("ttl"))}
		if code := a.str("refused"); code != "" {
			ack.Refused = []protocol.Refusal{{Type: "t", Code: code}}
		}
		m = ack
	case "lease":
		m = &protocol.LeaseAck{Term: term, Seq: a.num("seq"), SentAt: ms(a.num("sent")), Revision: sharding.Revision{Term: term, Index: a.num("rev")}, TTL: int64(a.num("ttl"))}
	case "map":
		u := &protocol.ShardMapUpdate{Term: term, From: sharding.Revision{Index: a.num("since")}, To: sharding.Revision{Term: term, Index: a.num("rev")}, Full: a.has("full")}
		if a.has("owner") || a.has("epoch") {
			r := a.record()
			r.Shard = sharding.ShardID(a.num("shard"))
			u.Types = []protocol.TypeDelta{{Type: "t", NumShards: 4, Shards: []protocol.ShardRecord{r}}}
		}
		for _, v := range a.list("members") {
			u.Members = append(u.Members, protocol.MemberRecord{Member: member(v)})
		}
		for _, v := range a.list("gone") {
			u.Gone = append(u.Gone, member(v))
		}
		m = u
	case "handoff":
		m = &protocol.HandOff{Term: term, Type: "t", Epoch: sharding.Epoch(a.num("epoch"))}
	case "kill":
		m = &protocol.KillShard{Term: term, Type: "t", Epoch: sharding.Epoch(a.num("epoch"))}
	case "home":
		m = &protocol.ShardHome{Term: term, Type: "t", Shard: a.record()}
	case "start":
		m = &protocol.StartShard{Term: term, Type: "t", Shard: a.record()}
	case "hint":
		ev = LeaderHinted{Leader: a.member("leader"), Term: term}
	case "membership":
		ev = MembershipChanged{}
	case "load":
		cpu := a.num("cpu")
		ev = LoadMeasured{protocol.NodeLoad{CPU: &cpu}}
	case "owned":
		o := OwnedReported{}
		if e := a.num("epoch"); e > 0 {
			o.Owned = []protocol.TypeShards{{Type: "t", Shards: []protocol.ShardEpoch{{Epoch: sharding.Epoch(e)}}}}
		}
		ev = o
	case "renew":
		ev = RenewRequested{}
	case "stop":
		ev = StopRequested{Drain: a.has("drain")}
	case "tick":
		ev = Ticked{}
	case "state":
		leader, term := s.s.Leader()
		var b strings.Builder
		fmt.Fprintf(&b, "leader %s in term %d, revision %s, registered %v, types %v\n", name(leader), term, s.s.Revision(), s.s.Registered(), s.s.Types())
		for r := range s.s.Map("t") {
			fmt.Fprintf(&b, "  shard %d of %d: %s\n", r.Shard, s.s.NumShards("t"), record(r))
		}
		for _, r := range s.s.Members() {
			fmt.Fprintf(&b, "  member %s\n", name(r.Member))
		}
		return b.String()
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	if m != nil {
		ev = DirectiveReceived{From: a.member("from"), Coordinator: !a.has("no-coordinator"), Message: m}
	}
	return show(s.s.Step(s.now, ev))
}

func name(m sharding.Member) string {
	if m.IsZero() {
		return "none"
	}
	return string(m.Node)
}

func gens(g []protocol.ShardEpoch) string {
	var s []string
	for _, e := range g {
		s = append(s, fmt.Sprintf("%d@%d", e.Shard, e.Epoch))
	}
	return "[" + strings.Join(s, " ") + "]"
}

func record(r protocol.ShardRecord) string {
	return fmt.Sprintf("%d@%d %s owner %s granted %d", r.Shard, r.Epoch, r.State, name(r.Owner), r.Granted)
}

func since(t sharding.Instant) string { return time.Duration(t).String() }

func message(m protocol.Message) string {
	switch m := m.(type) {
	case *protocol.Deliver:
		s := fmt.Sprintf("%s %s#%d", m.Entity, name(m.Sender), m.Seq)
		if m.Mode == protocol.Ask {
			s += fmt.Sprintf(" ask %d", m.Ask)
		}
		if m.Hops > 0 {
			s += fmt.Sprintf(" hops %d sent under %d", m.Hops, m.SentUnder())
		}
		if m.Deadline > 0 {
			s += fmt.Sprintf(" within %dms", m.Deadline)
		}
		return s + fmt.Sprintf(" epoch %d", m.Epoch)
	case *protocol.Reply:
		return fmt.Sprintf("Reply ask %d %v %q", m.Ask, m.Status, m.Payload)
	case *protocol.SenderMoved:
		return fmt.Sprintf("SenderMoved %d-%d epoch %d", m.From, m.Seq, m.Epoch)
	case *protocol.SenderDone:
		return fmt.Sprintf("SenderDone %s %d-%d epoch %d", name(m.Sender), m.From, m.Seq, m.Epoch)
	case *protocol.Register:
		return fmt.Sprintf("Register applied %s owned %v", m.Applied, m.Owned)
	case *protocol.Renew:
		s := fmt.Sprintf("Renew %d sent %s applied %s", m.Seq, since(m.SentAt), m.Applied)
		if m.Load != nil {
			s += fmt.Sprintf(" cpu %d", *m.Load.CPU)
		}
		return s
	case *protocol.Stopping:
		return fmt.Sprintf("Stopping %v drain %v", m.Types, m.Drain)
	case *protocol.GetShardHome:
		return fmt.Sprintf("GetShardHome %v", m.Shards)
	case *protocol.HandOffComplete:
		s := fmt.Sprintf("HandOffComplete %d@%d", m.Shard, m.Epoch)
		for _, n := range m.Senders {
			s += fmt.Sprintf(" %s:%d", name(n.Sender), n.Seq)
		}
		return s
	case *protocol.HandOffRefused:
		return fmt.Sprintf("HandOffRefused asked %d, owner %s at %d", m.Asked, name(m.Owner), m.Epoch)
	case *protocol.ShardsStopped:
		return "ShardsStopped " + gens(m.Shards)
	case *protocol.ShardStarted:
		return "ShardStarted " + gens(m.Shards)
	}
	return fmt.Sprintf("%T", m)
}

func show(commands []Command) string {
	if len(commands) == 0 {
		return "nothing\n"
	}
	var b strings.Builder
	for _, c := range commands {
		switch c := c.(type) {
		case *Transmit:
			fmt.Fprintf(&b, "to %s: %s\n", name(c.To), message(c.Message))
		case *DeliverLocal:
			fmt.Fprintf(&b, "deliver at %d@%d: %s\n", c.Shard, c.Epoch, message(c.Deliver))
		case StartLocal:
			fmt.Fprintf(&b, "start %d@%d\n", c.Shard, c.Epoch)
		case ExtendLocal:
			fmt.Fprintf(&b, "extend %s until %s\n", gens(c.Shards), since(c.Until))
		case SuspendLocal:
			fmt.Fprintf(&b, "suspend %s\n", gens(c.Shards))
		case StopLocal:
			fmt.Fprintf(&b, "stop %d@%d\n", c.Shard, c.Epoch)
		case KillLocal:
			fmt.Fprintf(&b, "kill %d@%d\n", c.Shard, c.Epoch)
		case ReplyLocal:
			fmt.Fprintf(&b, "reply: %s\n", message(&c.Reply))
		case DeadLetter:
			fmt.Fprintf(&b, "dead letter (%s): %s\n", c.Reason, message(c.Deliver))
		case DropClaim:
			fmt.Fprintf(&b, "drop claim of %s about %s\n", name(c.From), name(c.Sender))
		case ToCoordinator:
			fmt.Fprintf(&b, "coordinator: %s\n", message(c.Message))
		case RenewNow:
			b.WriteString("renew now\n")
		case OwnedChanged:
			fmt.Fprintf(&b, "owned %s\n", gens(c.Shards))
		case SendLeader:
			fmt.Fprintf(&b, "leader %s: %s\n", name(c.To), message(c.Message))
		case ToRegion:
			fmt.Fprintf(&b, "region %s: %s\n", c.Type, event(c.Event))
		case DropDirective:
			fmt.Fprintf(&b, "drop %d from %s, term %d: %s\n", c.Kind, name(c.From), c.Term, c.Reason)
		case MapAdvanced:
			fmt.Fprintf(&b, "map at %s\n", c.Revision)
		case RegionRefused:
			fmt.Fprintf(&b, "refused %s: %s\n", c.Refusal.Type, c.Refusal.Code)
		case LeaderChanged:
			fmt.Fprintf(&b, "following %s in term %d\n", name(c.Leader), c.Term)
		case Registered:
			fmt.Fprintf(&b, "registered with %s in term %d\n", strings.TrimRight(string(c.ClusterID[:]), "\x00"), c.Term)
		case Drained:
			b.WriteString("drained\n")
		default:
			fmt.Fprintf(&b, "%T\n", c)
		}
	}
	return b.String()
}

func event(ev Event) string {
	switch ev := ev.(type) {
	case MapChanged:
		s := fmt.Sprintf("map %s full %v", ev.Revision, ev.Full)
		for _, r := range ev.Records {
			s += "; " + record(r)
		}
		return s
	case Covered:
		return fmt.Sprintf("covered to %s until %s", ev.Revision, since(ev.Until))
	case Ordered:
		return fmt.Sprintf("ordered %T", ev.Directive)
	case MemberCame:
		return "came " + name(ev.Member)
	case MemberGone:
		return "gone " + name(ev.Member)
	}
	return fmt.Sprintf("%T", ev)
}
