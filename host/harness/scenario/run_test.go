package scenario_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/host/harness/scenario"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/hash"
	"github.com/droverhq/drover/strategies/leastshard"
)

// run plays the only scenario of a document.
func run(t *testing.T, s *lab.Strategy, doc string) *scenario.Result {
	t.Helper()
	scenarios, err := scenario.Parse("x.toml", []byte(doc))
	require.NoError(t, err, doc)
	require.Len(t, scenarios, 1)
	r, err := scenarios[0].Run(t.Context(), s)
	require.NoError(t, err, doc)
	return r
}

func least(t *testing.T) *lab.Strategy {
	t.Helper()
	s := lab.Native("leastshard", leastshard.Strategy{})
	t.Cleanup(func() { assert.NoError(t, s.Close(t.Context())) })
	return s
}

// flawed answers otherwise each time, ignores pins and moves a shard to and fro.
type flawed struct {
	leastshard.Strategy
	calls *int
}

func (f flawed) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	*f.calls++
	homes := pluginapi.Homes{Nodes: make([]int, len(shards))}
	for i := range shards {
		homes.Nodes[i] = s.Candidates[*f.calls%len(s.Candidates)]
	}
	return homes, nil
}

func (f flawed) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	*f.calls++
	to := s.Candidates[0]
	if s.OwnerOf(1) == to {
		to = s.Candidates[1]
	}
	return pluginapi.Plan{Moves: []pluginapi.Move{{Shard: 1, Target: to}}}, nil
}

const (
	cluster = `nodes = [{ name = "a", zone = "z1" }, { name = "b", zone = "z1" }, { name = "c", zone = "z2" }]
owners = ["a", "a", "a", "a", "b", ""]
standby = ["c", "b", "", "", "", ""]
pinned = [[0, "a"]]
load.rate = [100, 100, 100, 100, 100, 100]
`
	question  = cluster + `op = "rebalance"` + "\n"
	placing   = cluster + `op = "allocate"` + "\n"
	simulated = cluster + `op = "play"` + "\n" + `events = [{ round = 3, kind = "leave", node = "b" }]` + "\n"
	failing   = cluster + "config.threshold = \"x\"\n"
)

