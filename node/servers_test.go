package node

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Spec 2.1: a node whose disk was wiped comes back as another raft server. The one that it had before never comes back, and loses its seat: a node that is up
// cannot be forgotten, and a dead seat counts towards the quorum.
func TestWipedDiskLosesItsSeat(t *testing.T) {
	f := newFleet(t)
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	leader := f.leader()
	require.Eventually(t, func() bool { v, err := leader.plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	var wiped *member
	for _, m := range f.all() {
		if m != leader {
			wiped = m
		}
	}
	require.Eventually(t, func() (all bool) {
		leader.plane.View(func() { all = len(leader.machine.State().Servers()) == 3 })
		return all
	}, patience, poll)
	require.NoError(t, f.stop(wiped))
	again := f.start(f.config(wiped.cfg.Name)) // another data_dir, another address
	require.NotEqual(t, wiped.server, again.server)
	require.Eventually(t, func() bool {
		v, err := f.leader().plane.VoterIDs()
		return err == nil && len(v) == 3 && slices.Contains(v, again.server) && !slices.Contains(v, wiped.server)
	}, patience, poll)
	f.settled()
	var known int
	leader = f.leader()
	require.True(t, leader.plane.View(func() { known = len(leader.machine.State().Servers()) }))
	assert.Equal(t, 3, known, "it is not known any more")
}
