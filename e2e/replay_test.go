package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/records"
)

type replayed struct {
	code                                                         int
	Total, Same, Differs, NotComparable, NotReplayed, Unreadable int
	Findings                                                     []struct {
		Record      uint64
		Outcome     string
		Differences []struct{ Of string }
	}
}

// replay runs records again by the command; cache is where it keeps compiled modules.
func replay(t *testing.T, cache string, args ...string) (r replayed) {
	t.Helper()
	cmd := exec.Command(drover, append([]string{"strategy", "replay", "--json"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	require.NoError(t, json.Unmarshal(out, &r), "%v: %s%s", err, out, &errs)
	return r
}

// Spec 1.3, "Records": what three nodes decided by four strategies, one of which runs out of fuel, is decided again bit for bit, while they run and
// after a kill; a record that was changed is found.
func TestReplay(t *testing.T) {
	c := newCluster(t, quick...)
	nodes, _ := settledThree(t, c)
	cache := t.TempDir()
	for _, name := range []string{"hash", "rendezvous"} {
		wasm, digest := builtin(t, name)
		nodes[1].must(http.MethodPut, "/cluster/strategies/counter?source=builtin:"+name, wasm, nil)
		c.awaitStrategy(digest, "active")
		eventually(t, name+" is asked by somebody", func() error {
			for _, n := range nodes {
				if s, err := n.strategy(); err != nil || s.Calls > 0 {
					return err
				}
			}
			return errors.New("no call")
		})
	}
	bad, err := os.ReadFile(looping)
	require.NoError(t, err)
	_, digest := builtin(t, "rendezvous")
	nodes[1].must(http.MethodPut, "/cluster/strategies/counter?source=three-nodes-loop.wasm", bad, nil)
	c.awaitStrategy(digest, "reverted")

	verdicts, digests := map[string]int{}, map[host.Digest]bool{}
	eventually(t, "the failures are written down", func() error {
		clear(verdicts)
		for _, n := range nodes {
			if err := records.Read(n.data(), func(e records.Entry) error {
				if e.Err == nil {
					verdicts[e.Record.Verdict.String()]++
					digests[e.Record.Digest] = true
				}
				return e.Err
			}); err != nil {
				return err
			}
		}
		if verdicts["fuel"] < 3 {
			return fmt.Errorf("there are %v", verdicts)
		}
		return nil
	})
	require.Positive(t, verdicts["ok"])
	delete(digests, host.Digest{}) // native
	require.GreaterOrEqual(t, len(digests), 4)

	var led *node // who has the most records: who led may have changed
	same, most := 0, 0
	for _, n := range nodes {
		require.Zero(t, n.metric("drover_records_lost_total", `reason="queue_full"`)+n.metric("drover_records_lost_total", `reason="write_failed"`))
		if n.metric("drover_records_written_total") == 0 {
			continue
		}
		r := replay(t, cache, n.data())
		require.Zero(t, r.code, "%+v", r)
		require.Equal(t, r.Total, r.Same+r.NotComparable, "%+v", r)
		same += r.Same
		if r.Total > most {
			led, most = n, r.Total
		}
	}
	t.Logf("%d records are the same; verdicts: %v", same, verdicts)

	// One bit of one answer, in a file that was exported.
	file := filepath.Join(t.TempDir(), "doctored.rec")
	f, err := os.Create(file)
	require.NoError(t, err)
	w, err := records.NewWriter(f)
	require.NoError(t, err)
	changed, written := -1, 0
	require.NoError(t, records.Read(led.data(), func(e records.Entry) error {
		if changed < 0 && e.Record.Verdict == host.VerdictOK {
			changed = written
			e.Record.Output[0] ^= 1
		}
		written++
		return w.Write(e.Record)
	}))
	require.NoError(t, f.Close())
	require.GreaterOrEqual(t, changed, 0)
	r := replay(t, cache, file)
	require.Equal(t, 4, r.code, "%+v", r)
	require.Equal(t, 1, r.Differs)
	for _, f := range r.Findings {
		if f.Outcome == "differs" {
			require.EqualValues(t, changed, f.Record)
			require.Equal(t, "output", f.Differences[0].Of)
		}
	}

	// What a kill leaves behind can be read, and is gone on with.
	led.kill()
	before := replay(t, cache, led.data())
	require.Zero(t, before.code, "%+v", before)
	led.start()
	eventually(t, "it is ready again", func() error { return led.get("/readyz", nil) })
	after := replay(t, cache, led.data())
	require.Zero(t, after.code, "%+v", after)
	require.GreaterOrEqual(t, after.Total, before.Total)
}