// Spec 1.5: each expectation holds where it should, and can fail. Every key that there is has its row here and in the
// reference.
func TestEachExpectationHoldsAndFails(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "scenario-files.md"))
	require.NoError(t, err)
	module, err := os.ReadFile(filepath.Join("..", "..", "..", "strategies", "leastshard", "leastshard.wasm"))
	require.NoError(t, err)
	wasm := lab.Module("leastshard", module, host.Limits{})
	t.Cleanup(func() { assert.NoError(t, wasm.Close(t.Context())) })
	bad := lab.Native("flawed", flawed{calls: new(int)})
	native := least(t)

	type row struct {
		doc, key, right, wrong string
		check                  lab.Check
		on                     *lab.Strategy // what right is asked of; nil is leastshard
		bad                    *lab.Strategy // what wrong is asked of; nil likewise
	}
	rows := []row{
		{question, "moves", `[[1, "c"], [2, "b"]]`, `[[2, "b"], [1, "c"]]`, lab.CheckMoves, nil, nil},
		{question, "moves", `[1, 2]`, `[1]`, lab.CheckMoves, nil, nil},
		{question, "moves", `[1, [2, "b"]]`, `[1, [2, ""]]`, lab.CheckMoves, nil, nil},
		{question, "moved", `[2, 1]`, `[1, 3]`, lab.CheckMoves, nil, nil},
		{question, "moves_at_most", `2`, `1`, lab.CheckMostMoves, nil, nil},
		{question, "moves_at_least", `2`, `3`, lab.CheckLeastMoves, nil, nil},
		{question, "reason", `"shed what is above"`, `"even"`, lab.CheckReason, nil, nil},
		{question, "verdict", `"ok"`, `"trap"`, lab.CheckVerdict, nil, nil},
		{failing + `op = "rebalance"` + "\n", "error", `"config.threshold: want a whole number"`, `"config.max_moves"`, lab.CheckVerdict, nil, nil},
		{failing + `op = "rebalance"` + "\n", "verdict", `"refused"`, `"ok"`, lab.CheckVerdict, nil, nil},
		{question, "error", "", `"anything"`, lab.CheckVerdict, nil, nil},
		{placing, "homes", `["c"]`, `["a"]`, lab.CheckHomes, nil, nil},
		{placing, "homes", `[[5, "c"]]`, `[[4, "c"]]`, lab.CheckHomes, nil, nil},
		{placing + "ask = [5, 4]\n", "homes", `["c", "b"]`, `["c"]`, lab.CheckHomes, nil, nil},
		{placing + "ask = [5, 4]\n", "homes", `[[4, "b"]]`, `[[5, ""]]`, lab.CheckHomes, nil, nil},
		{placing, "reason", `""`, `"because"`, lab.CheckReason, nil, nil},
		{placing, "verdict", `"ok"`, `"output"`, lab.CheckVerdict, nil, nil},
		{placing, "error", "", `"anything"`, lab.CheckVerdict, nil, nil},
		{simulated, "moves_at_most", `2`, `1`, lab.CheckMostMoves, nil, nil},
		{simulated, "moves_at_least", `2`, `3`, lab.CheckLeastMoves, nil, nil},
		{simulated, "homes_at_most", `3`, `2`, lab.CheckHomes, nil, nil},
		{simulated, "homes_at_least", `3`, `4`, lab.CheckHomes, nil, nil},
		{simulated, "settles_within", `1`, `0`, lab.CheckSettles, nil, nil},
		{simulated, "settles_within", `1`, `1`, lab.CheckSettles, nil, bad},
		{simulated, "cycles", `false`, `true`, lab.CheckOscillates, nil, nil},
		{simulated, "cycles", `true`, `false`, lab.CheckOscillates, bad, bad},
		{failing + "op = \"play\"\nrounds = 2\n", "failures_at_most", `3`, `2`, lab.CheckValid, nil, nil},
	}
	for doc, after := range map[string]struct{ counts, owners, on, empty string }{
		question:  {`[2, 2, 1]`, `["a", "c", "b", "a", "b", ""]`, `{ c = [1], b = [4, 2] }`, `[]`},
		placing:   {`{ a = 4, c = 1 }`, `["a", "a", "a", "a", "b", "c"]`, `{ c = [5] }`, `[]`},
		simulated: {`{ a = 3, c = 3 }`, `["a", "a", "c", "a", "c", "c"]`, `{ c = [5, 4, 2] }`, `["b"]`},
	} {
		rows = append(rows,
			row{doc, "counts", after.counts, `{ c = 7 }`, lab.CheckOwners, nil, nil},
			row{doc, "owners", after.owners, `["b", "a", "a", "a", "b", "c"]`, lab.CheckOwners, nil, nil},
			row{doc, "on", after.on, `{ b = [0] }`, lab.CheckOwners, nil, nil},
			row{doc, "empty", after.empty, `["a"]`, lab.CheckOwners, nil, nil},
			row{doc, "homeless", map[bool]string{true: "1", false: "0"}[doc == question], `2`, lab.CheckHomes, nil, nil},
			row{doc, "imbalance_at_most", map[string]string{question: "1", placing: "3", simulated: "0"}[doc], `0`, lab.CheckEven, nil, bad},
			row{doc, "capacity_error_at_most", map[string]string{question: "1", placing: "3", simulated: "0"}[doc], `0`, lab.CheckEven, nil, bad},
			row{doc, "zone_imbalance_at_most", map[string]string{question: "3", placing: "4", simulated: "0"}[doc], `0`, lab.CheckZones, nil, bad},
			row{doc, "rate_imbalance_at_most", map[string]string{question: "100", placing: "300", simulated: "0"}[doc], `99`, lab.CheckEven, nil, bad},
			row{doc, "fuel_at_most", `10_000_000`, `10`, lab.CheckFuel, wasm, wasm},
			row{doc, "fuel_at_most", `0`, ``, lab.CheckFuel, native, nil},
			row{doc, "deterministic", `true`, `true`, lab.CheckDeterministic, nil, bad},
			row{doc, "keeps_pins", `true`, ``, lab.CheckPins, nil, nil},
		)
	}
	pinned := strings.Replace(cluster, `"", ""]`+"\npinned = [[0, \"a\"]]", `"", ""]`+"\npinned = [[5, \"c\"]]", 1)
	apart := strings.Replace(cluster, `["c", "b", `, `["b", "c", `, 1)
	for _, op := range []string{"rebalance", "allocate", "play"} {
		rows = append(rows,
			row{pinned + "op = \"" + op + "\"\n", "keeps_pins", `true`, `true`, lab.CheckPins, nil, lab.Native("stubborn", stubborn{})},
			row{cluster + "op = \"" + op + "\"\n", "standby_apart", ``, `true`, lab.CheckZones, nil, lab.Native("still", still{})},
			row{strings.Replace(apart, `["b", `, `["c", `, 1) + "op = \"" + op + "\"\n", "standby_apart", `true`, ``, lab.CheckZones, lab.Native("still", still{}), nil},
		)
	}

	covered := map[string]bool{}
	for _, r := range rows {
		for _, try := range []struct {
			value string
			on    *lab.Strategy
			holds bool
		}{{r.right, r.on, true}, {r.wrong, r.bad, false}} {
			if try.value == "" {
				continue
			}
			s := try.on
			if s == nil {
				s = native
			}
			doc := r.doc + "expect = { " + r.key + " = " + try.value + " }\n"
			result := run(t, s, doc)
			if try.holds {
				for _, f := range result.Failures {
					assert.Fail(t, "it should hold", "%s\n%s", doc, f.Text)
				}
				covered[result.Steps[0].Op.String()+" "+r.key+" holds"] = true
				continue
			}
			if !assert.Len(t, result.Failures, 1, doc) {
				continue
			}
			f := result.Failures[0]
			assert.Equal(t, []any{r.key, r.check}, []any{f.Expect, f.Fault.Check}, doc)
			assert.False(t, result.OK)
			line := 1 + strings.Count(r.doc, "\n")
			assert.Equal(t, line, f.Line)
			assert.Contains(t, f.Text, "right would have been: "+f.Right, "spec 1.5: what would have been right")
			assert.Contains(t, f.Text, "snapshot: 3 nodes, 6 shards")
			covered[result.Steps[0].Op.String()+" "+r.key+" fails"] = true
		}
	}
	for _, op := range []scenario.Op{scenario.Rebalance, scenario.Allocate, scenario.Play} {
		for _, key := range scenario.Expectations(op) {
			assert.True(t, covered[op.String()+" "+key+" fails"], "%s of %s has no row in which it fails", key, op)
			if key != "error" { // where it holds the call fails
				assert.True(t, covered[op.String()+" "+key+" holds"], "%s of %s has no row in which it holds", key, op)
			}
			assert.Contains(t, string(page), "`"+key+"`", "docs/scenario-files.md")
		}
	}
	for _, kind := range lab.EventKinds() {
		assert.Contains(t, string(page), "| `"+kind+"` |", "docs/scenario-files.md")
	}
}

