package dataplane

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 2.1: what a peer that may not order sends is dropped. While it floods, it waits for the session, and fills no memory.
func TestFloodOfDirectivesWaits(t *testing.T) {
	w := newWorld(t, "a")
	a := w.node("a")
	const peers, each = 4, 200
	hold, held := make(chan struct{}), make(chan struct{})
	go a.call(func() { close(held); <-hold })
	<-held
	var begun atomic.Int32
	var wg sync.WaitGroup
	for range peers {
		wg.Go(func() {
			for range each {
				begun.Add(1)
				a.HandleControl(sharding.Member{Node: "h"}, false, &protocol.Leading{Term: 9})
			}
		})
	}
	require.Eventually(t, func() bool { return begun.Load() == peers }, patience, poll)
	before := dropped(a)
	ticks := a.inbox.Len() - peers
	for range 100 {
		a.post(nil) // the node's own events do not wait
	}
	assert.LessOrEqual(t, int(begun.Load()), peers, "a peer goes on before its directive has been looked at")
	assert.GreaterOrEqual(t, a.inbox.Len(), ticks+100)
	close(hold)
	wg.Wait()
	assert.EqualValues(t, peers*each, dropped(a)-before)
}

func dropped(n *node) (total uint64) {
	for i := range n.counts.Dropped {
		total += n.counts.Dropped[i].Load()
	}
	return total
}

// A region's queue is bounded in bytes too: a peer with large frames waits as one with many does.
func TestLargeFramesWait(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.node("a").ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	owner, rec := w.owner("e")
	from := w.other(owner)
	s := owner.shell("t")
	hold, held := make(chan struct{}), make(chan struct{})
	require.True(t, s.inbox.Put(regionItem{call: func() { close(held); <-hold }}))
	<-held
	const size, frames = 1 << 20, 3 * inboxBytes >> 20
	var handed atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range frames {
			frame, err := protocol.AppendFrame(nil, &protocol.Deliver{Type: "t", Shard: rec.Shard, Epoch: rec.Epoch, Sender: from.self, Seq: uint64(1000 + i), Entity: "e", Payload: make([]byte, size)})
			assert.NoError(t, err)
			owner.HandleData(from.self, frame)
			handed.Add(1)
		}
	}()
	require.Eventually(t, func() bool { return handed.Load() >= inboxBytes/size }, patience, poll)
	owner.Members() // the session goes on meanwhile
	assert.Never(t, func() bool { return handed.Load() > inboxBytes/size }, 200*time.Millisecond, poll, "frames pile up in front of a busy region")
	close(hold)
	<-done
}

// A word about a sender's numbers that nobody here can use is dropped and counted, and makes no region.
func TestClaimsAboutNothing(t *testing.T) {
	w := newWorld(t, "a", "c*")
	c := w.node("c")
	before := c.Counters().BadFrames.Load()
	for _, m := range []protocol.Message{
		&protocol.SenderMoved{Type: "t", Shard: 1, Epoch: 1, From: 1, Seq: 2}, &protocol.SenderDone{Type: "t", Shard: 1, Sender: c.self, From: 1, Seq: 2},
		&protocol.SenderMoved{Type: "nope", From: 1, Seq: 2}, &protocol.SenderDone{Type: "nope", From: 1, Seq: 1},
	} {
		frame, err := protocol.AppendFrame(nil, m)
		require.NoError(t, err)
		c.HandleData(w.node("a").self, frame)
	}
	assert.EqualValues(t, 4, c.Counters().BadFrames.Load()-before)
	assert.Empty(t, c.shells())
}

// picky refuses frames that are too large.
type picky struct {
	most int
	sent [][]byte
}

func (p *picky) SendControl(_ sharding.Member, frame []byte) error {
	if len(frame) > p.most {
		return errors.New("too large")
	}
	p.sent = append(p.sent, frame)
	return nil
}
func (p *picky) SendData(sharding.Member, []byte) error { return nil }

// A renewal whose load is too large goes without it: the lease counts (spec 2.1), the load is a hint.
func TestRenewalWithoutRoomForTheLoad(t *testing.T) {
	w := newWorld(t, "a")
	s := &picky{most: 1000}
	n := w.start(sharding.Member{Node: "n", Incarnation: sharding.NewIncarnation()}, false, func(c *Config) { c.Sender = s })
	n.Close() // it sends nothing of its own any more
	s.sent = nil
	before := n.Counters().SendErrors.Load()
	n.sendControl(w.node("a").self, &protocol.Renew{Seq: 7, SentAt: 8, Load: &protocol.NodeLoad{Shards: make([]protocol.ShardLoad, 1000)}})
	require.Len(t, s.sent, 1)
	m, err := protocol.DecodeFrame(s.sent[0])
	require.NoError(t, err)
	assert.Equal(t, &protocol.Renew{Seq: 7, SentAt: 8}, m)
	assert.Equal(t, before, n.Counters().SendErrors.Load())
	n.sendControl(w.node("a").self, &protocol.Register{Regions: make([]protocol.RegionInfo, 1000)})
	assert.Len(t, s.sent, 1)
	assert.Equal(t, before+1, n.Counters().SendErrors.Load())
}
