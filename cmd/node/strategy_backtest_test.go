package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/strategies"
)

// ask makes a recorded call of a built-in strategy.
func ask(t *testing.T, name string, op pluginapi.Op, l host.Limits, cluster string, shards ...uint32) *host.Record {
	t.Helper()
	ctx := context.Background()
	rt, err := host.NewRuntime(ctx, host.Options{CacheDir: cacheDir()})
	require.NoError(t, err)
	wasm, _, ok := strategies.Builtin(name)
	require.True(t, ok)
	in, err := snapshotfile.Parse([]byte(cluster))
	require.NoError(t, err)
	in.Snapshot.Type = "counter"
	s, err := rt.Load(ctx, wasm, l, in.Snapshot.Config, host.WithName("builtin:"+name))
	require.NoError(t, err)
	rec := s.Call(ctx, op, &in.Snapshot, shards, 0).Record
	require.NoError(t, s.Close(ctx))
	require.NoError(t, rt.Close(ctx))
	return rec
}

// Spec 1.3: backtest runs another strategy over the records and reports where it would have decided otherwise.
func TestBacktest(t *testing.T) {
	dir := t.TempDir()
	uneven := `{"nodes":["a","b","c"],"owners":["a","a","a","a","b","c"]%s}`
	write(t, dir,
		ask(t, "hash", pluginapi.OpRebalance, host.Limits{}, fmt.Sprintf(uneven, "")),
		ask(t, "leastshard", pluginapi.OpRebalance, host.Limits{}, fmt.Sprintf(uneven, "")),                                                           // 1
		ask(t, "leastshard", pluginapi.OpAllocate, host.Limits{}, `{"nodes":["a","b"],"owners":[null,"a",null]}`, 2, 0),                               // 2: b, then the lower of a tie, a
		ask(t, "leastshard", pluginapi.OpRebalance, host.Limits{}, fmt.Sprintf(uneven, `,"config":{"threshold":9}`)),                                  // 3: nothing moves
		ask(t, "leastshard", pluginapi.OpRebalance, host.Limits{}, `{"nodes":["a","b","c"],"owners":["a","a","a","a","b","c"],"limits":{"moves":0}}`), // 4: no move is taken
	)
	out, _ := drover(t, 0, "strategy", "backtest", dir, "builtin:leastshard", "--json")
	var res backtestResult
	require.NoError(t, json.Unmarshal([]byte(out), &res))
	assert.Equal(t, []int{5, 4, 1, 0, 0, 0, 0, 0}, []int{res.Total, res.Same, res.Otherwise, res.Failed, res.RecordedFailed, res.BothFailed, res.NotCompared, res.Unreadable}, out)
	require.Len(t, res.Findings, 1)
	f := res.Findings[0]
	assert.EqualValues(t, 0, f.Record)
	assert.Equal(t, "otherwise", f.Outcome)
	assert.Equal(t, "builtin:hash", *f.Strategy)
	// hash sends 1 to b, 2 to c and leaves 0 and 3, 4 and 5 where they are; leastshard sheds the two lowest, to the emptiest.
	text, err := json.Marshal(f.Shards)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"shard":0,"from":"a","recorded":null,"candidate":{"node":"b"}},
		{"shard":1,"from":"a","recorded":{"node":"b"},"candidate":{"node":"c"}},
		{"shard":2,"from":"a","recorded":{"node":"c"},"candidate":null}]`, string(text))
	assert.Equal(t, res.Candidate.Moves, 4)
	assert.Equal(t, res.Recorded.Moves, 4)
	assert.Equal(t, 2, res.Recorded.Homes)
	assert.EqualValues(t, 3, res.Candidate.Imbalance.Most, "record 3 and 4 leave 4, 1, 1")
	assert.EqualValues(t, 0, res.Candidate.Imbalance.Median)
	assert.Positive(t, res.Recorded.Fuel.Median)

	// A configuration of its own: nothing moves at all, where there was something to move.
	out, _ = drover(t, 0, "strategy", "backtest", dir, "builtin:leastshard", "--strategy-config", `{"threshold":9}`)
	assert.Contains(t, out, dir+": 5 recorded calls asked again of builtin:leastshard: 3 the same, 2 otherwise\n")
	assert.Regexp(t, `moves +4 +0\n`, out)
	assert.Contains(t, out, "record 1: otherwise (rebalance of counter by builtin:leastshard, sha256:")
	assert.Contains(t, out, "  shard 0 of a: on record to b, builtin:leastshard stays\n")

	// One record alone, by the digest that shard explain tells.
	rec := ask(t, "leastshard", pluginapi.OpAllocate, host.Limits{}, `{"nodes":["a","b"],"owners":[null,"a",null]}`, 2, 0)
	out, _ = drover(t, 0, "strategy", "backtest", dir, "builtin:hash", "--record", rec.DigestInput().String())
	assert.Contains(t, out, "1 recorded call asked again of builtin:hash: 0 the same, 1 otherwise")
	assert.Contains(t, out, "  shard 2: on record to b, builtin:hash to a\n")
}

// A candidate that gives no decision is named first, and ends in the code of a verdict; a call on record that had none is told apart.
func TestBacktestOfFailures(t *testing.T) {
	dir := t.TempDir()
	many := `{"nodes":["a","b","c","d","e","f","g","h","i","j","k","l"],"owners":["a","a",null,"b"]}` // the attack spares small clusters, as those of the trial call
	good := ask(t, "leastshard", pluginapi.OpAllocate, host.Limits{}, many, 2)
	short, torn := *good, *good
	short.Input = nil
	torn.Output = torn.Output[:len(torn.Output)-1]
	failed := *good
	failed.Verdict, failed.Error, failed.Output, failed.Fuel = host.VerdictTrap, "trap: unreachable", nil, nil
	write(t, dir, good, &failed, &short, &torn)

	loop := filepath.Join("..", "..", "host", "testdata", "attack", "loop.wasm")
	out, _ := drover(t, 4, "strategy", "backtest", dir, loop, "--fuel", "100000")
	assert.Contains(t, out, "4 recorded calls asked again of loop.wasm: 0 the same, 0 otherwise, 1 without a decision of loop.wasm, 1 with no decision of either, 2 not compared\n")
	assert.Contains(t, out, "\nrecord 0: failed (")
	assert.Contains(t, out, "\nrecord 2: not-compared (")
	assert.Contains(t, out, "  its input was too long to be kept\n")
	assert.Contains(t, out, "  its output cannot be read: ")

	out, _ = drover(t, 0, "strategy", "backtest", dir, "builtin:leastshard", "--json")
	var res backtestResult
	require.NoError(t, json.Unmarshal([]byte(out), &res))
	assert.Equal(t, []int{1, 1, 2}, []int{res.Same, res.RecordedFailed, res.NotCompared})
	assert.Equal(t, 1, res.Recorded.Failures)
	assert.Equal(t, host.VerdictTrap, *res.Findings[0].Recorded)
	assert.Equal(t, "trap: trap: unreachable", *res.Findings[0].Reason)

	// A configuration on record that the candidate refuses is its failure, call by call; its own helps.
	odd := ask(t, "hash", pluginapi.OpRebalance, host.Limits{}, `{"nodes":["a","b"],"owners":["a","b"],"config":{"threshold":"high"}}`)
	other := t.TempDir()
	write(t, other, odd)
	out, _ = drover(t, 4, "strategy", "backtest", other, "builtin:leastshard")
	assert.Contains(t, out, "record 0: failed (")
	assert.Contains(t, out, "threshold")
	drover(t, 0, "strategy", "backtest", other, "builtin:leastshard", "--strategy-config", "{}")

	// Nothing that could be compared is no good news.
	none := t.TempDir()
	write(t, none, &short)
	drover(t, 1, "strategy", "backtest", none, "builtin:hash")
}

func TestBacktestUsage(t *testing.T) {
	dir, _ := dataDir(t)
	for want, args := range map[string][]string{
		"STRATEGY is missing":      {dir},
		"--last 0: at least 1":     {dir, "builtin:hash", "--last", "0"},
		"--strategy-config":        {dir, "builtin:hash", "--strategy-config", "7"},
		"--engine":                 {dir, "builtin:hash", "--engine", "steam"},
		`no built-in strategy "x"`: {dir, "builtin:x"},
	} {
		_, errs := drover(t, 2, append([]string{"strategy", "backtest"}, args...)...)
		require.Contains(t, errs, want)
		require.Contains(t, errs, "hint: ")
	}
	_, errs := drover(t, 1, "strategy", "backtest", filepath.Join(dir, "gone"), "builtin:hash")
	require.Contains(t, errs, "hint: name the data_dir of a node")
	bad := filepath.Join(t.TempDir(), "bad.wasm")
	require.NoError(t, os.WriteFile(bad, []byte(strings.Repeat("no wasm ", 9)), 0o600))
	drover(t, 3, "strategy", "backtest", dir, bad)
}
