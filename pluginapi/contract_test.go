package pluginapi_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/pluginapi"
)

func contract(t testing.TB) *schema {
	text, err := os.ReadFile("strategy.cddl")
	require.NoError(t, err)
	s, err := parseCDDL(string(text))
	require.NoError(t, err)
	return s
}

func generic(t require.TestingT, data []byte) any {
	var v any
	require.NoError(t, cbor.Unmarshal(data, &v))
	return v
}

// deterministic checks that data is core-deterministic but for floats, which are 64 bits wide (spec 1.1), by means of
// an independent encoder.
func deterministic(t require.TestingT, data []byte) {
	options := cbor.CoreDetEncOptions()
	options.ShortestFloat, options.NaNConvert, options.InfConvert = cbor.ShortestFloatNone, cbor.NaNConvertNone, cbor.InfConvertNone
	mode, err := options.EncMode()
	require.NoError(t, err)
	again, err := mode.Marshal(generic(t, data))
	require.NoError(t, err)
	require.Equal(t, again, data)
}

// What the encoders write is what strategy.cddl says, with no key more (spec 1.1).
func TestEncodersFollowTheSchema(t *testing.T) {
	c := contract(t)
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot().Draw(t, "snapshot")
		for op, rule := range map[pluginapi.Op]string{pluginapi.OpAllocate: "allocate-input", pluginapi.OpRebalance: "rebalance-input"} {
			data := pluginapi.AppendInput(nil, op, &s, anyShards(t, &s))
			require.NoError(t, c.match(rule, generic(t, data)))
			require.NoError(t, c.match("input", generic(t, data)))
			deterministic(t, data)
		}
		homes, plan, d := anyHomes(t), anyPlan(t), anyDescription(t)
		description, err := pluginapi.AppendDescription(nil, &d)
		require.NoError(t, err)
		for rule, data := range map[string][]byte{
			"allocate-output":  pluginapi.AppendHomes(nil, &homes),
			"rebalance-output": pluginapi.AppendPlan(nil, &plan),
			"failure":          pluginapi.AppendFailure(nil, anyText(t)),
			"description":      description,
		} {
			require.NoError(t, c.match(rule, generic(t, data)))
			deterministic(t, data)
		}
	})
}

// Decoding gives back what was encoded, to the last bit.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot().Draw(t, "snapshot")
		shards := anyShards(t, &s)
		require.NoError(t, s.Validate(shards))
		data := pluginapi.AppendInput(nil, pluginapi.OpAllocate, &s, shards)
		in, err := pluginapi.DecodeInput(data)
		require.NoError(t, err)
		require.Equal(t, pluginapi.OpAllocate, in.Op)
		require.Equal(t, shards, in.Shards)
		require.Equal(t, normal(s), normal(in.Snapshot))

		homes := anyHomes(t)
		backHomes, err := pluginapi.DecodeHomes(pluginapi.AppendHomes(nil, &homes), len(homes.Nodes))
		require.NoError(t, err)
		require.True(t, slices.Equal(homes.Nodes, backHomes.Nodes) && slices.Equal(homes.Reasons, backHomes.Reasons))
		require.Equal(t, homes.Reason, backHomes.Reason)

		plan := anyPlan(t)
		backPlan, err := pluginapi.DecodePlan(pluginapi.AppendPlan(nil, &plan))
		require.NoError(t, err)
		require.True(t, slices.Equal(plan.Moves, backPlan.Moves))
		require.Equal(t, plan.Reason, backPlan.Reason)

		d := anyDescription(t)
		data, err = pluginapi.AppendDescription(nil, &d)
		require.NoError(t, err)
		backD, err := pluginapi.DecodeDescription(data)
		require.NoError(t, err)
		again, err := pluginapi.AppendDescription(nil, &backD)
		require.NoError(t, err)
		require.Equal(t, data, again)
		require.Equal(t, d.Name, backD.Name)
		require.Len(t, backD.Config, len(d.Config))
		for i := range d.Config {
			require.Equal(t, d.Config[i].Key, backD.Config[i].Key)
			require.Equal(t, d.Config[i].Help, backD.Config[i].Help)
		}
	})
}

// normal makes empty lists nil where the contract does not tell the two apart.
func normal(s pluginapi.Snapshot) string {
	if len(s.Owners) == 0 {
		s.Owners = nil
	}
	text := fmt.Sprintf("%s %d %d %d %d cand%v own%v busy%v wait%v pin%v sb%v/%t load%v config%x", s.Type, s.Revision, s.Now, s.Seed,
		s.MaxMoves, s.Candidates, s.Owners, s.Busy, s.Waiting, s.Pinned, s.Standby, s.Standby == nil, s.Load, []byte(s.Config))
	for _, n := range s.Nodes {
		bits := []uint64{}
		for _, f := range append(slices.Clone(n.Coord.Vec), n.Coord.Error, n.Coord.Adjustment, n.Coord.Height) {
			bits = append(bits, math.Float64bits(f))
		}
		n.Coord = pluginapi.Coord{}
		text += fmt.Sprintf("\n%+v %x", n, bits)
	}
	return text
}

