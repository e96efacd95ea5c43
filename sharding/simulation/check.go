package simulation

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Checker judges one invariant of ADR 3. Observe is given every fact in order; an error is a violation.
type Checker interface {
	Name() string
	Observe(f Fact) error
}

// Checkers gives a fresh checker for each invariant.
func Checkers(bounds Bounds) []Checker {
	return []Checker{
		newOneOwner(), newEpochsGrow(), newCovered(), newTermFence(), newBarrier(), newRecheck(), newLongestTTL(bounds), newRevisions(), newSameState(),
		newOneHandOff(), newNothingLost(bounds), newOrder(), newAskEnds(), newBufferBounds(), newProgress("I15"), newReasons(bounds), newProgress("I17"),
		newStored(), newDecides(), newSettles(),
	}
}

// Bounds are the times of a run that checkers need, in nanoseconds.
type Bounds struct {
	HandOff  int64 // time-out of a handoff
	LeaseTTL int64 // of the cluster, all run long but with Options.Raise
	Memory   int64 // how long a disturbance excuses a lapse (I16)
	Lag      int64 // how long after a stream was down a message may still be lost through it (I11)
}

// generation is one epoch of a shard at one member.
type generation struct {
	member sharding.Member
	key    ShardKey
	epoch  sharding.Epoch
}

// oneOwner is I1.
type oneOwner struct {
	newest map[ShardKey]generation // highest epoch that has begun a message
}

func newOneOwner() *oneOwner     { return &oneOwner{map[ShardKey]generation{}} }
func (c *oneOwner) Name() string { return "I1 one live owner" }
func (c *oneOwner) Observe(f Fact) error {
	switch f := f.(type) {
	case Begun:
		top := c.newest[f.Key]
		if f.Epoch < top.epoch {
			return fmt.Errorf("%v begins a message of %v in epoch %d after %v has begun one in epoch %d", f.Member, f.Key, f.Epoch, top.member, top.epoch)
		}
		if f.Epoch == top.epoch && top.member != f.Member {
			return fmt.Errorf("%v and %v both serve %v in epoch %d", f.Member, top.member, f.Key, f.Epoch)
		}
		if f.Epoch > top.epoch {
			c.newest[f.Key] = generation{f.Member, f.Key, f.Epoch}
		}
	case Effected:
		if top := c.newest[f.Key]; f.Epoch < top.epoch {
			return fmt.Errorf("a reply of %v leaves %v in epoch %d after %v has begun a message in epoch %d", f.Key, f.Member, f.Epoch, top.member, top.epoch)
		}
	}
	return nil
}

// epochsGrow is I2.
type epochsGrow struct{ epoch map[ShardKey]sharding.Epoch }

func newEpochsGrow() *epochsGrow   { return &epochsGrow{map[ShardKey]sharding.Epoch{}} }
func (c *epochsGrow) Name() string { return "I2 epochs grow" }
func (c *epochsGrow) Observe(f Fact) error {
	a, ok := f.(Applied)
	if !ok {
		return nil
	}
	for _, ch := range a.Changes {
		last, now := c.epoch[ch.Key], ch.After.Epoch
		granted := serving(ch.After.State) && (!serving(ch.Before.State) || ch.After.Owner != ch.Before.Owner || now != ch.Before.Epoch)
		if granted && (now <= last || ch.After.Granted != a.Index) {
			return fmt.Errorf("entry %d grants %v to %v in epoch %d (granted at %d) after epoch %d", a.Index, ch.Key, ch.After.Owner, now, ch.After.Granted, last)
		}
		if now < last {
			return fmt.Errorf("entry %d takes %v back to epoch %d from %d", a.Index, ch.Key, now, last)
		}
		c.epoch[ch.Key] = now
	}
	return nil
}

// serving says whether the owner of a shard in this state is covered by its lease.
func serving(s protocol.ShardState) bool { return s == protocol.Homed || s == protocol.Moving }

// covered is I3. It keeps the map's history and works out, from the acknowledgements that reached a member, until when each of its
// generations may be served.
type covered struct {
	history map[ShardKey][]protocol.ShardRecord
	since   map[ShardKey][]uint64 // index at which each record of history came
	keys    []ShardKey            // of history, in the order in which they came up
	until   map[generation]sharding.Instant
}

