package region

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 2.1: only what took a commit shows that a leader has its majority: taking office, and the acknowledgement of a renewal.
func TestAuthority(t *testing.T) {
	at := func(ms int64) sharding.Instant { return sharding.Instant(ms * int64(time.Millisecond)) }
	leader, id := member("l"), cluster("c")
	s := NewSession(SessionConfig{Self: member("self"), Regions: []protocol.RegionInfo{{Type: "t", NumShards: 4, Hosts: true}}})
	say := func(ms int64, m protocol.Directive) []Command {
		return s.Step(at(ms), DirectiveReceived{From: leader, Coordinator: true, Message: m})
	}
	assert.False(t, s.Authority().Leads(at(1)), "nobody leads before anybody has spoken")

	say(100, &protocol.Leading{Term: 3})
	assert.True(t, s.Authority().Leads(at(100)))
	out := say(200, &protocol.RegisterAck{Term: 3, ClusterID: id, LeaseTTL: 1000})
	assert.Equal(t, 1100*time.Millisecond, s.Authority().Patience)
	assert.Zero(t, s.Authority().LeaseUntil)
	var renew *protocol.Renew
	for _, c := range out {
		if c, ok := c.(SendLeader); ok {
			if r, ok := c.Message.(*protocol.Renew); ok {
				renew = r
			}
		}
	}
	require.NotNil(t, renew)
	say(300, &protocol.LeaseAck{Term: 3, Seq: renew.Seq, SentAt: renew.SentAt, TTL: 1000})
	assert.Equal(t, at(1200), s.Authority().LeaseUntil, "a lease counts from when the renewal was sent")

	// A leader without its majority can still talk: that proves nothing.
	say(900, &protocol.Leading{Term: 3})
	say(900, &protocol.RegisterAck{Term: 3, ClusterID: id, LeaseTTL: 1000})
	say(900, &protocol.LeaseAck{Term: 3, Seq: renew.Seq, SentAt: renew.SentAt, TTL: 1000})
	assert.True(t, s.Authority().Leads(at(1400)))
	assert.False(t, s.Authority().Leads(at(1401)))
	assert.Equal(t, leader, s.Authority().Leader, "whom to ask again first is known all the same")
}
