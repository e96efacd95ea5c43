package node

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

// Spec 2.1: who is only in gossip, which anybody may be, comes into no raft configuration: neither by a server of its own nor under another's name.
func TestStrangersInGossip(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	b := f.start(f.config("b"))
	f.settled()
	require.Eventually(t, func() bool { return a.log.contains(b.server.String()) }, patience, poll, "b's server is taken in")

	own := sharding.NewIncarnation()
	for name, server := range map[sharding.NodeID]sharding.Incarnation{"s1": own, "s2": b.server, "s3": a.server} {
		s, err := cluster.Open(cluster.Config{Name: name, Bind: "127.0.0.1:0", Join: []string{a.addr.Gossip}, Logger: slog.New(slog.DiscardHandler),
			OnChange: func([]cluster.Member) {}, Fast: true, Info: cluster.Info{Incarnation: sharding.NewIncarnation(), Server: server, ClusterID: a.dir.Cluster(),
				Transport: "127.0.0.1:1", Roles: []string{"coordinator"}, Version: "1"}})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Join(t.Context()))
	}
	require.Eventually(t, func() bool { return len(a.memberList()) == 5 }, patience, poll)
	// What comes after them gets in: so the steward had its chance with them.
	c := f.start(f.config("c"))
	require.Eventually(t, func() bool { v, err := a.plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	assert.True(t, a.log.contains(c.server.String()))
	assert.False(t, a.log.contains(own.String()), "a stranger's server was taken in")
	assert.False(t, a.log.contains("127.0.0.1:1 "), "a server is sought where a stranger says")
	assert.False(t, a.log.contains("could not be changed"))
	// Nor are they up: no coordinator has registered them.
	view, err := api{a.Node}.Members(t.Context())
	require.NoError(t, err)
	states := map[string]httpapi.MemberState{}
	for _, m := range view.Members {
		states[string(m.Name)] = m.State
	}
	assert.Equal(t, map[string]httpapi.MemberState{"a": httpapi.MemberUp, "b": httpapi.MemberUp, "c": httpapi.MemberUp,
		"s1": httpapi.MemberJoining, "s2": httpapi.MemberJoining, "s3": httpapi.MemberJoining}, states)
}
