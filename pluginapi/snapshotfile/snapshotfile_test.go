package snapshotfile

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
)

const none = pluginapi.NoOwner

// The example of spec 1.6, word for word.
func TestSpecExample(t *testing.T) {
	f, err := Parse([]byte(`{"nodes":["a","b",{"name":"c","state":"up","zone":"z1"}],"owners":["a","a",null,"b"],"busy":[[3,"b"]],"limits":{"moves":3},"config":{"threshold":1}}`))
	require.NoError(t, err)
	s := f.Snapshot
	assert.Equal(t, []pluginapi.Node{
		{Name: "a", Addr: "a", State: pluginapi.StateUp, Weight: 100},
		{Name: "b", Addr: "b", State: pluginapi.StateUp, Weight: 100},
		{Name: "c", Addr: "c", State: pluginapi.StateUp, Weight: 100, Zone: "z1"},
	}, s.Nodes)
	assert.Equal(t, []uint32{0, 0, none, 1}, s.Owners)
	assert.Equal(t, []pluginapi.Busy{{Shard: 3, Target: 1}}, s.Busy)
	assert.Equal(t, []int{0, 1, 2}, s.Candidates)
	assert.Equal(t, uint64(3), s.MaxMoves)
	threshold, err := s.Config.Uint("threshold", 0)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), threshold)
	assert.Zero(t, f.Op)
	assert.Nil(t, f.Shards)
	assert.Equal(t, []uint32{2}, f.Homeless())
}

// Indices mean the list as given; nodes are sorted by name (spec 1.6).
func TestIndicesFollowTheSort(t *testing.T) {
	f, err := Parse([]byte(`{"op":"allocate","nodes":["c",{"name":"a","state":"draining"},"b"],"owners":[0,1,2,"c",null],
		"standby":[1,null,0,0,0],"busy":[[0,1],[4,null]],"pinned":[[1,0]],"waiting":[2],"shards":[4],
		"load":{"entities":[1,2,3,4,null],"rate":[0,0,0,0,0],"bytes":[9007199254740993,0,0,0,null]},"seed":18446744073709551615}`))
	require.NoError(t, err)
	s := f.Snapshot
	assert.Equal(t, "a b c", s.Nodes[0].Name+" "+s.Nodes[1].Name+" "+s.Nodes[2].Name)
	assert.Equal(t, []uint32{2, 0, 1, 2, none}, s.Owners)
	assert.Equal(t, []uint32{0, none, 2, 2, 2}, s.Standby)
	assert.Equal(t, []pluginapi.Busy{{Shard: 0, Target: 0}, {Shard: 4, Target: pluginapi.NoTarget}}, s.Busy)
	assert.Equal(t, []pluginapi.Pin{{Shard: 1, Node: 2}}, s.Pinned)
	assert.Equal(t, []int{1, 2}, s.Candidates, "the nodes that are up")
	assert.Equal(t, pluginapi.OpAllocate, f.Op)
	assert.Equal(t, []uint32{4}, f.Shards)
	assert.Equal(t, []uint32{1, 2, 3, 4, pluginapi.UnknownLoad}, s.Load.Entities)
	assert.Equal(t, []uint64{9007199254740993, 0, 0, 0, pluginapi.UnknownBytes}, s.Load.Bytes)
	assert.Equal(t, uint64(math.MaxUint64), s.Seed)
	assert.Equal(t, uint64(5), s.MaxMoves, "as many as there are shards")
	assert.Empty(t, f.Homeless(), "the only shard without an owner is busy")
}

