package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/records"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
)

// calls makes one good and one looping call, of two types.
func calls(t *testing.T, store *modules.Store) (out []*host.Record) {
	t.Helper()
	ctx := context.Background()
	rt, err := host.NewRuntime(ctx, host.Options{})
	require.NoError(t, err)
	for _, c := range []struct{ module, typ string }{{"well-behaved", "counter"}, {"loop", "cart"}} {
		wasm, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", "attack", c.module+".wasm"))
		require.NoError(t, err)
		if store != nil {
			_, err = store.Put(wasm)
			require.NoError(t, err)
		}
		in, err := snapshotfile.Parse([]byte(`{"nodes":["a","b","c","d","e","f","g","h","i","j","k","l"],"owners":["a","a",null,"b"]}`))
		require.NoError(t, err)
		in.Snapshot.Type = c.typ
		s, err := rt.Load(ctx, wasm, host.Limits{Fuel: 100_000}, in.Snapshot.Config, host.WithName(c.module+".wasm"))
		require.NoError(t, err)
		out = append(out, s.Call(ctx, pluginapi.OpAllocate, &in.Snapshot, []uint32{2}, 0).Record)
		require.NoError(t, s.Close(ctx))
	}
	require.NoError(t, rt.Close(ctx))
	require.Equal(t, host.VerdictOK, out[0].Verdict)
	require.Equal(t, host.VerdictFuel, out[1].Verdict)
	return out
}

// dataDir is a data_dir with records, and the modules that they are of.
func dataDir(t *testing.T) (dir string, recs []*host.Record) {
	t.Helper()
	dir = t.TempDir()
	store, err := modules.Open(filepath.Join(dir, "modules"))
	require.NoError(t, err)
	recs = calls(t, store)
	write(t, dir, recs...)
	return dir, recs
}

func write(t *testing.T, dir string, recs ...*host.Record) {
	t.Helper()
	ring := records.Open(records.Config{Dir: filepath.Join(dir, records.Dir), Logger: slog.New(slog.DiscardHandler)})
	for _, r := range recs {
		ring.Record(r)
	}
	ring.Close()
	require.EqualValues(t, len(recs), ring.Stats().Written)
}

func drover(t *testing.T, code int, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	got := run(args, strings.NewReader(""), &o, &e)
	require.Equal(t, code, got, "%v\n%s%s", args, &o, &e)
	return o.String(), e.String()
}

