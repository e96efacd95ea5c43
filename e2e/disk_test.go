package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// spawnFillable starts the node so that fill works: a write beyond a limit is an error then, and no signal that ends the process.
func (n *node) spawnFillable() {
	n.c.t.Helper()
	n.spawn(exec.Command("sh", append([]string{"-c", `trap '' XFSZ; exec "$0" "$@"`, drover}, n.args()...)...))
}

// fill takes the node's disk away while it runs, or gives it back: no file takes a byte more. Its log is one of them.
func (n *node) fill(full bool) {
	n.c.t.Helper()
	var limit unix.Rlimit
	require.NoError(n.c.t, unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &limit))
	limit.Cur = limit.Max
	if full {
		limit.Cur = 0
	}
	require.NoError(n.c.t, unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil))
}

// unready gives what /readyz says of a condition that does not hold.
func (n *node) unready(condition string) error {
	err := n.get("/readyz", nil)
	p, ok := errors.AsType[*problem](err)
	if !ok || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Raw, fmt.Sprintf(`{"name":%q,"ok":false`, condition)) {
		return fmt.Errorf("%s does not say that %q does not hold: %s", n.name, condition, fmt.Sprint(err)) // it may be none
	}
	return nil
}

// Spec 2.1: the disk of the leader fills while it runs. It ends neither by itself nor by a panic; it is not ready and says why; another node leads, and what
// clients were told is kept. Once there is room it takes part again by itself.
func TestDiskFillsUp(t *testing.T) {
	c := newCluster(t, quick...)
	c.start("a", "b", "c")
	first, _ := c.leader()
	eventually(t, "three voters", func() error {
		if v := first.metric("drover_raft_voters"); v != 3 {
			return fmt.Errorf("%v voters", v)
		}
		return nil
	})
	first.terminate() // and again, so that its disk can be filled
	first.spawnFillable()
	first.awaitReady()
	for l, _ := c.leader(); l != first; l, _ = c.leader() { // until it is its turn
		l.terminate()
		l.start()
		l.awaitReady()
	}
	others := c.others(first)
	counts := map[string]int64{}
	add := func() {
		t.Helper()
		for i := range 20 {
			id := fmt.Sprint("disk-", i)
			eventually(t, "an add", func() error { v, err := others[i%2].addTo(id, 1); counts[id] = v; return err })
		}
	}
	add()

	first.fill(true)
	eventually(t, "the leader says that its disk is full", func() error { return first.unready("disk") })
	eventually(t, "another leads", func() error {
		l, _ := c.leader()
		if l == first {
			return errors.New("it is still the one whose disk is full")
		}
		return nil
	})
	before := counts["disk-0"]
	add()
	require.Equal(t, before+1, counts["disk-0"])
	require.True(t, first.running(), first.log())

	first.fill(false)
	first.awaitReady()
	add()
	require.Equal(t, before+2, first.valueOf("disk-0"))
	require.Contains(t, first.log(), "can be written again")
	require.NotContains(t, first.log(), "panic")
	first.terminate()
}
