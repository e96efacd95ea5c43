package simulation

import (
	"fmt"
	"slices"
	"sort"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// nothingLost is I11: no message begins twice, and one that never began has an excuse, something beyond a planned move between live nodes. One
// of which nothing more was heard is where it was last seen: its stream broke, or that process has ended. One that was given up has its excuse in
// what happened until then to the processes and streams on its way.
type nothingLost struct {
	bounds   Bounds
	messages map[protocol.Command]*message
	order    []*message
	owners   map[ShardKey][]ownedSince
	excuses  []Disturbed // by time
	died     map[sharding.Member]int64
	fenced   map[sharding.Member][]int64 // when it was taken out of the map: its holds ended, and to the others it is no live node for a while
}

type message struct {
	Submitted
	begun, expired bool
	ended, reason  string          // how and why it was given up; "": that was not heard of
	endedAt        int64           // when
	in             sharding.Member // which process it was last seen in
	to             sharding.Member // and on the way to which; zero: none
	seen           int64
}

type ownedSince struct {
	global int64
	owner  sharding.Member
}

func newNothingLost(b Bounds) *nothingLost {
	return &nothingLost{bounds: b, messages: map[protocol.Command]*message{}, owners: map[ShardKey][]ownedSince{}, died: map[sharding.Member]int64{}, fenced: map[sharding.Member][]int64{}}
}
func (c *nothingLost) Name() string { return "I11 nothing lost or doubled" }
func (c *nothingLost) Observe(f Fact) error {
	switch f := f.(type) {
	case Submitted:
		m := &message{Submitted: f, in: f.Member, seen: f.Global}
		c.messages[f.Command] = m
		c.order = append(c.order, m)
	case Begun:
		m := c.messages[f.Command]
		if m == nil {
			return fmt.Errorf("%v begins %v, which nobody sent", f.Member, f.Command)
		}
		if m.begun {
			return fmt.Errorf("%v begins message %d of %v for %v in epoch %d, and it has begun before", f.Member, f.Command.Seq, m.Member, f.Key, f.Epoch)
		}
		m.begun = true
	case Carried:
		if m := c.messages[f.Command]; m != nil {
			m.in, m.to, m.seen = f.From, f.To, f.Global
		}
	case Came:
		if m := c.messages[f.Command]; m != nil {
			m.in, m.to, m.seen = f.Member, sharding.Member{}, f.Global
		}
	case DeadLettered:
		if m := c.messages[f.Command]; m != nil {
			m.ended, m.reason, m.endedAt = "dead letter: "+f.Reason, f.Reason, f.Global
		}
	case Replied:
		if m := c.messages[f.Command]; m != nil && f.Status != protocol.StatusOK {
			m.expired = m.expired || f.Global-m.Global >= m.Wait*9/10-5e6 // by the clock of whoever held it
			m.reason, m.endedAt = f.Reason, f.Global
			m.ended = fmt.Sprintf("reply with status %d at %d ms: %s", f.Status, f.Global/1e6, f.Reason)
		}
	case Expired:
		if m := c.messages[f.Command]; m != nil {
			m.expired = true
		}
	case Applied:
		if d := f.Entry.Deregister; d != nil {
			c.fenced[d.Member] = append(c.fenced[d.Member], f.Global)
		}
		for _, ch := range f.Changes {
			if ch.After.Owner != ch.Before.Owner && !ch.After.Owner.IsZero() {
				c.owners[ch.Key] = append(c.owners[ch.Key], ownedSince{f.Global, ch.After.Owner})
			}
			lost := ch.After.State == protocol.Fenced || f.Entry.Kind == protocol.KindDeregister
			if lost {
				c.excuses = append(c.excuses, Disturbed{Global: f.Global, Kind: DisturbedShard, Key: ch.Key})
			}
		}
	case Disturbed:
		if f.Kind == DisturbedProcess {
			c.died[f.A] = f.Global
		}
		if f.Kind != DisturbedMember {
			c.excuses = append(c.excuses, f)
		}
	case Ended:
		for _, m := range c.order {
			if m.begun || m.expired || m.ended != "" && c.excused(m) || m.ended == "" && c.vanished(m) {
				continue
			}
			end := m.ended
			switch {
			case end != "":
			case m.to.IsZero():
				end = fmt.Sprintf("nothing was heard of it since it was with %v at %d ms", m.in, m.seen/1e6)
			default:
				end = fmt.Sprintf("nothing was heard of it since %v sent it to %v at %d ms", m.in, m.to, m.seen/1e6)
			}
			return fmt.Errorf("message %d of %v for %v (%q), sent at %d ms, never began, and nothing but planned moves happened on its way; %s",
				m.Command.Seq, m.Member, m.Key, m.Entity, m.Global/1e6, end)
		}
	}
	return nil
}

// vanished says whether a message of which nothing more was heard may have ended with its process or stream.
func (c *nothingLost) vanished(m *message) bool {
	if m.Ask != 0 && c.died[m.Member] >= m.Global {
		return true // whoever was to hear of it has ended
	}
	if m.to.IsZero() {
		return c.died[m.in] >= m.seen
	}
	from, to := m.seen-c.bounds.Lag, m.seen+stallTime
	first := sort.Search(len(c.excuses), func(i int) bool { return c.excuses[i].Global >= from })
	for _, e := range c.excuses[first:] {
		switch {
		case e.Global > to:
			return false
		case e.Kind == DisturbedProcess && (e.A == m.in || e.A == m.to), // its streams end with it
			e.Kind == DisturbedStream && e.Data && (e.A == m.in && e.B == m.to || e.A == m.to && e.B == m.in):
			return true
		}
	}
	return false
}

// stallTime is for how long a message may be on a stream: a link that is cut stalls it for so long.
const stallTime = int64(5e9)

// oldMap is how old a sender's belief in the owner may be.
const oldMap = int64(10e9)

// What a message is given up for, beside the reasons of the region.
const (
	reasonNoStream = "no stream"
	reasonTaken    = "the shard was taken from its node"
)

// excused says whether something happened to a message that was given up, of the kind that its reason names, until then.
func (c *nothingLost) excused(m *message) bool {
	from, to := m.Global-c.bounds.Lag, m.endedAt
	kinds := []Disturbance{DisturbedStream, DisturbedProcess, DisturbedShard}
	switch m.reason {
	case region.DeadBufferFull:
		kinds = []Disturbance{DisturbedBuffer}
	case reasonNoStream:
		kinds = []Disturbance{DisturbedStream, DisturbedProcess}
	case reasonTaken:
		kinds = []Disturbance{DisturbedShard}
	case region.DeadOvertaken: // the shard had changed hands without handoff, and the sender's map may be as old as that
		kinds = []Disturbance{DisturbedShard}
		from -= oldMap
	case region.DeadLate: // a hold ended early with a stream or member that had gone, and the sender's map was as old as that
		from -= oldMap
	}
	involved := map[sharding.Member]bool{m.Member: true}
	owners := c.owners[m.Key]
	for i, o := range owners {
		if o.global <= to && (i+1 == len(owners) || owners[i+1].global >= m.Global-c.bounds.Lag-oldMap) {
			involved[o.owner] = true
		}
	}
	if m.reason == region.DeadHops { // so many moves that it was forwarded as often as is allowed (spec 3.3)
		moves := 0
		for _, o := range owners {
			if o.global >= from && o.global <= to {
				moves++
			}
		}
		if moves >= protocol.MaxHops {
			return true
		}
	}
	if m.reason == region.DeadLate {
		for member := range involved { // unordered: one of them is enough
			for _, at := range c.fenced[member] {
				if at >= from && at <= to {
					return true
				}
			}
		}
	}
	first := sort.Search(len(c.excuses), func(i int) bool { return c.excuses[i].Global >= from })
	for _, e := range c.excuses[first:] {
		if e.Global > to {
			break
		}
		if !slices.Contains(kinds, e.Kind) {
			continue
		}
		switch e.Kind {
		case DisturbedShard:
			if e.Key == m.Key {
				return true
			}
		case DisturbedStream:
			if e.Data && involved[e.A] && involved[e.B] {
				return true
			}
		default:
			if involved[e.A] {
				return true
			}
		}
	}
	return false
}

// order is I12.
type order struct {
	numbers  map[numbered]uint64
	commands map[numbered]uint64
}

type numbered struct {
	sender sharding.Member
	key    ShardKey
	entity string
}

func newOrder() *order        { return &order{map[numbered]uint64{}, map[numbered]uint64{}} }
func (c *order) Name() string { return "I12 order" }
func (c *order) Observe(f Fact) error {
	b, ok := f.(Begun)
	if !ok {
		return nil
	}
	n := numbered{b.Sender, b.Key, b.Entity}
	if last := c.numbers[n]; b.Seq <= last {
		return fmt.Errorf("%v begins number %d of %v for %v %q after number %d", b.Member, b.Seq, b.Sender, b.Key, b.Entity, last)
	}
	c.numbers[n] = b.Seq
	if last := c.commands[n]; b.Command.Seq <= last {
		return fmt.Errorf("%v begins command %d of %v for %v %q after command %d", b.Member, b.Command.Seq, b.Sender, b.Key, b.Entity, last)
	}
	c.commands[n] = b.Command.Seq
	return nil
}

// askEnds is I13.
type askEnds struct {
	open  map[protocol.Command]*ask
	begun map[protocol.Command]bool
	dead  map[sharding.Member]bool
	order []*ask
}

type ask struct {
	Submitted
	replied     bool
	expired     bool
	unavailable bool
}

func newAskEnds() *askEnds {
	return &askEnds{open: map[protocol.Command]*ask{}, begun: map[protocol.Command]bool{}, dead: map[sharding.Member]bool{}}
}
func (c *askEnds) Name() string { return "I13 an Ask ends" }
func (c *askEnds) Observe(f Fact) error {
	switch f := f.(type) {
	case Submitted:
		if f.Ask != 0 {
			a := &ask{Submitted: f}
			c.open[f.Command] = a
			c.order = append(c.order, a)
		}
	case Begun:
		a := c.open[f.Command]
		if a == nil {
			return nil
		}
		if a.unavailable {
			return fmt.Errorf("%v begins ask %d of %v for %v, which was answered with Unavailable before", f.Member, f.Command.Seq, a.Member, f.Key)
		}
		c.begun[f.Command] = true
	case Replied:
		a := c.open[f.Command]
		switch {
		case a == nil:
			return fmt.Errorf("%v gets a reply to ask %d, which it did not send", f.Member, f.Ask)
		case a.replied:
			return fmt.Errorf("%v gets a second reply to ask %d", f.Member, f.Ask)
		case f.Status == protocol.StatusUnavailable && c.begun[f.Command]:
			return fmt.Errorf("ask %d of %v for %v is answered with Unavailable, and an entity has begun it", f.Ask, f.Member, a.Key)
		case f.Status == protocol.StatusOK && !c.begun[f.Command]:
			return fmt.Errorf("ask %d of %v for %v is answered, and no entity has begun it", f.Ask, f.Member, a.Key)
		case !f.Echo:
			return fmt.Errorf("ask %d of %v for %v gets the reply of another", f.Ask, f.Member, a.Key)
		}
		a.replied = true
		a.unavailable = f.Status == protocol.StatusUnavailable
	case Expired:
		if a := c.open[f.Command]; a != nil {
			a.expired = true
		}
	case Disturbed:
		if f.Kind == DisturbedProcess {
			c.dead[f.A] = true
		}
	case Ended:
		for _, a := range c.order {
			if !a.replied && !a.expired && !c.dead[a.Member] {
				return fmt.Errorf("ask %d of %v for %v, sent at %d ms, has not ended", a.Ask, a.Member, a.Key, a.Global/1e6)
			}
		}
	}
	return nil
}

// reasons is I16.
type reasons struct {
	bounds    Bounds
	passes    map[uint64]sharding.TypeName
	dead      map[sharding.Member]bool
	left      map[sharding.Member]bool
	disturbed map[[2]sharding.Member]int64 // (member, peer or zero): last time
	leaders   map[uint64]sharding.Member
	moving    map[ShardKey]int64        // since when
	proposed  map[*protocol.Entry]int64 // when; an entry may commit much later, with a later leader
}

func newReasons(b Bounds) *reasons {
	return &reasons{b, map[uint64]sharding.TypeName{}, map[sharding.Member]bool{}, map[sharding.Member]bool{}, map[[2]sharding.Member]int64{}, map[uint64]sharding.Member{}, map[ShardKey]int64{}, map[*protocol.Entry]int64{}}
}
func (c *reasons) Name() string { return "I16 nothing moves without a reason" }
func (c *reasons) Observe(f Fact) error {
	switch f := f.(type) {
	case Elected:
		c.leaders[f.Term] = f.Member
	case Disturbed:
		switch f.Kind {
		case DisturbedProcess:
			c.dead[f.A] = true
		case DisturbedMember, DisturbedStream:
			c.disturbed[[2]sharding.Member{f.A, f.B}] = f.Global
			if !f.B.IsZero() {
				c.disturbed[[2]sharding.Member{f.B, f.A}] = f.Global
			}
		}
	case Acted:
		if f.Entry != nil && f.Entry.Deregister != nil {
			c.proposed[f.Entry] = f.Global
		}
	case Left:
		c.left[f.Member] = true
	case Applied:
		if f.Entry.BeginPass != nil {
			c.passes[f.Index] = f.Entry.BeginPass.Type
		}
		for _, ch := range f.Changes {
			if ch.After.State == protocol.Moving && ch.Before.State != protocol.Moving {
				c.moving[ch.Key] = f.Global
			}
			if ch.After.Owner == ch.Before.Owner && ch.After.State == ch.Before.State && ch.After.Epoch == ch.Before.Epoch {
				continue
			}
			if why := c.unreasonable(f, ch); why != "" {
				return fmt.Errorf("entry %d (kind %d) takes %v from %v %v epoch %d to %v %v epoch %d: %s", f.Index, f.Entry.Kind, ch.Key,
					ch.Before.State, ch.Before.Owner, ch.Before.Epoch, ch.After.State, ch.After.Owner, ch.After.Epoch, why)
			}
		}
	}
	return nil
}

// unreasonable says why a change of a shard has no reason, or "".
func (c *reasons) unreasonable(a Applied, ch Change) string {
	e := a.Entry
	switch e.Kind {
	case protocol.KindPlanMoves:
		d := e.PlanMoves.Decision
		if c.passes[d.Pass] != e.PlanMoves.Type && d.Cause != protocol.CauseDrain && d.Cause != protocol.CauseOperator {
			return fmt.Sprintf("no pass, drain or operator asked for it (cause %q, pass %d)", d.Cause, d.Pass)
		}
	case protocol.KindAssignHomes:
		if !ch.Before.Owner.IsZero() {
			return "it had a home"
		}
	case protocol.KindCompleteHandOff:
		if ch.Before.State != protocol.Moving && ch.Before.State != protocol.Fenced {
			return "no handoff was under way"
		}
	case protocol.KindFenceShards:
		if !serving(ch.Before.State) {
			return "it was not being served"
		}
		switch since := a.Global - c.moving[ch.Key]; e.FenceShards.Cause {
		case protocol.CauseStopped: // the owner says so
		case protocol.CauseTimeout:
			if ch.Before.State != protocol.Moving || float64(since) < float64(c.bounds.HandOff)/(1+maxDrift) {
				return fmt.Sprintf("no handoff has timed out: this one has begun %d ms ago", since/1e6)
			}
		default:
			return fmt.Sprintf("cause %q", e.FenceShards.Cause)
		}
	case protocol.KindReleaseShards:
		if ch.Before.State != protocol.Fenced {
			return "it was not fenced"
		}
	case protocol.KindDeregister:
		return c.unfoundedEnd(a, e.Deregister)
	case protocol.KindRegister:
		if before := ch.Before.Owner; before != e.Register.Member && !c.dead[before] {
			return "another member's registration took it"
		}
	default:
		return "entries of this kind move nothing"
	}
	return ""
}

// unfoundedEnd says why a member should not have been taken as ended.
func (c *reasons) unfoundedEnd(a Applied, d *protocol.Deregister) string {
	m := d.Member
	if c.dead[m] {
		return ""
	}
	switch d.Cause {
	case protocol.CauseStopped, protocol.CauseOperator, protocol.CauseDrain:
		if !c.left[m] {
			return fmt.Sprintf("%v did not stop", m)
		}
	case protocol.CauseSuperseded:
		return fmt.Sprintf("%v lives and has no successor", m)
	case protocol.CauseLapsed:
		judged, ok := c.proposed[a.Entry]
		if !ok {
			judged = a.Global
		}
		recent := func(k [2]sharding.Member) bool {
			at, ok := c.disturbed[k]
			return ok && at >= judged-c.bounds.Memory
		}
		if !recent([2]sharding.Member{m, {}}) && !recent([2]sharding.Member{m, c.leaders[a.Entry.Term]}) {
			return fmt.Sprintf("%v was neither stopped nor cut off from the leader for %d ms", m, c.bounds.Memory/1e6)
		}
	default:
		return fmt.Sprintf("cause %q", d.Cause)
	}
	return ""
}
