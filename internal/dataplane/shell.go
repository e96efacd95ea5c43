package dataplane

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/droverhq/drover/internal/entity"
	"github.com/droverhq/drover/internal/queue"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// shell runs one region; runtime is nil for a proxy.
type shell struct {
	p         *Plane
	typ       sharding.TypeName
	hosts     bool
	numShards uint32
	region    *region.Region
	runtime   *entity.Runtime
	inbox     *queue.Queue[regionItem]
	ticking   atomic.Bool // a tick waits in the inbox: one that is slow to be taken must not have others pile up behind it
	frame     []byte      // reused
}

// regionItem is an event, or one of the two kinds of data that come by the million and skip the interface.
type regionItem struct {
	event   region.Event
	from    sharding.Member
	deliver *protocol.Deliver
	submit  *region.Submitted
	call    func()
	tick    bool
}

// addRegion starts the region of a type, with the events that it begins with. It returns the one that is there already, if any, and nil once
// the plane is closed.
func (p *Plane) addRegion(t Type, first ...region.Event) *shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.regions[t.Info.Type]; s != nil || p.closed {
		return s
	}
	s := &shell{p: p, typ: t.Info.Type, hosts: t.Info.Hosts, numShards: t.Info.NumShards, inbox: queue.NewWeighed[regionItem](inboxLimit, inboxBytes)}
	s.region = region.New(region.Config{Self: p.cfg.Session.Self, Type: t.Info.Type, NumShards: t.Info.NumShards, Hosts: t.Info.Hosts,
		MaxMessages: p.cfg.MaxMessages, MaxBytes: p.cfg.MaxBytes, Off: p.cfg.Session.Off})
	if t.Info.Hosts {
		s.runtime = entity.New(entity.Config{Type: t.Info.Type, Kind: t.Kind, Pool: p.cfg.Pool, Now: p.cfg.Now, Logger: p.cfg.Logger,
			Reply: func(shard sharding.ShardID, epoch sharding.Epoch, to sharding.Member, r protocol.Reply) {
				s.inbox.Put(regionItem{event: region.EffectReady{Shard: shard, Epoch: epoch, To: to, Reply: r}})
			},
			Stopped: func(shard sharding.ShardID, epoch sharding.Epoch) {
				s.inbox.Put(regionItem{event: region.ShardStopped{Shard: shard, Epoch: epoch}})
			},
			Unbegun: func(d *protocol.Deliver, why string) {
				p.refuse(d, protocol.StatusUnavailable, why)
			},
			Panicked:    func() { p.counts.Panics.Add(1) },
			MaxMessages: p.cfg.MaxMessages, MaxBytes: p.cfg.MaxBytes,
		})
	}
	for _, ev := range first {
		s.inbox.Put(regionItem{event: ev})
	}
	p.regions[t.Info.Type] = s
	p.wg.Add(1)
	go s.own()
	return s
}

func (s *shell) shardOf(id string) sharding.ShardID { return sharding.ShardOf(id, s.numShards) }

// own is the region's goroutine.
func (s *shell) own() {
	defer s.p.wg.Done()
	var out []region.Command
	for {
		items, ok := s.inbox.Take()
		if !ok {
			break
		}
		for i := range items {
			it := &items[i]
			out = out[:0]
			switch {
			case s.p.ctx.Err() != nil: // Close: what waits is worth nothing any more, and may take long
				s.drop(it)
			case it.deliver != nil:
				out = s.region.Arrive(s.p.cfg.Now(), it.from, it.deliver, out)
			case it.submit != nil:
				out = s.region.Submit(s.p.cfg.Now(), it.submit, out)
			case it.call != nil:
				it.call()
			case it.tick:
				s.ticking.Store(false)
				out = append(out, s.region.Step(s.p.cfg.Now(), region.Ticked{})...)
			default:
				out = append(out, s.region.Step(s.p.cfg.Now(), it.event)...)
			}
			for _, c := range out {
				s.do(c)
			}
			clear(out)
		}
	}
	if s.runtime != nil {
		s.runtime.Close()
	}
}

