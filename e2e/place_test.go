package e2e

import (
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first minute of a user: one node from the shipped file, and one message (issue 2, "make run").
func TestOneNode(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	a.cold = true // as with a user
	a.start()
	a.awaitReady()
	var reply map[string]any
	a.must(http.MethodPost, "/entities/counter/user-42", []byte(`{"add":2}`), &reply)
	require.Equal(t, map[string]any{"value": 2.0}, reply)

	var l leader
	a.must(http.MethodGet, "/cluster/leader", nil, &l)
	require.Equal(t, "a", l.Name)

	a.signal(syscall.SIGHUP) // a terminal that closes, or the habit of reloading: no reason to end without a drain
	eventually(t, "SIGHUP is answered in the log", func() error {
		if !strings.Contains(a.log(), "SIGHUP changes nothing") {
			return errors.New(a.log())
		}
		return nil
	})
	a.must(http.MethodPost, "/entities/counter/user-42", []byte(`{"get":true}`), &reply)
	require.Equal(t, map[string]any{"value": 2.0}, reply)
	a.terminate()
	require.NotContains(t, a.log(), "level=ERROR")
}

// touch adds to n counters from many clients at once, so that every shard gets a home.
func touch(t *testing.T, through *node, entities []string) {
	t.Helper()
	work := make(chan string)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for e := range work {
				if v, err := through.addTo(e, 1); err != nil || v != 1 {
					t.Errorf("%s: %d, %v", e, v, err)
				}
			}
		})
	}
	for _, e := range entities {
		work <- e
	}
	close(work)
	wg.Wait()
}

// Three nodes share 100 shards evenly; a fourth gets its share by as many moves and no more; one that is told to end hands off what it has,
// and no add of anybody fails meanwhile (issue 2, spec 1.2, 2.3).
func TestThreeNodesAJoinAndAnEnd(t *testing.T) {
	c := newCluster(t, quick...)
	nodes := c.start("a", "b", "c")
	a, b := nodes[0], nodes[1]
	nodes[2].awaitMembers(map[string]string{"a": "up", "b": "up", "c": "up"})
	touch(t, b, ids("user", 1000))
	placed := a.awaitCounts(34, 33, 33)
	require.Len(t, placed.Shards, 100)

	// Under load from two nodes that stay.
	l := startLoad(t, 4, ids("join", 24), a, b)
	l.progress(200)
	d := c.add("d")
	d.start()
	d.awaitReady()
	joined := a.awaitCounts(25, 25, 25, 25)
	require.EqualValues(t, 25, joined.moves(placed), "moves for the fourth node: as many as it has shards")
	for shard, was := range placed.by() {
		if now := joined.by()[shard]; now.Node != "d" {
			require.Equal(t, was, now, "shard %d had no reason to move", shard)
		}
	}
	l.progress(200)
	nodes[2].terminate()
	l.progress(200)
	left := l.end(b)
	l.unfailing()
	require.Zero(t, left.counts()["c"], "what c had is handed off")
	for shard, was := range joined.by() {
		if was.Node != "c" && left.by()[shard].Epoch == was.Epoch {
			require.Equal(t, was.Node, left.by()[shard].Node)
		}
	}
	require.NotContains(t, nodes[2].log(), "cut short")
}

// The same with what node.toml ships with, and the adds through every node that stays: no setting is quicker than a user's.
func TestLongShippedDefaults(t *testing.T) {
	c := newCluster(t)
	nodes := c.start("a", "b", "c")
	nodes[0].awaitMembers(map[string]string{"a": "up", "b": "up", "c": "up"})
	touch(t, nodes[1], ids("user", 1000))
	placed := nodes[0].awaitCounts(34, 33, 33)
	l := startLoad(t, 6, ids("defaults", 48), nodes[0], nodes[1])
	c.start("d")
	joined := nodes[0].awaitCounts(25, 25, 25, 25)
	require.EqualValues(t, 25, joined.moves(placed))
	nodes[2].terminate()
	l.progress(500)
	// Ended nodes come back before the next one goes: three voters need two.
	nodes[2].start()
	nodes[2].awaitReady()
	nodes[0].awaitCounts(25, 25, 25, 25)
	c.node("d").terminate()
	l.progress(500)
	l.end(nodes[0])
	l.unfailing()
}