func newCovered() *covered {
	return &covered{map[ShardKey][]protocol.ShardRecord{}, map[ShardKey][]uint64{}, nil, map[generation]sharding.Instant{}}
}
func (c *covered) Name() string { return "I3 covered before served" }
func (c *covered) Observe(f Fact) error {
	switch f := f.(type) {
	case Applied:
		for _, ch := range f.Changes {
			if _, known := c.history[ch.Key]; !known {
				c.keys = append(c.keys, ch.Key)
			}
			c.history[ch.Key] = append(c.history[ch.Key], ch.After)
			c.since[ch.Key] = append(c.since[ch.Key], f.Index)
		}
	case Acked:
		until := f.Ack.SentAt + sharding.Instant(f.Ack.TTL*1e6)
		for _, key := range c.keys {
			since := c.since[key]
			for i := len(since) - 1; i >= 0; i-- {
				if since[i] > f.Ack.Revision.Index {
					continue
				}
				if r := c.history[key][i]; r.Owner == f.Member && serving(r.State) {
					g := generation{f.Member, key, r.Epoch}
					c.until[g] = max(c.until[g], until)
				}
				break
			}
		}
	case Begun:
		return c.check(generation{f.Member, f.Key, f.Epoch}, f.At, "begins a message")
	case Effected:
		return c.check(generation{f.Member, f.Key, f.Epoch}, f.At, "lets a reply leave")
	}
	return nil
}

func (c *covered) check(g generation, at sharding.Instant, what string) error {
	if until, known := c.until[g]; !known {
		return fmt.Errorf("%v %s for %v in epoch %d, which no acknowledgement covers", g.member, what, g.key, g.epoch)
	} else if at >= until {
		return fmt.Errorf("%v %s for %v in epoch %d %d ms after its lease has lapsed", g.member, what, g.key, g.epoch, (at-until)/1e6)
	}
	return nil
}

// termFence is I4.
type termFence struct{ newest map[sharding.Member]uint64 }

func newTermFence() *termFence    { return &termFence{map[sharding.Member]uint64{}} }
func (c *termFence) Name() string { return "I4 term fence" }
func (c *termFence) Observe(f Fact) error {
	j, ok := f.(Judged)
	if !ok {
		return nil
	}
	newest := c.newest[j.Member]
	genuine := j.Coordinator && j.From == j.Leader && j.Term >= newest
	if !genuine && j.Effects > 0 {
		return fmt.Errorf("%v acts on frame kind %d of term %d from %v (coordinator: %v); it has seen term %d, and term %d is led by %v",
			j.Member, j.Kind, j.Term, j.From, j.Coordinator, newest, j.Term, j.Leader)
	}
	if genuine {
		c.newest[j.Member] = j.Term
	}
	return nil
}

// barrier is I5.
type barrier struct {
	passed map[sharding.Member]uint64 // newest term
}

func newBarrier() *barrier      { return &barrier{map[sharding.Member]uint64{}} }
func (c *barrier) Name() string { return "I5 barrier" }
func (c *barrier) Observe(f Fact) error {
	switch f := f.(type) {
	case Barriered:
		c.passed[f.Member] = max(c.passed[f.Member], f.Term)
	case Acted:
		term := max(f.Leads, f.Term)
		if f.Entry != nil {
			term = max(term, f.Entry.Term)
		}
		if passed := c.passed[f.Member]; passed < term || passed == 0 {
			return fmt.Errorf("%v does %s in term %d, and the last barrier that it passed is of term %d", f.Member, f.What, term, passed)
		}
	}
	return nil
}

// recheck is I6.
type recheck struct{}

func newRecheck() recheck    { return recheck{} }
func (recheck) Name() string { return "I6 rechecked at apply" }
func (recheck) Observe(f Fact) error {
	a, ok := f.(Applied)
	if !ok {
		return nil
	}
	for _, ch := range a.Changes {
		b, n := ch.Before, ch.After
		bad := func(format string, args ...any) error {
			return fmt.Errorf("entry %d (kind %d): %v: %s", a.Index, a.Entry.Kind, ch.Key, fmt.Sprintf(format, args...))
		}
		if a.Entry.Term != a.Term {
			return bad("changed by an entry of term %d that was committed in term %d", a.Entry.Term, a.Term)
		}
		if d := decision(a.Entry); d != nil && d.Cause != protocol.CauseOperator && d.Seq != a.Strategy {
			return bad("decided by strategy %d, and %d is in force", d.Seq, a.Strategy)
		}
		if err := asNamed(a.Entry, ch); err != nil {
			return bad("%v", err)
		}
		switch {
		case n.State == protocol.Moving && b.State != protocol.Moving:
			if b.State != protocol.Homed || n.Owner != b.Owner || n.Epoch != b.Epoch {
				return bad("moves from %v of %v epoch %d while it is %v of %v epoch %d", n.State, n.Owner, n.Epoch, b.State, b.Owner, b.Epoch)
			}
			if pin, pinned := a.Pins[ch.Key]; pinned && n.Target.Node != pin && !a.Members[b.Owner].Draining {
				return bad("is pinned to %s and moves away", pin)
			}
			if err := fitTarget(a, ch.Key, n); err != nil {
				return bad("%v", err)
			}
			if err := planned(a, ch); err != nil {
				return bad("%v", err)
			}
		case n.State == protocol.Moving && a.Entry.Kind == protocol.KindDeregister && n.Target.IsZero(): // the target has gone
		case n.State == protocol.Moving && (n.Target != b.Target || n.Owner != b.Owner || n.Epoch != b.Epoch):
			return bad("is busy and is moved again, to %v", n.Target)
		case n.State == protocol.Homed && a.Entry.Kind == protocol.KindAssignHomes:
			if b.State != protocol.Unassigned {
				return bad("gets a home while %v at %v", b.State, b.Owner)
			}
			if m, ok := a.Members[n.Owner]; !ok || !m.Hosts[ch.Key.Type] || m.Draining {
				return bad("gets a home at %v, which is not registered for the type or is draining", n.Owner)
			}
		case n.State == protocol.Homed && n.Owner != b.Owner:
			if m, ok := a.Members[n.Owner]; !ok || !m.Hosts[ch.Key.Type] || m.Draining {
				return bad("goes to %v, which is not fit", n.Owner)
			}
		}
	}
	return nil
}

