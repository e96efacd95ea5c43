package dataplane

import (
	"context"
	"sync"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// watches are those who want to know when the map has advanced. Each has a channel with room for one token, which is all that coalescing needs.
type watches struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

func (w *watches) add() chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[chan struct{}]struct{}{}
	}
	w.all[c] = struct{}{}
	return c
}

func (w *watches) remove(c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, c)
}

func (w *watches) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Watch gives the map of a type, now and whenever this node's map has advanced, until ctx ends or the plane is closed; then the channel is
// closed. Revisions are strictly increasing. A receiver that is slow misses revisions and gets the newest.
func (p *Plane) Watch(ctx context.Context, t sharding.TypeName) <-chan sharding.MapChange {
	out := make(chan sharding.MapChange)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		close(out)
		return out
	}
	advanced := p.watches.add()
	p.wg.Go(func() {
		defer close(out)
		defer p.watches.remove(advanced)
		var last sharding.Revision
		var next sharding.MapChange
		to := chan<- sharding.MapChange(nil) // nil: nothing to tell
		for {
			if c := p.change(t); last.Less(c.Revision) && next.Revision.Less(c.Revision) {
				next, to = c, out
			}
			select {
			case to <- next:
				last, to = next.Revision, nil
			case <-advanced:
				continue
			case <-ctx.Done():
				return
			case <-p.ctx.Done():
				return
			}
			select { // told: nothing new to look at before the map advances
			case <-advanced:
			case <-ctx.Done():
				return
			case <-p.ctx.Done():
				return
			}
		}
	})
	return out
}

// change gives the map of a type as it is now; the zero Revision: there is no map yet.
func (p *Plane) change(t sharding.TypeName) (c sharding.MapChange) {
	p.call(func() {
		c = sharding.MapChange{Type: t, Revision: p.session.Revision(), NumShards: p.session.NumShards(t)}
		shards := map[sharding.Member]int{}
		for r := range p.session.Map(t) {
			if r.State == protocol.Unassigned {
				continue
			}
			shards[r.Owner]++
			c.Shards = append(c.Shards, sharding.ShardHome{Shard: r.Shard, Owner: r.Owner, Epoch: r.Epoch, State: r.State.String()})
		}
		for _, m := range p.session.Members() {
			for _, h := range m.Hosts {
				if h == t {
					c.Regions = append(c.Regions, sharding.RegionCount{Member: m.Member, Shards: shards[m.Member]})
				}
			}
			for _, x := range m.Proxies {
				if x == t {
					c.Regions = append(c.Regions, sharding.RegionCount{Member: m.Member, Proxy: true})
				}
			}
		}
	})
	return c
}

// Want places a shard if it has no home, and returns at once. Errors: ErrNoType, ErrUnavailable, or a shard out of range.
func (p *Plane) Want(t sharding.TypeName, shard sharding.ShardID) error {
	s, err := p.region(t)
	if err != nil {
		return err
	}
	if err := sharding.CheckShard(t, shard, s.numShards); err != nil {
		return err
	}
	if !s.inbox.Put(regionItem{event: region.HomeWanted{Shard: shard}}) {
		return errStopping
	}
	return nil
}

// NumShards gives a type's number of shards, as it is configured here or as the map tells it. Errors: ErrNoType, ErrUnavailable.
func (p *Plane) NumShards(t sharding.TypeName) (uint32, error) {
	s, err := p.region(t)
	if err != nil {
		return 0, err
	}
	return s.numShards, nil
}

// Home gives the present record of a shard; Epoch 0: it never had a home.
func (p *Plane) Home(t sharding.TypeName, shard sharding.ShardID) (found protocol.ShardRecord) {
	p.call(func() { found = p.session.Home(t, shard) })
	return found
}