// still never moves a shard, and leaves those without a home so.
type still struct{}

func (still) Allocate(_ *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	return pluginapi.Homes{Nodes: slices.Repeat([]int{pluginapi.NoTarget}, len(shards))}, nil
}

func (still) Rebalance(*pluginapi.Snapshot) (pluginapi.Plan, error) { return pluginapi.Plan{}, nil }

// stubborn gives homes without a look at pins.
type stubborn struct{ still }

func (stubborn) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	return pluginapi.Homes{Nodes: slices.Repeat([]int{s.Candidates[0]}, len(shards))}, nil
}

// docs/scenario-files.md shows a file that is read and holds, and a failure as it is printed.
func TestThePageIsTrue(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "scenario-files.md"))
	require.NoError(t, err)
	page := string(data)
	_, file, _ := strings.Cut(page, "```toml\n")
	file, _, _ = strings.Cut(file, "```")
	_, text, _ := strings.Cut(page, "```text\n")
	text, _, _ = strings.Cut(text, "…")

	scenarios, err := scenario.Parse("joins.toml", []byte(file))
	require.NoError(t, err)
	require.Len(t, scenarios, 3)
	for _, one := range scenarios {
		r, err := one.Run(t.Context(), least(t))
		require.NoError(t, err)
		for _, f := range r.Failures {
			t.Error(f.Text)
		}
	}
	broken := strings.Replace(file, `[4, "c"]`, `[5, "c"]`, 1)
	require.NotEqual(t, file, broken)
	scenarios, err = scenario.Parse("joins.toml", []byte(broken))
	require.NoError(t, err)
	r, err := scenarios[0].Run(t.Context(), least(t))
	require.NoError(t, err)
	require.Len(t, r.Failures, 1)
	assert.Contains(t, r.Failures[0].Text, text)
}

