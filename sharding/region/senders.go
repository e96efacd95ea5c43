package region

import (
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Bounds of what peers can make a region keep of senders (spec 2.1: who they are is certain, what they say is not). Members of the map may have an entry
// in each shard; of others there are so many entries in all, and for a peer that sends or speaks for them, and they are kept as long as forgetAfter.
const (
	maxStrangers  = 1 << 16
	maxBrought    = 1 << 12 // they go into the log with a handoff
	maxSpans      = 1 << 16 // settled spans of all senders together
	maxSpansOfOne = 1 << 10 // … of one sender at one shard
)

// sender is what an owner keeps of one sender's numbers.
type sender struct {
	last    uint64          // last begun; no number up to it is begun ever again (I12)
	own     uint64          // last begun of those that the sender brought itself; what is above it in last is others' word
	direct  bool            // all its earlier ways have ended: what it sends comes straight here, and a gap is a loss
	by      sharding.Member // who spoke first of a sender that the map does not have; zero: the map has it
	settled []span          // numbers above last that will not come any more, ascending, apart
	held    []waiting
	since   sharding.Instant // when the hold began, former owners' part included; 0: none. What is held may expire, the hold does not begin anew
}

type span struct{ from, to uint64 }

// passed says whether a message's number cannot be begun any more, at the owner of that epoch. The sender's own word stands above others': what it
// sends straight to an owner under that owner's epoch it has numbered after all that it ever sent to former ones, so a higher number that another peer
// forwarded or handed over is not its own. Without this one forged number would silence a sender for ever.
func (s *sender) passed(d *protocol.Deliver, epoch sharding.Epoch) bool {
	return d.Seq <= s.last && !s.overstated(d, epoch)
}

func (s *sender) overstated(d *protocol.Deliver, epoch sharding.Epoch) bool {
	return d.Seq <= s.last && d.Hops == 0 && d.Epoch >= epoch && d.Seq > s.own
}

// next says whether everything between the last begun and n is settled.
func (s *sender) next(n uint64) bool {
	if n == s.last+1 {
		return true
	}
	i := s.behind()
	return i < len(s.settled) && s.settled[i].from <= s.last+1 && s.settled[i].to >= n-1
}

// behind counts the spans that last has left behind.
func (s *sender) behind() (n int) {
	for n < len(s.settled) && s.settled[n].to <= s.last {
		n++
	}
	return n
}

// settleSpan notes that from..to will not come any more. What finds no room is not noted: a hold that waits for it ends by HoldFor.
func (r *Region) settleSpan(s *sender, from, to uint64) {
	before := len(s.settled)
	s.settled = slices.Delete(s.settled, 0, s.behind())
	if to > s.last {
		from = max(from, s.last+1)
		i := 0
		for i < len(s.settled) && s.settled[i].to < from-1 {
			i++
		}
		j := i
		for j < len(s.settled) && s.settled[j].from-1 <= to {
			from, to = min(from, s.settled[j].from), max(to, s.settled[j].to)
			j++
		}
		if j > i || len(s.settled) < maxSpansOfOne && r.spans < maxSpans {
			s.settled = slices.Replace(s.settled, i, j, span{from, to})
		} else {
			r.stats.Unsettled++
		}
	}
	r.spans += len(s.settled) - before
	if len(s.settled) == 0 {
		s.settled = nil
	}
}

// knows says whether the map has a member, or had it a moment ago.
func (r *Region) knows(m sharding.Member) bool {
	if _, gone := r.gone[m]; gone || m == r.cfg.Self {
		return true
	}
	_, here := r.members[m]
	return here
}

// outsiders stands for all peers that the map does not have and that speak of others that it does not have. No node can have the name.
var outsiders = sharding.Member{Node: "peers outside the map"}

// enter gives what is kept of a sender at a shard, on the word of a peer; nil: nothing is, and nothing may be. Senders that the map does not have are
// charged to that peer: they may be ahead of the map, or dead since before it began, or made up.
func (r *Region) enter(sh *shard, m, by sharding.Member) *sender {
	s := sh.senders[m]
	switch {
	case s != nil:
		return s
	case r.knows(m):
		return r.sender(sh, m)
	case m != by && !r.knows(by):
		// A node that the map has lost forwards what it buffered, or one that it has yet to get. All of these have one peer's share together.
		by = outsiders
	}
	if r.strange >= maxStrangers || r.brought[by] >= maxBrought {
		return nil
	}
	if _, heard := r.strangers[m]; !heard {
		r.strangers[m] = r.now
	}
	r.strange++
	r.brought[by]++
	s = r.sender(sh, m)
	s.by = by
	return s
}

func (r *Region) sender(sh *shard, m sharding.Member) *sender {
	s := sh.senders[m]
	if s == nil {
		if sh.senders == nil {
			sh.senders = map[sharding.Member]*sender{}
		}
		s = &sender{}
		sh.senders[m] = s
		if m == r.cfg.Self {
			sh.self = s
		}
	}
	return s
}

// dropSender forgets a sender at a shard. This node's own entry stays.
func (r *Region) dropSender(sh *shard, m sharding.Member) {
	s := sh.senders[m]
	if s == nil || s == sh.self {
		return
	}
	r.spans -= len(s.settled)
	r.uncharge(s)
	delete(sh.senders, m)
}

// uncharge: the sender counts as a stranger no more.
func (r *Region) uncharge(s *sender) {
	if s.by.IsZero() {
		return
	}
	r.strange--
	if r.brought[s.by]--; r.brought[s.by] == 0 {
		delete(r.brought, s.by)
	}
	s.by = sharding.Member{}
}

// memberCame: the map has the member, which counts for what came before, too.
func (r *Region) memberCame(m sharding.Member) {
	r.members[m] = struct{}{}
	r.cameBack(m)
	if _, strange := r.strangers[m]; !strange {
		return
	}
	delete(r.strangers, m)
	for i := range r.shards {
		if s := r.shards[i].senders[m]; s != nil {
			r.uncharge(s)
		}
	}
}

// cameBack: a member that was gone is in the map again. Whether there is a stream to it is another matter.
func (r *Region) cameBack(m sharding.Member) {
	if _, gone := r.gone[m]; !gone {
		return
	}
	delete(r.gone, m)
	if r.down[m] {
		r.back[m] = r.now
	}
}

// forgetEvery is how often forget looks through all shards.
const forgetEvery = time.Second

// forget drops what is known of members that went long ago, and of strangers that the map never had.
func (r *Region) forget() {
	if r.now < r.forgetAt {
		return
	}
	r.forgetAt = r.now.Add(forgetEvery)
	old := func(at sharding.Instant) bool { return r.now >= at.Add(forgetAfter) }
	for _, m := range slices.SortedFunc(maps.Keys(r.back), compareMembers) {
		if old(r.back[m]) {
			r.peerUp(m) // nobody may be trying to reach it: the transport forgot it too, and begins when something is sent
		}
	}
	past := map[sharding.Member]bool{}
	for m, at := range r.gone { // unordered: each entry is judged alone
		if old(at) {
			past[m] = true
			delete(r.gone, m)
			delete(r.closed, m)
			delete(r.down, m)
		}
	}
	for m, at := range r.strangers { // unordered: likewise
		if old(at) {
			past[m] = true
		}
	}
	if len(past) == 0 {
		return
	}
	kept := map[sharding.Member]bool{}
	for i := range r.shards {
		sh := &r.shards[i]
		for m, s := range sh.senders { // unordered: each alone
			switch {
			case !past[m]:
			case len(s.held) > 0:
				kept[m] = true
			default:
				r.dropSender(sh, m)
			}
		}
	}
	for m := range past { // unordered: likewise
		if !kept[m] {
			delete(r.strangers, m)
		}
	}
}

func (sh *shard) sortedSenders() []sharding.Member {
	all := make([]sharding.Member, 0, len(sh.senders))
	for m := range sh.senders { // unordered: sorted below
		all = append(all, m)
	}
	slices.SortFunc(all, compareMembers)
	return all
}

func (sh *shard) holds() bool {
	for _, s := range sh.senders { // unordered: any one will do
		if len(s.held) > 0 {
			return true
		}
	}
	return false
}