func TestNodeInFull(t *testing.T) {
	f, err := Parse([]byte(`{"nodes":[{"name":"a","addr":"h:1","incarnation":"i","state":"away","roles":["x","y"],"version":"2","weight":250,"zone":"z",
		"tags":{"bb":"2","a":"1"},"coord":{"vector":[0.5,1],"error":1.5,"height":0.25},"load":{"cpu":1,"mem":2,"entities":3,"rate":4,"depth":5,"disk":6,"diskfree":7,"read":8,"write":9}},
		{"name":"b","coord":[1,2,3,4,5]}],"candidates":[1]}`))
	require.NoError(t, err)
	k := pluginapi.Known
	assert.Equal(t, pluginapi.Node{
		Name: "a", Addr: "h:1", Incarnation: "i", State: pluginapi.StateAway, Roles: []string{"x", "y"}, Version: "2", Weight: 250, Zone: "z",
		Tags:  []pluginapi.Tag{{Key: "a", Value: "1"}, {Key: "bb", Value: "2"}},
		Coord: pluginapi.Coord{Vec: []float64{0.5, 1}, Error: 1.5, Height: 0.25},
		Load:  pluginapi.NodeLoad{CPU: k(1), Mem: k(2), Entities: k(3), Rate: k(4), Depth: k(5), Disk: k(6), DiskFree: k(7), Read: k(8), Write: k(9)},
	}, f.Snapshot.Nodes[0])
	assert.Equal(t, pluginapi.Coord{Vec: []float64{1, 2}, Error: 3, Adjustment: 4, Height: 5}, f.Snapshot.Nodes[1].Coord)
	assert.Equal(t, []int{1}, f.Snapshot.Candidates)
}

// CBOR as the host writes it reads as what was written.
func TestCBOR(t *testing.T) {
	f, err := Parse([]byte(`{"op":"rebalance","nodes":[{"name":"a","coord":[1,2,3,4],"tags":{"k":"v"},"load":{"cpu":5}},"b"],"owners":[0,1,null],"standby":[1,0,null],
		"busy":[[0,1]],"pinned":[[1,1]],"waiting":[2],"load":{"bytes":[1,null,3],"rate":[1,2,3]},"config":{"x":[1,-2,2.5,"t",true,null,{"y":{}}]},"now":5,"limits":{"moves":7}}`))
	require.NoError(t, err)
	for _, op := range []pluginapi.Op{pluginapi.OpRebalance, pluginapi.OpAllocate} {
		data := pluginapi.AppendInput(nil, op, &f.Snapshot, []uint32{2, 0})
		again, err := Parse(data)
		require.NoError(t, err)
		assert.Equal(t, op, again.Op)
		assert.Equal(t, data, pluginapi.AppendInput(nil, again.Op, &again.Snapshot, again.Shards))
	}
	wide := f.Snapshot
	wide.Nodes = nil
	wide.Candidates, wide.Busy, wide.Pinned = nil, nil, nil
	wide.Owners, wide.Standby = []uint32{none, none, none}, nil
	again, err := Parse(pluginapi.AppendInput(nil, pluginapi.OpRebalance, &wide, nil))
	require.NoError(t, err)
	assert.Equal(t, wide.Owners, again.Snapshot.Owners)
}

// An input that a later host wrote, with keys and a state that this version does not know, is one (spec 1.1).
func TestCBORGrows(t *testing.T) {
	f, err := Parse([]byte(`{"nodes":["a"],"owners":[0]}`))
	require.NoError(t, err)
	data := pluginapi.AppendInput(nil, pluginapi.OpRebalance, &f.Snapshot, nil)
	data[0]++ // one more key
	data = append(data, "\x65later\x81\x01"...)
	data = bytes.Replace(data, []byte("\x65state\x62up"), []byte("\x65state\x66asleep"), 1)
	again, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, pluginapi.OpRebalance, again.Op)
	assert.Equal(t, pluginapi.StateUnknown, again.Snapshot.Nodes[0].State)
	require.NoError(t, again.SetShards([]uint32{0}))
	assert.EqualError(t, again.SetShards([]uint32{1}), "shards[0]: shard 1 is out of range: there are 1")
	assert.Equal(t, uint64(1), again.Snapshot.MaxMoves)
}

// Owners left out have room for every shard that is named.
func TestOwnersLeftOut(t *testing.T) {
	f, err := Parse([]byte(`{"nodes":["a"],"busy":[[6,null]]}`))
	require.NoError(t, err)
	assert.Len(t, f.Snapshot.Owners, 7)
	require.NoError(t, f.SetShards([]uint32{1, 9}))
	assert.Len(t, f.Snapshot.Owners, 10)
	assert.Equal(t, []uint32{1, 9}, f.Shards)
	assert.Equal(t, uint64(10), f.Snapshot.MaxMoves)
	assert.ErrorContains(t, f.SetShards([]uint32{1 << 31}), "owners are left out, and a shard of 16777216 or above is named: give owners")

	f, err = Parse([]byte(`{"nodes":["a"],"owners":[null]}`))
	require.NoError(t, err)
	assert.EqualError(t, f.SetShards([]uint32{1}), "shards[0]: shard 1 is out of range: there are 1")
}