// Spec 1.3, 1.6: replay of what was recorded is the same; what was changed is found and named; exit codes as those of run.
func TestReplay(t *testing.T) {
	dir, recs := dataDir(t)
	out, _ := drover(t, 0, "strategy", "replay", dir)
	require.Equal(t, dir+": 2 records replayed: 2 the same, 0 differ\n", out)
	drover(t, 0, "strategy", "replay", dir, "--engine", "interpreter")
	drover(t, 0, "strategy", "replay", filepath.Join(dir, records.Dir), "--last", "1")
	out, _ = drover(t, 0, "strategy", "replay", dir, "--type", "cart", "--json")
	require.Contains(t, out, `"total": 1,`)

	_, list := drover(t, 1, "strategy", "replay", dir, "--record", "sha256:"+strings.Repeat("00", 32))
	require.Contains(t, list, "no record of input sha256:0000")
	out, _ = drover(t, 0, "strategy", "replay", dir, "--record", recs[1].InputDigest.String())
	require.Contains(t, out, ": 1 records replayed: 1 the same")

	doctored, clock, foreign := *recs[0], *recs[0], *recs[0]
	doctored.Output = append([]byte{}, doctored.Output...)
	doctored.Output[len(doctored.Output)-1] ^= 1
	clock.Verdict = host.VerdictBudget
	foreign.Digest[0] ^= 1
	write(t, dir, &doctored, &clock, &foreign)
	out, _ = drover(t, 4, "strategy", "replay", dir)
	require.Contains(t, out, "5 records replayed: 2 the same, 1 differ, 1 not comparable, a clock ended them, 1 not replayed\n")
	require.Contains(t, out, "\nrecord 2: differs (allocate of counter by well-behaved.wasm, sha256:")
	require.Regexp(t, `\n  output: recorded \d+ bytes, sha256:[0-9a-f]{64}, replayed \d+ bytes, sha256:[0-9a-f]{64}\n`, out)
	require.Contains(t, out, "\nrecord 4: not-replayed (")
	require.Contains(t, out, "give its .wasm file as the second argument")
	require.NotContains(t, out, "record 3", "what a clock ended is nobody's fault")

	var res replayResult
	out, _ = drover(t, 4, "strategy", "replay", dir, "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &res))
	require.Equal(t, []int{5, 2, 1, 1, 1, 0}, []int{res.Total, res.Same, res.Differs, res.NotComparable, res.NotReplayed, res.Unreadable})
	require.Equal(t, "output", res.Findings[0].Differences[0].Of)

	// One that cannot be replayed is no proof that all is well.
	out, _ = drover(t, 1, "strategy", "replay", dir, "--last", "1")
	require.Contains(t, out, "1 not replayed")
}

// An exported file goes with the module's file; a damaged one says where.
func TestReplayOfAFile(t *testing.T) {
	dir, recs := dataDir(t)
	file := filepath.Join(t.TempDir(), "calls.rec")
	out, _ := drover(t, 0, "strategy", "replay", dir, "--export", file)
	require.Equal(t, file+": 2 records\n", out)
	_, errs := drover(t, 1, "strategy", "replay", dir, "--export", file)
	require.Contains(t, errs, "file exists")
	require.Contains(t, errs, "hint: name a file that there is not")

	module := filepath.Join("..", "..", "host", "testdata", "attack", "well-behaved.wasm")
	out, _ = drover(t, 0, "strategy", "replay", file, module)
	require.Contains(t, out, ": 1 records replayed: 1 the same", "the module's own records alone")
	out, _ = drover(t, 1, "strategy", "replay", file)
	require.Contains(t, out, "2 not replayed")
	_, errs = drover(t, 1, "strategy", "replay", file, "builtin:hash")
	require.Contains(t, errs, "no record of module sha256:")
	_, errs = drover(t, 1, "strategy", "replay", file, "--type", "basket")
	require.Contains(t, errs, `no record of type "basket"`)

	b, err := os.ReadFile(file)
	require.NoError(t, err)
	b[len(b)-1] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o600))
	out, _ = drover(t, 1, "strategy", "replay", file, module)
	require.Contains(t, out, "1 the same, 0 differ, 1 unreadable")
	require.Contains(t, out, "a damaged record")
	out, _ = drover(t, 0, "strategy", "replay", file, "--list")
	require.Regexp(t, `(?m)^0 +\d{4}-\d\d-\d\dT[0-9:]+Z +counter +allocate +well-behaved.wasm +ok +\d+ +\S+ +sha256:[0-9a-f]{12}… +sha256:`+recs[0].Digest.String()[7:19]+"…$", out)
	out, _ = drover(t, 0, "strategy", "replay", file, "--export", file+".2")
	require.Contains(t, out, ": 1 records; 1 could not be read\n")

	// Damage elsewhere says nothing about the one record that is asked for, nor is it that record.
	out, _ = drover(t, 0, "strategy", "replay", file, module, "--record", recs[0].DigestInput().String())
	require.Contains(t, out, ": 1 records replayed: 1 the same, 0 differ\n")
	other := host.DigestOf(nil).String()
	_, errs = drover(t, 1, "strategy", "replay", file, module, "--record", other)
	require.Contains(t, errs, "no record of input "+other+" of module sha256:")
	require.Contains(t, errs, "1 record could not be read")
}

func TestReplayUsage(t *testing.T) {
	dir, _ := dataDir(t)
	for want, args := range map[string][]string{
		"DATA_DIR|FILE is missing":     {},
		"--last 0: at least 1":         {dir, "--last", "0"},
		"--list and --export":          {dir, "--list", "--export", "x"},
		"--record":                     {dir, "--record", "sha256:1"},
		"--engine":                     {dir, "--engine", "steam"},
		`no built-in strategy "x"`:     {dir, "builtin:x"},
		`"c" is one argument too many`: {"a", "b", "c"},
	} {
		_, errs := drover(t, 2, append([]string{"strategy", "replay"}, args...)...)
		require.Contains(t, errs, want)
		require.Contains(t, errs, "hint: ")
	}
	for want, path := range map[string]string{"no file of strategy records": t.TempDir(), "no such file": filepath.Join(dir, "gone")} {
		_, errs := drover(t, 1, "strategy", "replay", path)
		require.Contains(t, errs, want)
		require.Contains(t, errs, "hint: name the data_dir of a node")
	}
	text := filepath.Join(t.TempDir(), "node.toml")
	require.NoError(t, os.WriteFile(text, []byte("name = 1"), 0o600))
	_, errs := drover(t, 1, "strategy", "replay", text)
	require.Contains(t, errs, "no file of strategy records")

	// A node that has not led yet has no records.
	empty := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(empty, records.Dir), 0o700))
	_, errs = drover(t, 1, "strategy", "replay", empty)
	require.Contains(t, errs, "the node that leads makes the calls")
}