// decision is what an entry of moves or homes follows from; nil: it is none.
func decision(e *protocol.Entry) *protocol.Decision {
	switch {
	case e.PlanMoves != nil:
		return &e.PlanMoves.Decision
	case e.AssignHomes != nil:
		return &e.AssignHomes.Decision
	}
	return nil
}

// asNamed holds a change against the shard and epoch that the entry was proposed on; entries about members name none.
func asNamed(e *protocol.Entry, ch Change) error {
	var named []protocol.ShardEpoch
	switch {
	case e.AssignHomes != nil:
		for _, h := range e.AssignHomes.Homes {
			named = append(named, protocol.ShardEpoch{Shard: h.Shard, Epoch: h.Epoch})
		}
	case e.CompleteHandOff != nil:
		if c := e.CompleteHandOff; c.From != ch.Before.Owner {
			return fmt.Errorf("handed off by %v, and %v has it", c.From, ch.Before.Owner)
		}
		named = append(named, protocol.ShardEpoch{Shard: e.CompleteHandOff.Shard, Epoch: e.CompleteHandOff.Epoch})
	case e.FenceShards != nil:
		named = e.FenceShards.Shards
	case e.ReleaseShards != nil:
		named = e.ReleaseShards.Shards
	default:
		return nil
	}
	if want := (protocol.ShardEpoch{Shard: ch.Key.Shard, Epoch: ch.Before.Epoch}); !slices.Contains(named, want) {
		return fmt.Errorf("changes in epoch %d, which the entry does not name", ch.Before.Epoch)
	}
	return nil
}

// fitTarget checks the target of a move that begins.
func fitTarget(a Applied, key ShardKey, n protocol.ShardRecord) error {
	if n.Target.IsZero() {
		return nil
	}
	if n.Target == n.Owner {
		return fmt.Errorf("moves from %v to itself", n.Owner)
	}
	m, ok := a.Members[n.Target]
	if !ok || !m.Hosts[key.Type] {
		return fmt.Errorf("moves to %v, which is not registered for the type", n.Target)
	}
	if m.Draining {
		return fmt.Errorf("moves to %v, which is draining", n.Target)
	}
	return nil
}

// planned checks a move that begins against the plan in the entry.
func planned(a Applied, ch Change) error {
	if a.Entry.PlanMoves == nil {
		return fmt.Errorf("begins to move without a plan")
	}
	for _, m := range a.Entry.PlanMoves.Moves {
		if m.Shard == ch.Key.Shard {
			if m.From != ch.Before.Owner || m.Epoch != ch.Before.Epoch {
				return fmt.Errorf("planned on %v epoch %d moves though %v has it in epoch %d", m.From, m.Epoch, ch.Before.Owner, ch.Before.Epoch)
			}
			return nil
		}
	}
	return fmt.Errorf("begins to move and is not in the plan")
}

// longestTTL is I7.
type longestTTL struct {
	ttl     int64
	barrier map[sharding.Member]Barriered
	back    map[[2]sharding.Member]bool // (leader, member): registered since the leader's barrier
	owner   map[ShardKey]sharding.Member
}