// full is an input with every key of the schema.
func full() []byte {
	s := pluginapi.Snapshot{
		Type: "counter", Revision: 7, Now: 8, Seed: 9, MaxMoves: 3,
		Nodes: []pluginapi.Node{{
			Name: "a", Addr: "a:1", Incarnation: "i", State: pluginapi.StateUp, Roles: []string{"r"}, Version: "1", Weight: 100,
			Zone: "z", Tags: []pluginapi.Tag{{Key: "k", Value: "v"}}, Coord: pluginapi.Coord{Vec: []float64{1}, Error: 1},
			Load: pluginapi.NodeLoad{
				CPU: pluginapi.Known(1), Mem: pluginapi.Known(2), Entities: pluginapi.Known(3), Rate: pluginapi.Known(4),
				Depth: pluginapi.Known(5), Disk: pluginapi.Known(6), DiskFree: pluginapi.Known(7), Read: pluginapi.Known(8),
				Write: pluginapi.Known(9),
			},
		}},
		Candidates: []int{0}, Owners: []uint32{0, pluginapi.NoOwner},
		Busy: []pluginapi.Busy{{Shard: 0, Target: 0}}, Waiting: []uint32{1}, Pinned: []pluginapi.Pin{{Shard: 0, Node: 0}},
		Standby: []uint32{pluginapi.NoOwner, 0},
		Load:    pluginapi.ShardLoads{Entities: []uint32{1, 2}, Rate: []uint32{3, 4}, Bytes: []uint64{5, 6}},
		Config:  pluginapi.Config{0xa0},
	}
	return pluginapi.AppendInput(nil, pluginapi.OpAllocate, &s, []uint32{1})
}

// The Go types hold every key that the schema has, and the schema every key that they write.
func TestTypesCoverTheSchema(t *testing.T) {
	c := contract(t)
	keys := func(rule string) []string {
		var names []string
		e := c.rules[rule].alts[0]
		for _, m := range c.flat(e.members) {
			if !m.many {
				names = append(names, m.key.alts[0].value.(string))
			}
		}
		slices.Sort(names)
		return names
	}
	written := func(v any) []string {
		var names []string
		for k := range v.(map[any]any) {
			names = append(names, k.(string))
		}
		slices.Sort(names)
		return names
	}
	input := generic(t, full()).(map[any]any)
	assert.Equal(t, keys("allocate-input"), written(input))
	node := input["nodes"].([]any)[0].(map[any]any)
	assert.Equal(t, keys("node"), written(node))
	assert.Equal(t, keys("shard-load"), written(input["load"]))
	for _, m := range c.rules["node"].alts[0].members {
		if m.key.alts[0].value == "load" {
			var names []string
			for _, f := range m.value.alts[0].members {
				names = append(names, f.key.alts[0].value.(string))
			}
			slices.Sort(names)
			assert.Equal(t, names, written(node["load"]))
		}
		if m.key.alts[0].value == "state" {
			for _, a := range m.value.alts {
				state, ok := pluginapi.ParseNodeState(a.value.(string))
				assert.True(t, ok)
				assert.Equal(t, a.value, state.String())
			}
			assert.Len(t, m.value.alts, int(pluginapi.StateAway))
		}
	}
}

