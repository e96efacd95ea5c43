package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var errNotYet = errors.New("not yet")

// onlyOn says nothing if every shard is homed on one of the nodes, and each of them has some.
func onlyOn(through *node, names ...string) error {
	var m shardMap
	if err := through.get("/cluster/shards?type=counter", &m); err != nil {
		return err
	}
	counts := m.counts()
	for _, name := range names {
		if counts[name] == 0 {
			return fmt.Errorf("%s has none: %v", name, counts)
		}
		delete(counts, name)
	}
	if len(counts) > 0 {
		return fmt.Errorf("others have some: %v", counts)
	}
	return m.settled()
}

// A drained node keeps running and hosts nothing until the drain ends; under load nothing fails (spec 2.2). Then it leaves for good, and a dead
// node is forgotten (spec 5.1).
func TestDrainLeaveAndForget(t *testing.T) {
	c := newCluster(t, quick...)
	nodes := c.start("a", "b", "c")
	a, b := nodes[0], nodes[1]
	touch(t, a, ids("drained", 1000))
	a.awaitCounts(34, 33, 33)
	l := startLoad(t, 4, ids("operated", 24), a, b)

	a.must(http.MethodPost, "/cluster/drain?node=b", nil, nil)
	eventually(t, "b is empty", func() error { return onlyOn(a, "a", "c") })
	a.awaitMembers(map[string]string{"a": "up", "b": "draining", "c": "up"})
	l.progress(100)
	a.must(http.MethodPost, "/cluster/drain?node=b&on=false", nil, nil)
	a.awaitCounts(34, 33, 33)

	// Leaving: the process ends by itself, and with its vote nothing is missing.
	third := nodes[2]
	third.must(http.MethodPost, "/cluster/leave", nil, nil)
	require.Equal(t, 0, third.awaitEnd())
	eventually(t, "c has no shard left", func() error { return onlyOn(a, "a", "b") })
	l.progress(100)
	l.end(a)
	l.unfailing()
	require.Contains(t, third.log(), "leaving the cluster")

	// Its seat is empty, and it may come back as what it was: a server.
	eventually(t, "one server votes, as two are no better", func() error { return voters(a, 1) })
	third.start()
	third.awaitReady()
	a.awaitCounts(34, 33, 33)
	eventually(t, "three servers vote", func() error { return voters(a, 3) })

	b.kill()
	err := third.do(http.MethodPost, "/cluster/forget?node=a", nil, nil)
	p, ok := errors.AsType[*problem](err)
	require.True(t, ok, "a live node is not forgotten: %v", err)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Contains(t, p.Detail, `"a"`)
	require.Contains(t, p.Hint, "drover cluster leave")
	eventually(t, "b is forgotten", func() error { return third.do(http.MethodPost, "/cluster/forget?node=b", nil, nil) })
	eventually(t, "b is no member", func() error {
		for _, n := range []*node{a, third} {
			have, err := n.members()
			if err != nil {
				return err
			}
			if m, there := have["b"]; there && m.State != "left" {
				return fmt.Errorf("%s shows it as %s", n.name, m.State)
			}
		}
		return nil
	})
	eventually(t, "shards lie on a and c", func() error { return onlyOn(a, "a", "c") })
	eventually(t, "one server votes", func() error { return voters(a, 1) })
	c.leader()
}

// voters says nothing if raft has so many voters. There is no view of them but through what they are for, so the log of the leader tells.
func voters(through *node, want int) error {
	var l leader
	if err := through.get("/cluster/leader", &l); err != nil {
		return err
	}
	i := slices.IndexFunc(through.c.nodes, func(n *node) bool { return n.name == l.Name })
	if i < 0 || !through.c.nodes[i].running() {
		return fmt.Errorf("the leader %q does not live", l.Name)
	}
	if have := int(through.c.nodes[i].metric("drover_raft_voters")); have != want {
		return fmt.Errorf("there are %d", have)
	}
	return nil
}