// Nodes that start together with bootstrap_expect = 3 found one cluster, whoever comes first (spec 5.1).
func TestFoundedTogether(t *testing.T) {
	c := newCluster(t, append(quick, "raft.bootstrap_expect=3")...)
	var nodes []*node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, c.add(name))
	}
	everybody := []string{nodes[0].gossip, nodes[1].gossip, nodes[2].gossip}
	for _, n := range nodes {
		n.join = everybody
		n.start()
	}
	ids := map[string]bool{}
	for _, n := range nodes {
		n.awaitReady()
		ids[n.awaitClusterID()] = true
	}
	require.Len(t, ids, 1, "clusters")
	c.leader()
	v, err := nodes[2].addTo("one", 3)
	require.NoError(t, err)
	require.EqualValues(t, 3, v)
	require.EqualValues(t, 3, nodes[0].valueOf("one"))
}

// A node without the type's role routes and hosts nothing (spec 2.4, 5.1); one without the coordinator role has no raft server.
func TestProxyOnlyNode(t *testing.T) {
	c := newCluster(t, quick...)
	a := c.start("a")[0]
	p := c.add("p", `roles=["gateway"]`)
	p.start()
	p.awaitReady()
	touch(t, p, ids("proxied", 50))
	require.EqualValues(t, 1, a.valueOf("proxied-7"))
	for _, s := range p.shards().Shards {
		require.Equal(t, "a", s.Node)
	}
	require.DirExists(t, filepath.Join(a.data(), "raft"))
	require.NoDirExists(t, filepath.Join(p.data(), "raft"))
	l := startLoad(t, 2, ids("gateway", 8), p)
	c.start("b")
	eventually(t, "shards lie on a and b alone", func() error { return onlyOn(p, "a", "b") })
	l.progress(100)
	l.end(p)
	l.unfailing()
	p.terminate()
}

// Mutual TLS between all nodes; a certificate of another authority is refused, and the cluster does not mind (spec 5.2).
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, foreign := filepath.Join(dir, "ca"), filepath.Join(dir, "foreign")
	cli(t, "tls", "ca", "--out", ca)
	cli(t, "tls", "ca", "--out", foreign)
	c := newCluster(t, quick...)
	certified := func(n *node, authority, ca string) {
		cli(t, "tls", "cert", "--ca", authority, "--name", n.name, "--out", n.dir)
		n.set = append(n.set, "tls.ca="+filepath.Join(ca, "ca.pem"), "tls.cert="+filepath.Join(n.dir, n.name+".pem"), "tls.key="+filepath.Join(n.dir, n.name+"-key.pem"))
	}
	var nodes []*node
	for _, name := range []string{"a", "b", "c"} {
		n := c.add(name)
		certified(n, ca, ca)
		n.start()
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.awaitReady()
	}
	touch(t, nodes[2], ids("secret", 1000))
	nodes[0].awaitCounts(34, 33, 33)

	stranger := c.add("x")
	certified(stranger, foreign, foreign)
	stranger.start()
	eventually(t, "the stranger is up", func() error { return stranger.get("/cluster/dead-letters", nil) })
	eventually(t, "the stranger's connections are refused", func() error {
		refused := 0.0
		for _, n := range c.nodes {
			refused += n.metric("drover_transport_refused_total", `reason="tls"`)
		}
		if refused == 0 {
			return errNotYet
		}
		return nil
	})
	require.Error(t, stranger.get("/readyz", nil), "it is in no cluster")
	touch(t, nodes[1], ids("still", 100))
	require.NotContains(t, nodes[0].log(), stranger.serverID(), "gossip without a key lets it be seen, but raft takes in nobody who has not shown a certificate")
	require.NotContains(t, nodes[0].awaitCounts(34, 33, 33).counts(), "x")
	if stranger.running() {
		stranger.kill()
	}
}

// cli runs a command of the binary that has to succeed, and gives its output.
func cli(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(drover, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "drover %s: %s", strings.Join(args, " "), &errs)
	return out.String()
}

// A node ends and comes back over and over under load: each time its shards go and others come, and no add of anybody fails (spec 2.3).
func TestLongEndsOverAndOver(t *testing.T) {
	c := newCluster(t, append(slices.Clone(quick), "log.level=debug")...)
	nodes, _ := settledThree(t, c)
	l := startLoad(t, 12, ids("over", 96), nodes[0], nodes[1])
	for range 12 {
		l.progress(1000)
		nodes[2].terminate()
		l.progress(1000)
		nodes[2].start()
		nodes[2].awaitReady()
		nodes[0].awaitCounts(34, 33, 33)
		if t.Failed() {
			break
		}
	}
	l.end(nodes[0])
	l.unfailing()
}