// Whatever part of an input is taken out or replaced, schema and decoder agree that it is wrong.
func TestMutationsAreRefused(t *testing.T) {
	c := contract(t)
	c.grow = true
	mutate := func(name string, change func(input map[any]any)) {
		t.Run(name, func(t *testing.T) {
			input := generic(t, full()).(map[any]any)
			change(input)
			data, err := cbor.Marshal(input)
			require.NoError(t, err)
			assert.Error(t, c.match("input", generic(t, data)), "schema")
			_, err = pluginapi.DecodeInput(data)
			assert.Error(t, err, "decoder")
		})
	}
	optional := []any{"waiting", "pinned", "standby", "load", "config"}
	for key := range generic(t, full()).(map[any]any) {
		if !slices.Contains(optional, key) {
			mutate(fmt.Sprintf("without %v", key), func(m map[any]any) { delete(m, key) })
		}
		if key != "config" {
			mutate(fmt.Sprintf("%v is a float", key), func(m map[any]any) { m[key] = 1.5 })
			mutate(fmt.Sprintf("%v is null", key), func(m map[any]any) { m[key] = nil })
		}
	}
	node := func(m map[any]any) map[any]any { return m["nodes"].([]any)[0].(map[any]any) }
	optional = []any{"zone", "tags", "coord", "load"}
	for key := range node(generic(t, full()).(map[any]any)) {
		if !slices.Contains(optional, key) {
			mutate(fmt.Sprintf("node without %v", key), func(m map[any]any) { delete(node(m), key) })
		}
		mutate(fmt.Sprintf("node: %v is a float", key), func(m map[any]any) { node(m)[key] = 1.5 })
	}
	for key := range node(generic(t, full()).(map[any]any))["load"].(map[any]any) {
		mutate(fmt.Sprintf("node load: %v is text", key), func(m map[any]any) { node(m)["load"].(map[any]any)[key] = "1" })
	}
	for key := range generic(t, full()).(map[any]any)["load"].(map[any]any) {
		mutate(fmt.Sprintf("load: %v is a list", key), func(m map[any]any) { m["load"].(map[any]any)[key] = []any{1, 2} })
	}
	mutate("another version", func(m map[any]any) { m["v"] = 2 })
	mutate("another operation", func(m map[any]any) { m["op"] = "ponder" })
	mutate("shards of a rebalance are of 16 bits", func(m map[any]any) { m["shards"] = cbor.Tag{Number: 69, Content: []byte{1, 0}} })
	mutate("owners in a list", func(m map[any]any) { m["owners"] = []any{0, 0} })
	mutate("owners of 64 bits", func(m map[any]any) { m["owners"] = cbor.Tag{Number: 71, Content: make([]byte, 16)} })
	mutate("owners big-endian", func(m map[any]any) { m["owners"] = cbor.Tag{Number: 65, Content: make([]byte, 4)} })
	mutate("busy without a target", func(m map[any]any) { m["busy"] = []any{[]any{0}} })
	mutate("busy with a reason", func(m map[any]any) { m["busy"] = []any{[]any{0, 0, "r"}} })
	mutate("pinned to nothing", func(m map[any]any) { m["pinned"] = []any{[]any{0, nil}} })
	mutate("candidates by name", func(m map[any]any) { m["candidates"] = []any{"a"} })
	mutate("limits without moves", func(m map[any]any) { m["limits"] = map[any]any{} })
	mutate("a tag's value is a number", func(m map[any]any) { node(m)["tags"] = map[any]any{"k": 1} })
}

func TestOutputMutationsAreRefused(t *testing.T) {
	c := contract(t)
	c.grow = true
	for name, v := range map[string]any{
		"nothing":           map[any]any{},
		"a list":            []any{},
		"a key of text no":  map[any]any{"homes": "a"},
		"a home by name":    map[any]any{"homes": []any{"a"}},
		"a negative home":   map[any]any{"homes": []any{-1}},
		"a reason number":   map[any]any{"homes": []any{0}, "reason": 1},
		"reasons of number": map[any]any{"homes": []any{0}, "reasons": []any{1}},
		"an error number":   map[any]any{"error": 1},
	} {
		data, err := cbor.Marshal(v)
		require.NoError(t, err)
		assert.Error(t, c.match("allocate-output", generic(t, data)), name)
		_, err = pluginapi.DecodeHomes(data, 1)
		var wrong *pluginapi.DecodeError
		assert.ErrorAs(t, err, &wrong, name)
	}
	for name, v := range map[string]any{
		"nothing":             map[any]any{},
		"a list":              []any{},
		"a map of moves":      map[any]any{"moves": map[any]any{}},
		"a move of a number":  map[any]any{"moves": []any{1}},
		"a move of one":       map[any]any{"moves": []any{[]any{1}}},
		"a move of four":      map[any]any{"moves": []any{[]any{1, 2, "r", 4}}},
		"a negative shard":    map[any]any{"moves": []any{[]any{-1, 2}}},
		"a target by name":    map[any]any{"moves": []any{[]any{1, "b"}}},
		"a reason that is no": map[any]any{"moves": []any{[]any{1, 2, nil}}},
	} {
		data, err := cbor.Marshal(v)
		require.NoError(t, err)
		assert.Error(t, c.match("rebalance-output", generic(t, data)), name)
		_, err = pluginapi.DecodePlan(data)
		var wrong *pluginapi.DecodeError
		assert.ErrorAs(t, err, &wrong, name)
	}
	for name, v := range map[string]any{
		"no version":    map[any]any{"name": "n"},
		"no name":       map[any]any{"version": "1"},
		"config a list": map[any]any{"name": "n", "version": "1", "config": []any{}},
		"no type":       map[any]any{"name": "n", "version": "1", "config": map[any]any{"k": map[any]any{}}},
	} {
		data, err := cbor.Marshal(v)
		require.NoError(t, err)
		assert.Error(t, c.match("description", generic(t, data)), name)
		_, err = pluginapi.DecodeDescription(data)
		assert.Error(t, err, name)
	}
}

