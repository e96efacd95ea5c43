package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
)

// threeVoters starts the nodes a, b and c, and tells who leads.
func threeVoters(f *fleet) (leader, follower, third *member) {
	f.t.Helper()
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	leader = f.leader()
	awaitVoters(f, leader, 3)
	require.Eventually(f.t, func() (all bool) {
		leader.plane.View(func() { all = len(leader.machine.State().Servers()) == 3 })
		return all
	}, patience, poll)
	for _, m := range f.all() {
		switch {
		case m == leader:
		case follower == nil:
			follower = m
		default:
			third = m
		}
	}
	return leader, follower, third
}

func awaitVoters(f *fleet, at *member, want int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { v, err := at.plane.VoterIDs(); return err == nil && len(v) == want }, patience, poll, "%d voters", want)
}

func refusedLeave(t *testing.T, m *member) *httpapi.Problem {
	t.Helper()
	var p *httpapi.Problem
	require.ErrorAs(t, api{m.Node}.Leave(t.Context()), &p)
	assert.Equal(t, httpapi.KindConflict, p.Kind, p.Detail)
	return p
}

// left waits until a node that leaves has ended, in order.
func (f *fleet) left(m *member) {
	t := f.t
	t.Helper()
	select {
	case <-m.done:
	case <-time.After(patience):
		t.Fatalf("%s does not end:\n%s", m.cfg.Name, m.log.tail())
	}
	require.NoError(t, f.stop(m))
}

// Spec 2.1, 5.1: with a voter dead neither of the others may leave: one of two voters is no majority, and nobody could take the dead one out then. The refusal
// says what to do first, changes nothing, and after that the leave is carried out: the leader's too.
func TestLeaveKeepsTheQuorum(t *testing.T) {
	f := newFleet(t)
	leader, follower, dead := threeVoters(f)
	name := dead.cfg.Name
	require.NoError(t, f.stop(dead))
	require.Eventually(t, func() bool { return !leader.isUp(dead.self) }, patience, poll)
	for _, m := range []*member{follower, leader} {
		p := refusedLeave(t, m)
		assert.Contains(t, p.Detail, "only 1 of 2 voters")
		assert.Contains(t, p.Detail, name)
		assert.Contains(t, p.Hint, "drover cluster forget "+name)
		awaitVoters(f, leader, 3)
	}
	require.True(t, leader.leads(), "leadership moved for a leave that was refused")
	follower.add(t, "still", 1)

	require.Eventually(t, func() bool { return api{follower.Node}.Forget(t.Context(), sharding.NodeID(name)) == nil }, patience, poll)
	require.NoError(t, api{leader.Node}.Leave(t.Context()))
	f.left(leader)
	require.Eventually(t, follower.leads, patience, poll)
	awaitVoters(f, follower, 1)
	follower.add(t, "still", 1)
	var known int
	follower.plane.View(func() { known = len(follower.machine.State().Servers()) })
	assert.Equal(t, 1, known, "who left is still noted as a server")

	require.NoError(t, api{follower.Node}.Leave(t.Context()), "the last node of all may end")
	f.left(follower)
}

// Spec 2.1: gossip takes seconds to find out that a node has died. Meanwhile it must not count as one that makes up a majority.
func TestSilentVoterCountsAsDead(t *testing.T) {
	f := newFleet(t)
	leader, follower, silent := threeVoters(f)
	silent.faults.Partition(transport.Where{})
	require.True(t, leader.isUp(silent.self))
	p := refusedLeave(t, follower)
	assert.Contains(t, p.Detail, "silent: "+silent.cfg.Name)
	v, err := leader.plane.VoterIDs()
	require.NoError(t, err)
	assert.Len(t, v, 3)
	silent.faults.Heal()
	require.Eventually(t, func() bool { return api{follower.Node}.Leave(t.Context()) == nil }, patience, poll)
	f.left(follower)
	leader.add(t, "still", 1)
}

// Spec 2.1: of two coordinators one votes. It may leave once the other votes in its place; without another it stays.
func TestTheOnlyVoterLeaves(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	w := f.config("w")
	w.Roles = []string{"worker"}
	f.start(w)
	f.settled()
	p := refusedLeave(t, a)
	assert.Contains(t, p.Detail, "only voter")
	assert.Contains(t, p.Hint, "role coordinator")

	b := f.start(f.config("b"))
	f.settled()
	require.Eventually(t, func() bool { return api{a.Node}.Leave(t.Context()) == nil }, patience, poll, "once b is ready to vote")
	f.left(a)
	require.Eventually(t, b.leads, patience, poll)
	awaitVoters(f, b, 1)
	b.add(t, "still", 1)
}
