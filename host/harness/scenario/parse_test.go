package scenario_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness/scenario"
)

// sound is a file in which each row of TestWhatIsWrongIsTold changes one thing.
const sound = `nodes = ["a", "b", "c"]
first = 1
counts = [2, 2, 0]

[[scenario]]
name = "one"
op = "rebalance"
expect = { moves = [[1, "c"]] }
`

func TestSoundFileIsRead(t *testing.T) {
	scenarios, err := scenario.Parse("x.toml", []byte(sound))
	require.NoError(t, err)
	require.Len(t, scenarios, 1)
	s := scenarios[0]
	assert.Equal(t, "one", s.Name)
	assert.Equal(t, 5, s.Line)
	assert.EqualValues(t, 1, s.First)
	assert.Equal(t, []string{"a", "b", "c"}, s.Cluster.Nodes())
	require.Len(t, s.Steps, 1)
	assert.Equal(t, scenario.Rebalance, s.Steps[0].Op)
	require.Len(t, s.Steps[0].Expects, 1)
	e := s.Steps[0].Expects[0]
	assert.Equal(t, []any{"moves", 8, 20}, []any{e.Key, e.Line, e.Col})
}

// Spec 1.5, style.md: unknown keys are errors, and an error names the place, the key, what is wrong and what is wanted.
func TestWhatIsWrongIsTold(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		// The file.
		{`first = 1`, `first = `, `x.toml:2:9: not TOML: `},
		{`first = 1`, `fist = 1`, `x.toml:2:1: fist: unknown key: did you mean "first"?`},
		{`first = 1`, `op = "play"`, `x.toml:2:1: op: unknown key: before [[scenario]] stands what the scenarios of a file have in common`},
		{`[[scenario]]`, `[scenario]`, `x.toml:5:1: scenario: want tables, [[scenario]], got a table`},
		{`name = "one"`, ``, `x.toml:5:1: name: each [[scenario]] has a name`},
		{`name = "one"`, `name = 1`, `x.toml:6:8: name: want a text in quotes, got a whole number, 1`},
		{`name = "one"`, "name = \"one\"\n[[scenario]]\nname = \"one\"", `x.toml:8:8: name: the scenario in line 5 has this name already`},

		// The cluster.
		{`nodes = ["a", "b", "c"]`, ``, `x.toml:5:1: nodes: there are none: want a list of names or tables, or how many`},
		{`nodes = ["a", "b", "c"]`, `nodes = "a"`, `x.toml:1:9: nodes: want a list of names or tables, or how many, got a text, "a"`},
		{`nodes = ["a", "b", "c"]`, `nodes = 10001`, `x.toml:1:9: nodes: 10001 is out of range: between 0 and 10000`},
		{`nodes = ["a", "b", "c"]`, `nodes = ["a", 2, "c"]`, `x.toml:1:15: nodes[1]: want a name or a table, got a whole number, 2`},
		{`nodes = ["a", "b", "c"]`, `nodes = ["a", "b", "b"]`, `x.toml:1:20: nodes[2]: the name "b" is that of nodes[1] already`},
		{`nodes = ["a", "b", "c"]`, `nodes = ["a", "b", { zone = "z" }]`, `x.toml:1:20: nodes[2].name: the key is missing`},
		{`nodes = ["a", "b", "c"]`, `nodes = ["a", "b", { name = "c", zon = "z" }]`, `x.toml:1:40: nodes[2].zon: unknown key: did you mean "zone"?`},
		{`nodes = ["a", "b", "c"]`, `nodes = ["a", "b", { name = "c", state = "gone" }]`, `x.toml:1:42: nodes[2].state: want up, joining, leaving, draining, unreachable or away, got "gone"`},
		{`nodes = ["a", "b", "c"]`, `nodes = ["a", "b", { name = "c", weight = -1 }]`, `x.toml:1:43: nodes[2].weight: want a whole number of at least 0, got the number -1`},
		{`first = 1`, `first = -1`, `x.toml:2:9: first: -1 is out of range`},
		{`counts = [2, 2, 0]`, ``, `x.toml:5:1: scenario[0]: want one of owners (a node for each shard), counts (shards a node) and shards (how many), got none`},
		{`counts = [2, 2, 0]`, `counts = [2, 2]`, `x.toml:3:10: counts: 2 numbers for 3 nodes`},
		{`counts = [2, 2, 0]`, `counts = [2, 2, 1.5]`, `x.toml:3:17: counts[2]: want a whole number, got a decimal number, 1.5`},
		{`counts = [2, 2, 0]`, `counts = { a = 2, z = 1 }`, `x.toml:3:23: counts.z: there is no node "z" (did you mean "a"?)`},
		{`counts = [2, 2, 0]`, `counts = 4`, `x.toml:3:10: counts: want a list of numbers in the order of nodes, or a table of numbers by name, got a whole number, 4`},
		{`counts = [2, 2, 0]`, `counts = [900000, 900000, 0]`, `x.toml:3:10: counts: 1800000 shards: at most 1000000`},
		{`counts = [2, 2, 0]`, "counts = [2, 2, 0]\nshards = 4", `want one of owners (a node for each shard), counts (shards a node) and shards (how many), got counts and shards`},
		{`counts = [2, 2, 0]`, `owners = ["a", "nope"]`, `x.toml:3:16: owners[1]: there is no node "nope" in nodes`},
		{`counts = [2, 2, 0]`, `shards = 4` + "\n" + `all_on = "nowhere"`, `x.toml:4:10: all_on: there is no node "nowhere": the nodes are a, b, c`},
		{`counts = [2, 2, 0]`, "shards = 4\nall_on = \"a\"\neven = true", `x.toml:4:10: all_on: want one of all_on, even and random, got all_on and even`},
		{`counts = [2, 2, 0]`, "shards = 4\neven = false", `x.toml:4:8: even: want true, got a truth value, false`},
		{`counts = [2, 2, 0]`, "counts = [2, 2, 0]\nrandom = 7", `x.toml:4:10: random: it goes with shards = NUMBER: owners and counts say where shards are`},
		{`nodes = ["a", "b", "c"]`, "nodes = 0", `x.toml:3:10: counts: 3 numbers for 0 nodes`},
		{`first = 1`, "first = 1\nbusy = [[5, \"b\"]]", `x.toml:3:10: busy[0][0]: there is no shard 5: there are 4, from 1 on`},
		{`first = 1`, "first = 1\nbusy = [[1, \"d\"]]", `x.toml:3:13: busy[0][1]: there is no node "d" (did you mean "a"?)`},
		{`first = 1`, "first = 1\nbusy = [[1, 9]]", `x.toml:3:13: busy[0][1]: node 9 is out of range: nodes has 3`},
		{`first = 1`, "first = 1\nbusy = [1]", `x.toml:3:9: busy[0]: want a pair, [SHARD, NODE], got a whole number, 1`},
		{`first = 1`, "first = 1\nwaiting = [0]", `x.toml:3:12: waiting[0]: there is no shard 0: there are 4, from 1 on`},
		{`first = 1`, "first = 1\nwaiting = [2, 2]", `x.toml:3:15: waiting[1]: shard 2 is there twice`},
		{`first = 1`, "first = 1\npinned = [[4, \"a\"], [4, \"b\"]]", `x.toml:3:21: pinned[1]: shard 4 is there twice`},
		{`first = 1`, "first = 1\nload.rate = [1, \"\"]", `x.toml:3:13: load.rate: `},
		{`first = 1`, "first = 1\nload.rates = [1]", `x.toml:3:14: load.rates: unknown key: did you mean "rate"?`},
		{`first = 1`, "first = 1\nlimits.moves = \"all\"", `x.toml:3:16: limits.moves: want a whole number of at least 0, got the text "all"`},
		{`first = 1`, "first = 1\ncandidates = [\"x\"]", `x.toml:3:15: candidates[0]: there is no node "x"`},

		// The step.
		{`op = "rebalance"`, ``, `x.toml:5:1: op: it is missing: want rebalance, allocate, play`},
		{`op = "rebalance"`, `op = "move"`, `x.toml:7:6: op: want rebalance, allocate, play, got "move"`},
		{`op = "rebalance"`, "op = \"rebalance\"\nrounds = 3", `x.toml:8:10: rounds: it is of play, not of rebalance`},
		{`op = "rebalance"`, "op = \"rebalance\"\nask = [1]", `x.toml:8:7: ask: it is of allocate, not of rebalance`},
		{`op = "rebalance"`, "op = \"rebalance\"\nexpct = {}", `x.toml:8:1: expct: unknown key: did you mean "expect"?`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ kind = \"join\" }]", `x.toml:8:11: events[0].node: it is missing: an event join says it`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ kind = \"crsh\", node = \"a\" }]", `x.toml:8:20: events[0].kind: there is no event "crsh" (did you mean "crash"?)`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ node = \"a\" }]", `events[0].kind: it is missing: want one of join, leave,`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ round = 2, kind = \"crash\", node = \"a\" }]", `x.toml:8:13: events[0].round: unknown key: known here are kind, node`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ kind = \"crash\", node = \"d\" }]", `x.toml:8:36: events[0].node: there is no node "d"`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ kind = \"join\", node = \"d\", zne = \"z\" }]", `events[0].zne: unknown key: did you mean "zone"?`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ kind = \"join\", node = \"d\", load = { cpu = \"x\" } }]", `x.toml:8:55: events[0].load.cpu: want a whole number of at least 0, got the text "x"`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = [{ kind = \"pin\", node = \"a\", shards = [] }]", `events[0].shards: the list is empty: leave it out for all shards`},
		{`op = "rebalance"`, "op = \"rebalance\"\nevents = 3", `x.toml:8:10: events: want a list, got a whole number, 3`},
		{`op = "rebalance"`, "op = \"rebalance\"\n[[scenario.step]]\n", `x.toml:7:1: op: unknown key: known here are name, step, nodes, `},
		{"op = \"rebalance\"\nexpect = { moves = [[1, \"c\"]] }", "op = \"play\"\nrounds = 5\nevents = [{ round = 3, kind = \"crash\", node = \"a\" }]\nexpect.settles_within = 1",
			`x.toml:10:25: expect.settles_within: in 5 rounds it cannot be told, only in 6: rounds = 6`},
		{"op = \"rebalance\"\nexpect = { moves = [[1, \"c\"]] }", "op = \"play\"\nexpect.settles_within = 98", `in 100 rounds it cannot be told, only in 101`},

		// What is expected.
		{`expect = { moves = [[1, "c"]] }`, ``, `x.toml:5:1: scenario[0]: nothing is expected: a scenario has an expect table, in one of its steps at least`},
		{`expect = { moves = [[1, "c"]] }`, `expect = {}`, `nothing is expected`},
		{`expect = { moves = [[1, "c"]] }`, `expect = 1`, `x.toml:8:10: expect: want a table, got a whole number, 1`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { move = [1] }`, `x.toml:8:12: expect.move: unknown key: did you mean "moves"?`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { homes = ["a"] }`, `x.toml:8:20: expect.homes: of op = "rebalance" it cannot be expected, only of allocate`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { moves = [[1, "d"]] }`, `x.toml:8:25: expect.moves[0][1]: there is no node "d"`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { moves = [5] }`, `x.toml:8:21: expect.moves[0]: there is no shard 5: there are 4, from 1 on`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { moves = [[1]] }`, `x.toml:8:21: expect.moves[0]: want a shard, or a pair [SHARD, NODE], got a list of 1`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { moved = "1" }`, `x.toml:8:20: expect.moved: want a list, got a text, "1"`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { verdict = "good" }`, `x.toml:8:22: expect.verdict: want ok, refused, trap, fuel, depth, budget or output, got "good"`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { moves_at_most = -1 }`, `x.toml:8:28: expect.moves_at_most: -1 is out of range`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { counts = [1] }`, `x.toml:8:21: expect.counts: 1 numbers for 3 nodes`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { owners = ["a"] }`, `x.toml:8:21: expect.owners: 1 owners for 4 shards`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { on = ["a"] }`, `x.toml:8:17: expect.on: want a table of shards by node, got a list`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { on = { a = [1], b = [1] } }`, `x.toml:8:32: expect.on.b: shard 1 is on a already`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { empty = ["d"] }`, `x.toml:8:21: expect.empty[0]: there is no node "d"`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { deterministic = false }`, `x.toml:8:28: expect.deterministic: want true, got a truth value, false`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { standby_apart = 1 }`, `x.toml:8:28: expect.standby_apart: want true, got a whole number, 1`},
		{`expect = { moves = [[1, "c"]] }`, `expect = { reason = 1 }`, `x.toml:8:21: expect.reason: want a text in quotes, got a whole number, 1`},
	} {
		require.Contains(t, sound, tc.old)
		doc := strings.Replace(sound, tc.old, tc.new, 1)
		_, err := scenario.Parse("x.toml", []byte(doc))
		var wrong scenario.Errors
		if assert.ErrorAs(t, err, &wrong, tc.new) {
			assert.ErrorContains(t, err, tc.want, doc)
		}
	}
}

// Everything that is wrong is told at once, in the order of the file; what scenarios have in common is told once.
func TestAllErrorsAtOnce(t *testing.T) {
	_, err := scenario.Parse("x.toml", []byte(`pinned = [[9, "a"]]
nodes = 2
counts = [1, 1]
[[scenario]]
name = "one"
op = "play"
expct = 1
expect.homeless = 0
[[scenario]]
name = "two"
op = "play"
expect.homeless = -1
`))
	assert.EqualError(t, err, `x.toml:1:12: pinned[0][0]: there is no shard 9: there are 2, from 0 on
x.toml:7:1: expct: unknown key: did you mean "expect"?`)
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := scenario.Load(filepath.Join(dir, "none.toml"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = scenario.Load(dir)
	assert.ErrorContains(t, err, "is a directory")
	path := filepath.Join(dir, "moves.toml")
	require.NoError(t, os.WriteFile(path, []byte("nodes = 1\nshards = 1\nop = \"allocate\"\nexpect.homes = [\"a\"]\n"), 0o600))
	scenarios, err := scenario.Load(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"moves", path}, []string{scenarios[0].Name, scenarios[0].File})
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("# a comment that never ends\n", 1<<19)), 0o600))
	_, err = scenario.Load(path)
	assert.ErrorContains(t, err, "is larger than 8 MiB")
}

// FuzzParse: no file makes the parser panic; an error has a place in the file; what is read has expectations, and a
// cluster that a strategy can be asked about.
func FuzzParse(f *testing.F) {
	f.Add(sound)
	f.Add("nodes = [{ name = \"a\", coord = [1, 2, 3, 4] }, \"b\"]\nowners = [\"a\", \"\", 1]\nstandby = [\"\"]\nload.rate = [1]\n[[step]]\nop = \"play\"\nevents = [{ round = 1, kind = \"join\", node = \"c\" }]\nexpect = { on = { c = [] } }\n")
	f.Add("nodes = 3\nshards = 9\nrandom = 1\nop = \"allocate\"\nask = []\nexpect = { homes = [[1, \"\"]], counts = { a = 1 } }\n")
	f.Add("scenario = [1]\n\"a.b\" = 1\n")
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "strategies", "*", "scenarios", "*.toml"))
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, doc string) {
		scenarios, err := scenario.Parse("x.toml", []byte(doc))
		var wrong scenario.Errors
		if err != nil {
			require.ErrorAs(t, err, &wrong)
			require.NotEmpty(t, wrong)
			for _, e := range wrong {
				if e.Line < 1 || e.Line > strings.Count(doc, "\n")+1 || e.Col < 1 || e.Message == "" {
					t.Fatalf("%+v in %q", e, doc)
				}
			}
			return
		}
		require.NotEmpty(t, scenarios)
		for _, s := range scenarios {
			snap, err := s.Cluster.Snapshot()
			require.NoError(t, err)
			require.NoError(t, snap.Validate(nil))
			expects := 0
			for _, step := range s.Steps {
				require.NotEmpty(t, step.Op.String())
				expects += len(step.Expects)
			}
			require.Positive(t, expects)
		}
	})
}