// A matcher that takes anything would make the tests above worthless.
func TestMatcher(t *testing.T) {
	for _, bad := range []string{"a = ", "a = b", "a = uint\na = uint", "a = { \"k\": uint", "a = [* uint", "a = $"} {
		_, err := parseCDDL(bad)
		assert.Error(t, err, bad)
	}
	s, err := parseCDDL("; comment\na = { g, ? \"o\": 1 / \"x\", * tstr => uint }\ng = ( \"k\": [uint, ? null] )\nl = [* b]\nb = #6.69(bstr)")
	require.NoError(t, err)
	good := []any{
		map[any]any{"k": []any{uint64(1)}}, map[any]any{"k": []any{uint64(1), nil}, "o": "x", "more": uint64(2)},
	}
	for _, v := range good {
		assert.NoError(t, s.match("a", v))
	}
	bad := []any{
		nil, map[any]any{}, map[any]any{"k": []any{}}, map[any]any{"k": []any{uint64(1), nil, nil}},
		map[any]any{"k": []any{uint64(1)}, "o": uint64(2)}, map[any]any{"k": []any{uint64(1)}, "more": "x"},
		map[any]any{"k": []any{uint64(1)}, uint64(1): uint64(1)},
	}
	for _, v := range bad {
		assert.Error(t, s.match("a", v))
	}
	assert.NoError(t, s.match("l", []any{cbor.Tag{Number: 69, Content: []byte{}}}))
	assert.Error(t, s.match("l", []any{cbor.Tag{Number: 70, Content: []byte{}}}))
	assert.Error(t, s.match("l", []any{cbor.Tag{Number: 69, Content: "text"}}))
}

// Readers skip unknown keys at every level and take keys in any order and integers of any width (spec 1.1).
func TestReadersAreLenient(t *testing.T) {
	input := generic(t, full()).(map[any]any)
	grow := func(m map[any]any) { m["later"] = map[any]any{"x": []any{1.5, nil, cbor.Tag{Number: 9, Content: "t"}}} }
	grow(input)
	grow(input["limits"].(map[any]any))
	grow(input["load"].(map[any]any))
	node := input["nodes"].([]any)[0].(map[any]any)
	grow(node)
	grow(node["load"].(map[any]any))
	node["state"] = "hibernating"
	// Longest keys first, maps and arrays of indefinite length, integers 8 bytes wide.
	var data []byte
	var write func(v any)
	write = func(v any) {
		switch v := v.(type) {
		case map[any]any:
			data = append(data, 0xbf)
			keys := slices.SortedFunc(maps.Keys(v), func(a, b any) int { return len(b.(string)) - len(a.(string)) })
			for _, k := range keys {
				write(k)
				write(v[k])
			}
			data = append(data, 0xff)
		case []any:
			data = append(data, 0x9f)
			for _, e := range v {
				write(e)
			}
			data = append(data, 0xff)
		case uint64:
			data = append(data, 0x1b, byte(v>>56), byte(v>>48), byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
		default:
			b, err := cbor.Marshal(v)
			require.NoError(t, err)
			data = append(data, b...)
		}
	}
	write(input)
	in, err := pluginapi.DecodeInput(data)
	require.NoError(t, err)
	assert.Equal(t, pluginapi.StateUnknown, in.Snapshot.Nodes[0].State)
	in.Snapshot.Nodes[0].State = pluginapi.StateUp
	assert.Equal(t, pluginapi.Config{0xbf, 0xff}, in.Snapshot.Config)
	in.Snapshot.Config = pluginapi.Config{0xa0}
	assert.Equal(t, full(), pluginapi.AppendInput(nil, in.Op, &in.Snapshot, in.Shards))
}

// Owners take 16 bits a shard as long as all bits set can mean none (spec 1.1).
func TestOwnersWidth(t *testing.T) {
	for _, nodes := range []int{1, math.MaxUint16 - 1, math.MaxUint16, math.MaxUint16 + 1} {
		s := pluginapi.Snapshot{Nodes: make([]pluginapi.Node, nodes), Owners: []uint32{uint32(nodes - 1), pluginapi.NoOwner}}
		for i := range s.Nodes {
			s.Nodes[i].Name = fmt.Sprintf("n%06d", i)
		}
		data := pluginapi.AppendInput(nil, pluginapi.OpRebalance, &s, nil)
		tag := generic(t, data).(map[any]any)["owners"].(cbor.Tag)
		want := uint64(69)
		if nodes >= math.MaxUint16 {
			want = 70
		}
		assert.Equal(t, want, tag.Number, "%d nodes", nodes)
		in, err := pluginapi.DecodeInput(data)
		require.NoError(t, err)
		assert.Equal(t, s.Owners, in.Snapshot.Owners)
	}
}
