package region

import (
	"container/heap"
	"slices"

	"github.com/droverhq/drover/sharding"
)

// look is when a shard is to be looked at again. One whose instant is no longer its shard's is skipped.
type look struct {
	at    sharding.Instant
	shard sharding.ShardID
}

// looks is a heap of them, the next one first. A tick costs what is due in it, and not a glance at each shard that waits for something: those may be
// all there are.
type looks []look

func (l looks) Len() int      { return len(l) }
func (l looks) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l looks) Less(i, j int) bool {
	return l[i].at < l[j].at || l[i].at == l[j].at && l[i].shard < l[j].shard
}
func (l *looks) Push(v any) { *l = append(*l, v.(look)) }
func (l *looks) Pop() any {
	last := len(*l) - 1
	v := (*l)[last]
	*l = (*l)[:last]
	return v
}

// watch has a tick look at the shard at that time, or before.
func (r *Region) watch(sh *shard, at sharding.Instant) {
	r.timers[sh.home.Shard] = struct{}{}
	at = max(at, 1)
	if sh.lookAt != 0 && sh.lookAt <= at {
		return
	}
	sh.lookAt = at
	heap.Push(&r.looks, look{at, sh.home.Shard})
}

// dueLooks gives the shards that are to be looked at now, by number.
func (r *Region) dueLooks() (due []sharding.ShardID) {
	for len(r.looks) > 0 && r.looks[0].at <= r.now {
		l := heap.Pop(&r.looks).(look)
		if sh := &r.shards[l.shard]; sh.lookAt == l.at {
			sh.lookAt = 0
			due = append(due, l.shard)
		}
	}
	slices.Sort(due)
	return due
}

// nextLook gives when time alone brings work for a shard that waits for something. It is never later than AskHomeEvery: an event may have changed what
// the shard waits for.
func (r *Region) nextLook(sh *shard) sharding.Instant {
	next := r.now.Add(r.cfg.AskHomeEvery)
	by := func(at sharding.Instant) {
		if at > 0 {
			next = min(next, at)
		}
	}
	for i := range sh.unsent {
		by(sh.unsent[i].m.Deadline)
	}
	for i := range sh.arrived {
		by(sh.arrived[i].until)
	}
	for i := range sh.ahead {
		by(sh.ahead[i].until)
		by(sh.ahead[i].at.Add(forgetAfter))
	}
	for _, s := range sh.senders { // unordered: it is a minimum
		for i := range s.held {
			by(s.held[i].until)
		}
		if len(s.held) > 0 && sh.stage == serving && !sh.suspended {
			by(s.since.Add(r.cfg.HoldFor))
		}
	}
	if sh.askedAt > 0 {
		by(sh.askedAt.Add(r.cfg.AskHomeEvery))
	}
	if sh.report != nil {
		by(sh.reported.Add(r.cfg.AskHomeEvery))
	}
	return next
}