// Each error names the thing and, where there is one, what was meant.
func TestErrors(t *testing.T) {
	for input, want := range map[string]string{
		"":                                     "the input is empty: want CBOR, or JSON of the same shape",
		" \n":                                  "the input is empty: want CBOR, or JSON of the same shape",
		"nodes = []":                           "the input is neither JSON, which starts with {, nor a CBOR map",
		"[]":                                   "the input is neither JSON, which starts with {, nor a CBOR map",
		"\xa1\x01\x01":                         "the input is not CBOR of the contract: ",
		"\xa2\x61v\x01\x61v\x01":               "the input is not CBOR of the contract: ",
		`{"nodes":["a"]`:                       "the input is not good JSON: line 1, column 15: it ends too early",
		"{\"nodes\":\n[\"a\",]}":               "the input is not good JSON: line 2, column 6: ",
		`{} {}`:                                "something follows the value",
		`{"now":1,"now":2}`:                    "now: the key comes twice",
		`{"now":1e400}`:                        "now: the number 1e400 is out of range",
		`{"now":99999999999999999999}`:         "now: the number 99999999999999999999 is out of range",
		`{"config":` + strings.Repeat("[", 50): "nested too deep",
		`{"node":[]}`:                          `node: unknown key: did you mean "nodes"?`,
		`{"colour":1}`:                         `colour: unknown key: known here are v, op, type,`,
		`{"v":2}`:                              "v: contract version 2 is not known here, only 1",
		`{"op":"move"}`:                        `op: want allocate or rebalance, got "move"`,
		`{"op":1}`:                             "op: want text, got the number 1",
		`{"type":null}`:                        "type: want text, got null",
		`{"seed":-1}`:                          "seed: want a whole number of at least 0, got the number -1",
		`{"seed":1.5}`:                         "seed: want a whole number of at least 0, got the number 1.5",
		`{"nodes":{}}`:                         "nodes: want a list, got a map",
		`{"nodes":[1]}`:                        "nodes[0]: want a node's name or a map with a name, got the number 1",
		`{"nodes":[""]}`:                       "nodes[0]: a node's name is empty",
		`{"nodes":[{}]}`:                       "nodes[0].name: the key is missing",
		`{"nodes":["a","b","a"]}`:              `nodes[2]: the name "a" is that of nodes[0] already`,
		`{"nodes":[{"name":"a","stat":"up"}]}`: `nodes[0].stat: unknown key: did you mean "state"?`,
		`{"nodes":[{"name":"a","state":"down"}]}`:           `nodes[0].state: want up, joining, leaving, draining, unreachable or away, got "down"`,
		`{"nodes":[{"name":"a","weight":-1}]}`:              "nodes[0].weight: want a whole number of at least 0",
		`{"nodes":[{"name":"a","roles":[1]}]}`:              "nodes[0].roles[0]: want text, got the number 1",
		`{"nodes":[{"name":"a","tags":{"k":1}}]}`:           "nodes[0].tags.k: want text, got the number 1",
		`{"nodes":[{"name":"a","load":{"cpus":1}}]}`:        `nodes[0].load.cpus: unknown key: did you mean "cpu"?`,
		`{"nodes":[{"name":"a","load":{"cpu":0.5}}]}`:       "nodes[0].load.cpu: want a whole number of at least 0, got the number 0.5",
		`{"nodes":[{"name":"a","coord":[1,2,3]}]}`:          "nodes[0].coord: want a vector, error, adjustment and height, got 3 numbers",
		`{"nodes":[{"name":"a","coord":{"vector":["x"]}}]}`: `nodes[0].coord.vector[0]: want a number, got the text "x"`,
		`{"nodes":[{"name":"a","coord":{"vector":[]}}]}`:    "nodes[0].coord.vector: want at least one number",
		`{"nodes":["alpha"],"owners":["alhpa"]}`:            `owners[0]: there is no node "alhpa": did you mean "alpha"?`,
		`{"nodes":["a"],"owners":["something"]}`:            `owners[0]: there is no node "something" in nodes`,
		`{"nodes":["a"],"owners":[1]}`:                      "owners[0]: node 1 is out of range: nodes has 1",
		`{"nodes":["a"],"owners":[true]}`:                   "owners[0]: want a node's name or index, got a boolean",
		`{"nodes":["a"],"owners":"a"}`:                      `owners: want a list of node names, indices or null, or a typed array, got the text "a"`,
		`{"nodes":["a"],"candidates":["a",0]}`:              `candidates[1]: the node "a" is there twice`,
		`{"nodes":["a"],"busy":[[0]]}`:                      "busy[0]: want [shard, node]",
		`{"nodes":["a"],"busy":[[0,null],[0,"a"]]}`:         "busy[1]: shard 0 is there twice",
		`{"nodes":["a"],"busy":[[4294967296,"a"]]}`:         "busy[0][0]: 4294967296 is too large: at most 4294967295",
		`{"nodes":["a"],"owners":[0],"busy":[[1,0]]}`:       "busy[0]: shard 1 is out of range: there are 1",
		`{"nodes":["a"],"pinned":[[0,null]]}`:               "pinned[0][1]: want a node's name or index, got null",
		`{"waiting":[null]}`:                                "waiting[0]: want a whole number of at least 0, got null",
		`{"shards":"1"}`:                                    `shards: want a list of numbers or a typed array of 4 bytes an element, got the text "1"`,
		`{"owners":[null],"load":{"rate":[]}}`:              "load.rate: has 0 elements, owners has 1",
		`{"load":{"rates":[]}}`:                             `load.rates: unknown key: did you mean "rate"?`,
		`{"limits":{"move":1}}`:                             `limits.move: unknown key: did you mean "moves"?`,
		`{"config":1}`:                                      "config: want a map, got the number 1",
		"\xa1\x66owners\xd8\x41\x42\x00\x00":                "owners: want a list of node names, indices or null, or a typed array, got a value with tag 65",
		"\xa1\x66config\xa1\x61k\x41\x00":                   "config.k: configuration cannot hold a byte string",
	} {
		_, err := Parse([]byte(input))
		assert.ErrorContains(t, err, want, "%q", input)
	}
}