// A candidate's part is that of its weight, and an equal one where no weight is known.
func TestCapacity(t *testing.T) {
	doc := func(a, b, counts, most string) string {
		return `nodes = [{ name = "a", weight = ` + a + ` }, { name = "b", weight = ` + b + ` }, { name = "c", weight = 500, state = "draining" }]
op = "rebalance"
config.threshold = 100
counts = ` + counts + "\nexpect.capacity_error_at_most = " + most + "\n"
	}
	for _, tc := range []struct {
		a, b, counts, most string
		holds              bool
	}{
		{"100", "300", "[10, 30, 5]", "0", true},
		{"100", "300", "[11, 29, 5]", "0", false},
		{"100", "300", "[11, 29, 5]", "1", true},
		{"0", "0", "[4, 4, 0]", "0", true},
		{"0", "0", "[5, 3, 0]", "0", false},
		{"0", "1", "[1, 3, 0]", "0", false},
	} {
		r := run(t, lab.Native("still", still{}), doc(tc.a, tc.b, tc.counts, tc.most))
		assert.Equal(t, tc.holds, r.OK, tc)
	}
}

// A call that fails fails the scenario, whatever is expected besides, unless it says how the call ends.
func TestACallThatFails(t *testing.T) {
	for _, op := range []string{"rebalance", "allocate", "play"} {
		r := run(t, least(t), failing+"op = \""+op+"\"\nexpect.homeless = 1\n")
		require.Len(t, r.Failures, 1, op)
		f := r.Failures[0]
		assert.Equal(t, []any{"", lab.CheckAdmitted, 1}, []any{f.Expect, f.Fault.Check, f.Line})
		assert.Contains(t, f.Text, "config.threshold")
		if op == "allocate" {
			assert.Contains(t, f.Text, "allocate was asked for: 1: 5")
		}
	}
}

// Steps go on from each other, and end with the first that is not as expected.
func TestSteps(t *testing.T) {
	doc := `name = "three steps"
first = 1
nodes = ["a", "b"]
counts = [4, 0]

[[step]]
op = "rebalance"
expect.counts = [2, 2]

[[step]]
op = "allocate"
events = [{ kind = "join", node = "c", zone = "z9", tags = { rack = "7" } }, { kind = "crash", node = "b" }]
expect = { homes = ["c", "c"], on = { c = [1, 2] } }

[[step]]
op = "play"
events = [{ round = 1, kind = "drain", node = "c" }]
expect = { empty = ["c"], counts = { a = 3 } }

[[step]]
op = "rebalance"
expect.moves = []
`
	r := run(t, least(t), doc)
	assert.Len(t, r.Steps, 3, "the last step is not made")
	require.Len(t, r.Failures, 1)
	f := r.Failures[0]
	assert.Equal(t, []any{3, scenario.Play, "counts", 18}, []any{f.Step, f.Op, f.Expect, f.Line})
	assert.Contains(t, f.Text, `x.toml:18:36: scenario "three steps", step 3: play, counts`)
	assert.Contains(t, f.Text, "numbered from 0, as in a snapshot: 0 is 1 of the file")
	assert.Equal(t, []string{"a", "c"}, r.Steps[1].After.Nodes())
	snap, err := r.Steps[1].After.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []any{"z9", "1", []pluginapi.Tag{{Key: "rack", Value: "7"}}, "c"}, []any{snap.Nodes[1].Zone, snap.Nodes[1].Version, snap.Nodes[1].Tags, snap.Nodes[1].Addr})
	require.NotNil(t, r.Steps[2].Run)
	assert.Equal(t, 1, r.Steps[2].Run.Settled)

	out, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(out), `"op":"play","expect":"counts","what":`)
}