func newLongestTTL(b Bounds) *longestTTL {
	return &longestTTL{b.LeaseTTL, map[sharding.Member]Barriered{}, map[[2]sharding.Member]bool{}, map[ShardKey]sharding.Member{}}
}
func (c *longestTTL) Name() string { return "I7 longest TTL" }
func (c *longestTTL) Observe(f Fact) error {
	switch f := f.(type) {
	case Elected:
		delete(c.barrier, f.Member)
	case Barriered:
		c.barrier[f.Member] = f
		for k := range c.back { // unordered: each entry is judged alone
			if k[0] == f.Member {
				delete(c.back, k)
			}
		}
	case RegisterReceived:
		c.back[[2]sharding.Member{f.Leader, f.Member}] = true
	case Applied:
		for _, ch := range f.Changes {
			c.owner[ch.Key] = ch.After.Owner
		}
	case Acted:
		if f.Entry == nil {
			return nil
		}
		if d := f.Entry.Deregister; d != nil && d.Cause == protocol.CauseLapsed {
			return c.lapsed(f, d.Member)
		}
		if r := f.Entry.ReleaseShards; r != nil && r.Cause == protocol.CauseLapsed {
			for _, se := range r.Shards {
				if err := c.lapsed(f, c.owner[ShardKey{r.Type, se.Shard}]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lapsed judges a leader that takes a member's lease as lapsed.
func (c *longestTTL) lapsed(f Acted, gone sharding.Member) error {
	b, ok := c.barrier[f.Member]
	if !ok || c.back[[2]sharding.Member{f.Member, gone}] {
		return nil
	}
	if waited := int64(f.At - b.At); waited < c.ttl+c.ttl/10 {
		return fmt.Errorf("%v takes %v as lapsed %d ms after its barrier, and leases may run for %d ms with margin", f.Member, gone, waited/1e6, (c.ttl+c.ttl/10)/1e6)
	}
	return nil
}

// revisions is I8.
type revisions struct {
	last map[sharding.Member]sharding.Revision
}

func newRevisions() *revisions    { return &revisions{map[sharding.Member]sharding.Revision{}} }
func (c *revisions) Name() string { return "I8 revisions strictly increase" }
func (c *revisions) Observe(f Fact) error {
	a, ok := f.(Advanced)
	if !ok {
		return nil
	}
	last, known := c.last[a.Member]
	if known && !last.Less(a.Revision) {
		return fmt.Errorf("%v goes from revision %v to %v", a.Member, last, a.Revision)
	}
	c.last[a.Member] = a.Revision
	return nil
}

// sameState is I9.
type sameState struct{ first map[uint64]Digested }

func newSameState() *sameState    { return &sameState{map[uint64]Digested{}} }
func (c *sameState) Name() string { return "I9 same log, same state" }
func (c *sameState) Observe(f Fact) error {
	d, ok := f.(Digested)
	if !ok {
		return nil
	}
	first, known := c.first[d.Index]
	if !known {
		c.first[d.Index] = d
	} else if first.Digest != d.Digest {
		return fmt.Errorf("the snapshots of %v and %v at index %d differ", first.Server, d.Server, d.Index)
	}
	return nil
}

// oneHandOff is I10.
type oneHandOff struct{ begun map[generation]bool }

func newOneHandOff() *oneHandOff   { return &oneHandOff{map[generation]bool{}} }
func (c *oneHandOff) Name() string { return "I10 one handoff" }
func (c *oneHandOff) Observe(f Fact) error {
	switch f := f.(type) {
	case HandOffTaken:
		g := generation{f.Member, f.Key, f.Epoch}
		switch {
		case f.Began && c.begun[g]:
			return fmt.Errorf("%v hands off %v epoch %d twice", f.Member, f.Key, f.Epoch)
		case f.Began && !f.Owned:
			return fmt.Errorf("%v hands off %v epoch %d, which it does not own", f.Member, f.Key, f.Epoch)
		case !f.Began && !f.Answered:
			return fmt.Errorf("%v does not answer a repeated or foreign HandOff of %v epoch %d", f.Member, f.Key, f.Epoch)
		}
		if f.Began {
			c.begun[g] = true
		}
	case Delivered:
		if !f.Running {
			return fmt.Errorf("%v delivers to %v epoch %d, which does not run there or is being stopped", f.Member, f.Key, f.Epoch)
		}
	}
	return nil
}

// bufferBounds is I14.
type bufferBounds struct{}

func newBufferBounds() bufferBounds { return bufferBounds{} }
func (bufferBounds) Name() string   { return "I14 bounds" }
func (bufferBounds) Observe(f Fact) error {
	b, ok := f.(Buffered)
	if ok && (b.Messages > b.MaxMessages || b.Bytes > b.MaxByt) {
		return fmt.Errorf("the region %s on %v holds %d messages and %d bytes; its bounds are %d and %d", b.Type, b.Member, b.Messages, b.Bytes, b.MaxMessages, b.MaxByt)
	}
	return nil
}

// progress is I15 and I17: what was probed after the faults.
type progress struct{ invariant string }

func newProgress(invariant string) progress { return progress{invariant} }
func (c progress) Name() string {
	if c.invariant == "I15" {
		return "I15 every contacted shard serves"
	}
	return "I17 a stuck shard holds up only itself"
}
func (c progress) Observe(f Fact) error {
	if p, ok := f.(Probed); ok && p.Invariant == c.invariant && !p.OK {
		return fmt.Errorf("%s", p.Detail)
	}
	return nil
}