// [type.config] of node.toml becomes CBOR; dates become text (spec 1.1).
func TestEncodeConfigOfTOML(t *testing.T) {
	var table map[string]any
	_, err := toml.Decode(`
n = 3
f = 0.5
on = true
s = "x"
list = ["a", 1]
at = 2026-01-02T03:04:05Z
local = 2026-01-02T03:04:05.5
day = 2026-01-02
time = 03:04:05
[sub]
k = -1
[[rows]]
a = 1
[[rows]]
a = 2
`, &table)
	require.NoError(t, err)
	c, err := EncodeConfig(table)
	require.NoError(t, err)
	for key, want := range map[string]string{
		"at": "2026-01-02T03:04:05Z", "local": "2026-01-02T03:04:05.5", "day": "2026-01-02", "time": "03:04:05", "s": "x",
	} {
		got, err := c.String(key, "")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	n, err := c.Uint("n", 0)
	assert.True(t, err == nil && n == 3)
	sub, err := c.Table("sub")
	require.NoError(t, err)
	k, err := sub.Int("k", 0)
	assert.True(t, err == nil && k == -1)
	_, err = EncodeConfig(map[string]any{"a": []any{map[string]any{"b": struct{}{}}}})
	assert.EqualError(t, err, "config.a[0].b: configuration cannot hold a struct {}")
	_, err = EncodeConfig(map[string]any{"zone": time.Second})
	assert.ErrorContains(t, err, "config.zone: configuration cannot hold")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"nodes":["b",{"name":"a"}],"owners":[0,null,"a"],"busy":[[1,1]],"shards":[1],"config":{"x":1}}`))
	f.Add(pluginapi.AppendInput(nil, pluginapi.OpAllocate, &pluginapi.Snapshot{
		Nodes: []pluginapi.Node{{Name: "a", State: pluginapi.StateUp}}, Candidates: []int{0}, Owners: []uint32{0, none},
	}, []uint32{1}))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		// What is taken is an input that every guest can read.
		_, err = pluginapi.DecodeInput(pluginapi.AppendInput(nil, pluginapi.OpAllocate, &file.Snapshot, file.Shards))
		require.NoError(t, err)
	})
}