// What is given for the whole file holds in each scenario; what a scenario says goes before it.
func TestInCommon(t *testing.T) {
	scenarios, err := scenario.Parse("x.toml", []byte(`
nodes = 3
shards = 6
all_on = "b"
pinned = [[0, "a"]]
limits.moves = 2
config = { threshold = 3, max_moves = 9 }
now = 7
seed = 8
type = "counter"
revision = 9

[[scenario]]
name = "as it is"
op = "rebalance"
expect.moves = []

[[scenario]]
name = "another number of shards"
shards = 2
pinned = []
config = { threshold = 4 }
op = "rebalance"
expect.moves = []

[[scenario]]
name = "dealt in turn"
even = true
op = "rebalance"
expect.moves = []

[[scenario]]
name = "counts"
counts = { c = 1 }
op = "rebalance"
expect.moves = []

[[scenario]]
name = "by chance"
shards = 1000
random = 3
op = "rebalance"
expect.moves = []

[[scenario]]
name = "by the same chance"
shards = 1000
random = 3
op = "rebalance"
expect.moves = []
`))
	require.NoError(t, err)
	snaps := map[string]*pluginapi.Snapshot{}
	for _, s := range scenarios {
		snaps[s.Name], err = s.Cluster.Snapshot()
		require.NoError(t, err)
	}
	common := snaps["as it is"]
	assert.Equal(t, []uint32{1, 1, 1, 1, 1, 1}, common.Owners)
	assert.Equal(t, []pluginapi.Pin{{Shard: 0, Node: 0}}, common.Pinned)
	assert.Equal(t, []any{uint64(2), uint64(7), uint64(8), uint64(9), "counter"}, []any{common.MaxMoves, common.Now, common.Seed, common.Revision, common.Type})
	two := snaps["another number of shards"]
	assert.Equal(t, []uint32{1, 1}, two.Owners)
	assert.Empty(t, two.Pinned)
	threshold, err := two.Config.Uint("threshold", 0)
	require.NoError(t, err)
	most, err := two.Config.Uint("max_moves", 0)
	require.NoError(t, err)
	assert.Equal(t, []uint64{4, 9}, []uint64{threshold, most}, "config is laid over that of the file")
	assert.Equal(t, []uint32{0, 1, 2, 0, 1, 2}, snaps["dealt in turn"].Owners)
	assert.Equal(t, []uint32{2}, snaps["counts"].Owners)
	random := snaps["by chance"]
	assert.Equal(t, random.Owners, snaps["by the same chance"].Owners)
	for node, n := range random.Placement().Counts {
		assert.InDelta(t, 333, n, 60, "node %d", node)
	}
}

// A node is what a snapshot has of it, and a name alone is a node that is up, of weight 100 and version 1.
func TestNodes(t *testing.T) {
	scenarios, err := scenario.Parse("x.toml", []byte(`
nodes = ["b", { name = "a", state = "draining", weight = 50, version = "2", zone = "z", roles = ["r"], tags = { k = "v" }, load = { cpu = 500 }, coord = { vector = [1.0, 2], error = 0.5 } }]
owners = ["", "a", "b"]
busy = [[0, "b"], [1, ""]]
waiting = [2]
standby = ["a", "", "b"]
load = { rate = [1, "", 3], bytes = ["", "", 9] }
op = "rebalance"
expect.moves = []
`))
	require.NoError(t, err)
	assert.Equal(t, "x", scenarios[0].Name, "after the file")
	s, err := scenarios[0].Cluster.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, pluginapi.Node{Name: "a", Addr: "a", Incarnation: "a", State: pluginapi.StateDraining, Weight: 50, Version: "2", Zone: "z", Roles: []string{"r"},
		Tags: []pluginapi.Tag{{Key: "k", Value: "v"}}, Load: pluginapi.NodeLoad{CPU: pluginapi.Known(500)}, Coord: pluginapi.Coord{Vec: []float64{1, 2}, Error: 0.5}}, s.Nodes[0])
	assert.Equal(t, pluginapi.Node{Name: "b", Addr: "b", Incarnation: "b", State: pluginapi.StateUp, Weight: 100, Version: "1"}, s.Nodes[1])
	assert.Equal(t, []int{1}, s.Candidates)
	assert.Equal(t, []uint32{pluginapi.NoOwner, 0, 1}, s.Owners)
	assert.Equal(t, []uint32{0, pluginapi.NoOwner, 1}, s.Standby)
	assert.Equal(t, []pluginapi.Busy{{Shard: 0, Target: 1}, {Shard: 1, Target: pluginapi.NoTarget}}, s.Busy)
	assert.Equal(t, []uint32{2}, s.Waiting)
	assert.Equal(t, []uint32{1, pluginapi.UnknownLoad, 3}, s.Load.Rate)
	assert.Equal(t, []uint64{pluginapi.UnknownBytes, pluginapi.UnknownBytes, 9}, s.Load.Bytes)
}

// What only shows in playing is an error with its place.
func TestWhatCannotBePlayed(t *testing.T) {
	scenarios, err := scenario.Parse("x.toml", []byte("nodes = 2\nshards = 2\nop = \"play\"\nevents = [{ round = 1, kind = \"crash\", node = \"a\" }, { round = 2, kind = \"crash\", node = \"a\" }]\nexpect.homeless = 0\n"))
	require.NoError(t, err)
	_, err = scenarios[0].Run(t.Context(), lab.Native("hash", hash.Strategy{}))
	assert.ErrorContains(t, err, `x.toml:1: scenario "x": play: round 2: there is no node "a"`)
}
