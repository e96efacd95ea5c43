package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// deaf hears nothing of what it is told.
type deaf struct{}

func (deaf) Opened(transport.Peer, transport.Class)                               {}
func (deaf) Frame(transport.Peer, transport.Class, []byte)                        {}
func (deaf) Closed(transport.Peer, transport.Class, error)                        {}
func (deaf) Up(sharding.Member, transport.Class)                                  {}
func (deaf) Down(sharding.Member, transport.Class, error)                         {}
func (deaf) Call(context.Context, transport.Peer, string, []byte) ([]byte, error) { return nil, nil }

// stranger is a peer without the coordinator's role that knows the key, and says what it likes.
func (f *fleet) stranger(to ...*member) *transport.Transport { return f.strangerWith(deaf{}, to...) }

func (f *fleet) strangerWith(h transport.Handler, to ...*member) *transport.Transport {
	f.t.Helper()
	s, err := transport.New(transport.Config{Self: sharding.Member{Node: "hostile", Incarnation: sharding.NewIncarnation()}, Label: to[0].cfg.Cluster,
		ClusterID: to[0].dir.Cluster(), Roles: []string{"compute"}, Bind: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}, h)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { s.Close() })
	var targets []transport.Target
	for _, m := range to {
		targets = append(targets, transport.Target{Member: m.self, Addr: m.addr.Transport})
	}
	s.SetPeers(targets)
	return s
}

// Spec 2.1, who may order: what a peer without the coordinator's role sends changes nothing, and fills no log.
func TestHostilePeer(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	b := f.start(f.config("b"))
	f.settled()
	a.add(t, accountOn(1), 1)
	s := f.stranger(a, b)
	leader := f.leader()
	ask := func(method string, v any) outcome {
		t.Helper()
		body, err := cbor.Marshal(v)
		require.NoError(t, err)
		answer, err := s.Call(t.Context(), leader.self, method, body)
		if err != nil {
			return outcome{Detail: err.Error(), Kind: "error"}
		}
		var o outcome
		require.NoError(t, cbor.Unmarshal(answer, &o))
		return o
	}

	t.Run("it takes no other node out of raft", func(t *testing.T) {
		before, err := leader.plane.VoterIDs()
		require.NoError(t, err)
		for _, m := range []*member{a, b} {
			o := ask(callOperate, operation{Op: opLeave, Node: m.self.Node})
			assert.Contains(t, o.Detail, "a node leaves by itself alone")
		}
		after, err := leader.plane.VoterIDs()
		require.NoError(t, err)
		assert.Equal(t, before, after)
	})

	t.Run("it brings in no module that the leader would not take", func(t *testing.T) {
		junk := []byte("no wasm at all")
		present, err := leader.strategyOf(t.Context(), "ledger")
		require.NoError(t, err)
		spec := present.Spec
		spec.Digest = sha256.Sum256(junk)
		o := ask(callSwap, swapOrder{Type: "ledger", Spec: spec, Expect: present.Seq, Module: junk})
		assert.Equal(t, "refused-strategy", o.Kind, o.Detail)
		assert.False(t, leader.modules.Has(spec.Digest), "it is kept")
		now, err := leader.strategyOf(t.Context(), "ledger")
		require.NoError(t, err)
		assert.Equal(t, present.Seq, now.Seq)
	})

	t.Run("its orders are dropped and counted, and do not flood the log", func(t *testing.T) {
		const orders = 2000
		before := b.data.Counters().Dropped[region.DropNotCoordinator].Load()
		for range orders {
			for _, m := range []protocol.Message{&protocol.Leading{Term: 1 << 63}, &protocol.KillShard{Term: 1 << 63, Type: "ledger", Shard: 1, Epoch: 1}} {
				frame, err := protocol.AppendFrame(nil, m)
				require.NoError(t, err)
				require.NoError(t, s.Send(b.self, transport.Control, frame))
			}
			require.NoError(t, s.Send(b.self, transport.Control, []byte{1, 1, 0xff}))
			require.NoError(t, s.Send(b.self, transport.Data, []byte{1, 200, 0xff}))
		}
		require.Eventually(t, func() bool {
			return b.data.Counters().Dropped[region.DropNotCoordinator].Load()-before == 2*orders && b.data.Counters().BadFrames.Load() >= 2*orders
		}, patience, poll)
		b.log.mu.Lock()
		lines := bytes.Count(b.log.b.Bytes(), []byte("hostile"))
		b.log.mu.Unlock()
		assert.Positive(t, lines)
		assert.Less(t, lines, 200)
		leaderOf, _ := b.data.Leader()
		assert.Equal(t, leader.self, leaderOf)
	})
	assert.Equal(t, 2, b.add(t, accountOn(1), 1).Total)
}