// tick has the region look at the time, unless it is to do so already.
func (s *shell) tick() {
	if !s.ticking.Swap(true) {
		s.inbox.Put(regionItem{tick: true})
	}
}

// drop ends what waited when the plane was closed. A message was surely not begun, so its sender need not run into a time-out.
func (s *shell) drop(it *regionItem) {
	switch {
	case it.deliver != nil:
		s.p.refuse(it.deliver, protocol.StatusUnavailable, errStopping.Error())
	case it.submit != nil && it.submit.Mode != protocol.Tell:
		s.p.asks.end(protocol.Reply{Ask: it.submit.Ask, Status: protocol.StatusUnavailable, Payload: []byte(errStopping.Error())})
	case it.call != nil:
		it.call()
	}
}

func (s *shell) do(c region.Command) {
	switch c := c.(type) {
	case *region.Transmit:
		s.transmit(c)
	case *region.DeliverLocal:
		c.Deliver.Entity = strings.Clone(c.Deliver.Entity) // it may alias a whole frame, and entities live long
		s.runtime.Deliver(c.Shard, c.Epoch, c.Deliver)
	case region.StartLocal:
		s.runtime.Start(c.Shard, c.Epoch)
	case region.ExtendLocal:
		s.runtime.Extend(c.Shards, c.Until)
	case region.SuspendLocal:
		s.p.counts.Suspended.Add(uint64(len(c.Shards)))
		s.runtime.Suspend(c.Shards)
	case region.StopLocal:
		s.runtime.Stop(c.Shard, c.Epoch)
	case region.KillLocal:
		s.runtime.Kill(c.Shard, c.Epoch)
	case region.ReplyLocal:
		s.p.asks.end(c.Reply)
	case region.DeadLetter:
		s.p.letter(c.Deliver, c.Reason)
	case region.DropClaim:
		s.p.counts.Claims.Add(1)
		s.p.sayBad("a peer spoke for too many senders that the map does not have: it did not count", c.From, "sender", c.Sender)
	case region.ToCoordinator:
		if l := s.p.leader.Load(); l != nil && !l.IsZero() {
			s.p.sendControl(*l, c.Message)
		}
	case region.RenewNow:
		s.p.post(region.RenewRequested{})
	case region.OwnedChanged:
		s.p.ownedChanged(s.typ, c.Shards)
	default:
		panic(fmt.Sprintf("dataplane: the region has a command that nobody runs: %T", c))
	}
}

// transmit sends a frame. What surely does not arrive ends here: an Ask in Unavailable, a Tell as a dead letter.
func (s *shell) transmit(c *region.Transmit) {
	var err error
	if s.frame, err = protocol.AppendFrame(s.frame[:0], c.Message); err == nil {
		err = s.p.cfg.Sender.SendData(c.To, s.frame)
	}
	if err == nil {
		return
	}
	if r, ok := c.Message.(*protocol.Reply); ok {
		s.p.replyLost(c.To, *r, err)
		return
	}
	s.p.counts.SendErrors.Add(1)
	if d, ok := c.Message.(*protocol.Deliver); ok {
		s.p.refuse(d, protocol.StatusUnavailable, err.Error())
		return
	}
	s.p.cfg.Logger.Debug("a data frame could not be sent", "to", c.To, "kind", c.Message.FrameKind(), "error", err)
}

// ownedChanged tells the session what all regions together serve.
func (p *Plane) ownedChanged(t sharding.TypeName, shards []protocol.ShardEpoch) {
	p.mu.Lock()
	p.owned[t] = shards
	var all []protocol.TypeShards
	for _, info := range p.cfg.Session.Regions {
		if o := p.owned[info.Type]; len(o) > 0 {
			all = append(all, protocol.TypeShards{Type: info.Type, Shards: o})
		}
	}
	// The lock is held so that two regions' reports reach the session in the order in which they were put together.
	p.post(region.OwnedReported{Owned: all})
	p.mu.Unlock()
}