// cli runs the command line against a node, and gives what it prints and its exit code.
func (n *node) cli(args ...string) (string, int) {
	n.c.t.Helper()
	cmd := exec.Command(drover, append(args, "--address", n.http)...)
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(n.c.t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// With a voter dead no other voter leaves, whoever leads: what were left could not even forget the dead one. The refusal names the next step, everything goes
// on, and after that step the leave is carried out (spec 2.1, 5.1).
func TestLeaveNeedsAQuorum(t *testing.T) {
	c := newCluster(t, quick...)
	nodes := c.start("a", "c", "d")
	eventually(t, "three servers vote", func() error { return voters(nodes[0], 3) })
	leader, _ := c.leader()
	rest := c.others(leader)
	follower, dead := rest[0], rest[1]
	dead.kill()
	eventually(t, "it is seen as failed", func() error {
		m, err := leader.members()
		if err == nil && m[dead.name].State != "failed" {
			err = errNotYet
		}
		return err
	})
	for _, n := range []*node{follower, leader} {
		out, code := n.cli("cluster", "leave")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "drover cluster forget "+dead.name)
		p, ok := errors.AsType[*problem](n.do(http.MethodPost, "/cluster/leave", nil, nil))
		require.True(t, ok)
		require.Equal(t, http.StatusConflict, p.Status, p)
		require.Contains(t, p.Detail, "only 1 of 2 voters")
		require.True(t, n.running())
	}
	require.NoError(t, voters(leader, 3))
	_, err := follower.addTo("still", 1)
	require.NoError(t, err)

	eventually(t, "the dead one is forgotten", func() error {
		if out, code := follower.cli("cluster", "forget", dead.name); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	out, code := follower.cli("cluster", "leave")
	require.Equal(t, 0, code, out)
	require.Equal(t, 0, follower.awaitEnd(), follower.log())
	eventually(t, "the one that is left serves alone", func() error { return onlyOn(leader, leader.name) })
	eventually(t, "it answers", func() error { _, err := leader.addTo("still", 1); return err })
	eventually(t, "one server votes", func() error { return voters(leader, 1) })

	// Who left comes back, with the log that it has, and the leader may leave: the other one votes in its place.
	follower.start()
	follower.awaitReady()
	eventually(t, "the other is ready to vote", func() error {
		out, code := leader.cli("cluster", "leave")
		if code != 0 {
			return errors.New(out)
		}
		return nil
	})
	require.Equal(t, 0, leader.awaitEnd(), leader.log())
	eventually(t, "it answers", func() error { _, err := follower.addTo("still", 1); return err })
	now, _ := c.leader()
	require.Equal(t, follower.name, now.name)
}

// A spare takes the seat of a voter that was killed, after its grace, and not that of one which ended by SIGTERM; then another may leave though that one is
// away, since the spare takes its place (spec 2.1, 5.1).
func TestSpareTakesADeadSeat(t *testing.T) {
	c := newCluster(t, quick...)
	c.start("a", "b", "c", "d")
	leader, _ := c.leader()
	seats := func(want ...string) func() error {
		return func() error {
			members, err := leader.members()
			if err != nil {
				return err
			}
			var have []string
			for name, m := range members {
				if m.Voter {
					have = append(have, name)
				}
			}
			slices.Sort(have)
			if len(want) == 0 && len(have) == 3 || slices.Equal(have, want) {
				return nil
			}
			return fmt.Errorf("%v vote", have)
		}
	}
	eventually(t, "three of four vote", seats())
	var dead, third, spare *node
	for _, n := range c.others(leader) {
		m, err := leader.members()
		require.NoError(t, err)
		switch {
		case !m[n.name].Voter:
			spare = n
		case dead == nil:
			dead = n
		default:
			third = n
		}
	}
	require.NotNil(t, spare)
	dead.kill()
	want := []string{leader.name, third.name, spare.name}
	slices.Sort(want)
	eventually(t, "the spare votes", seats(want...))
	dead.start()
	dead.awaitReady()

	// Now that one is the spare.
	third.terminate()
	leader.awaitMembers(map[string]string{leader.name: "up", third.name: "left", spare.name: "up", dead.name: "up"})
	require.NoError(t, seats(want...)(), "who ended by SIGTERM keeps its seat")
	eventually(t, "one more may leave, since the spare votes in its place", func() error { return spare.do(http.MethodPost, "/cluster/leave", nil, nil) })
	require.Equal(t, 0, spare.awaitEnd())
	want = []string{leader.name, third.name, dead.name}
	slices.Sort(want)
	eventually(t, "it votes", seats(want...))
	_, err := leader.addTo("still", 1)
	require.NoError(t, err)
}
