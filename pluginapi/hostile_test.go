package pluginapi_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
)

// Bytes that no encoder writes: an error that names the key, no panic, no memory beyond what is there.
func TestHostileBytes(t *testing.T) {
	input := func(tail string) string { return "\xa1" + tail }
	for name, c := range map[string]struct{ data, want string }{
		"empty":                      {"", "want a map, got nothing (at byte 0)"},
		"not a map":                  {"\x80", "want a map, got an array"},
		"a map that ends":            {"\xa1", "the input ends inside a map"},
		"a huge map":                 {"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", "the input ends inside a map"},
		"a key that is a number":     {"\xa1\x01\x01", "want a text key, got an integer"},
		"a key that is not UTF-8":    {"\xa1\x61\xff\x01", "a key is not UTF-8"},
		"a key twice":                {"\xa2\x61v\x01\x61v\x01", "v: the key comes twice"},
		"a key twice, not in order":  {"\xa3\x63now\x01\x61v\x01\x63now\x01", "now: the key comes twice"},
		"a text that is not UTF-8":   {input("\x64type\x61\xff"), "type: the text is not UTF-8"},
		"a text in pieces":           {input("\x64type\x7f\x61a\xff"), "type: strings of indefinite length are not read"},
		"a text that ends":           {input("\x64type\x7b\xff\xff\xff\xff\xff\xff\xff\xff"), "type: the input ends inside text"},
		"an integer that ends":       {input("\x63now\x1b\x01"), "now: the input ends inside a value"},
		"a reserved head":            {input("\x63now\x1c"), "now: not well-formed CBOR"},
		"a negative time":            {input("\x63now\x20"), "now: want an unsigned integer, got a negative integer"},
		"a huge typed array":         {input("\x66owners\xd8\x45\x5b\xff\xff\xff\xff\xff\xff\xff\xf0"), "owners: the input ends inside a byte string"},
		"half an element":            {input("\x66owners\xd8\x45\x43abc"), "owners: the length is no multiple of 2"},
		"a huge list":                {input("\x65nodes\x9b\xff\xff\xff\xff\xff\xff\xff\xff"), "nodes: the input ends inside an array"},
		"a list without an end":      {input("\x65nodes\x9f"), "nodes[0]: want a map"},
		"a shard above 32 bits":      {input("\x64busy\x81\x82\x1b\x00\x00\x00\x01\x00\x00\x00\x00\x00"), "busy[0]: shard 4294967296 is out of range"},
		"a node above 31 bits":       {input("\x6acandidates\x81\x1a\x80\x00\x00\x00"), "candidates[0]: index 2147483648 is out of range"},
		"unknown, nested too deep":   {input("\x61x" + strings.Repeat("\x81", 100) + "\x00"), "x: nested too deep"},
		"unknown, tags too deep":     {input("\x61x" + strings.Repeat("\xc1", 100) + "\x00"), "x: nested too deep"},
		"unknown, a break":           {input("\x61x\xff"), "x: a break without an open array or map"},
		"unknown, a bad simple":      {input("\x61x\xf8\x10"), "x: not well-formed CBOR"},
		"unknown, a string that end": {input("\x61x\x5a\x00\x01\x00\x00"), "x: the input ends inside a string"},
		"bytes after it":             {string(full()) + "\x00", "1 bytes follow the value"},
		"a coordinate too short":     {input("\x65nodes\x81\xa1\x65coord\xd8\x56\x48\x00\x00\x00\x00\x00\x00\x00\x00"), "nodes[0].coord: want a vector, error, adjustment and height, got 1 numbers"},
	} {
		_, err := pluginapi.DecodeInput([]byte(c.data))
		var wrong *pluginapi.DecodeError
		if assert.ErrorAs(t, err, &wrong, name) {
			assert.Contains(t, err.Error(), c.want, name)
			assert.LessOrEqual(t, wrong.Offset, len(c.data), name)
		}
	}
}

// Indices that point nowhere are refused before a strategy can follow them.
// What is cut off anywhere is an error; a flipped bit may mean something else, but never a panic.
func TestTruncatedAndFlipped(t *testing.T) {
	homes := pluginapi.Homes{Nodes: []int{1, pluginapi.NoTarget}, Reasons: []string{"", "r"}, Reason: "all"}
	plan := pluginapi.Plan{Moves: []pluginapi.Move{{Shard: 1, Target: 2, Reason: "r"}, {Shard: 1 << 20, Target: pluginapi.NoTarget}}, Reason: "all"}
	description, err := pluginapi.AppendDescription(nil, &pluginapi.Description{
		Name: "n", Summary: "s", Config: []pluginapi.ConfigKey{{Key: "k", Type: "list", Default: []any{1.5, -1, "x"}, Help: "h"}},
	})
	require.NoError(t, err)
	config, err := pluginapi.NewConfig(map[string]any{"k": map[string]any{"x": []any{1, "y", nil}}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		data   []byte
		decode func([]byte) error
	}{
		"input":       {full(), func(b []byte) error { _, err := pluginapi.DecodeInput(b); return err }},
		"homes":       {pluginapi.AppendHomes(nil, &homes), func(b []byte) error { _, err := pluginapi.DecodeHomes(b, 2); return err }},
		"plan":        {pluginapi.AppendPlan(nil, &plan), func(b []byte) error { _, err := pluginapi.DecodePlan(b); return err }},
		"failure":     {pluginapi.AppendFailure(nil, "no"), pluginapi.DecodeConfigured},
		"description": {description, func(b []byte) error { _, err := pluginapi.DecodeDescription(b); return err }},
		"config": {config, func(b []byte) error {
			if _, err := pluginapi.Config(b).Table("k"); err != nil {
				return err
			}
			_, err := pluginapi.Config(b).Keys()
			return err
		}},
	} {
		var failure *pluginapi.Failure
		if err := c.decode(c.data); err != nil {
			require.ErrorAs(t, err, &failure, name)
		}
		for n := range c.data {
			if name == "config" && n == 0 {
				continue // no bytes are an empty table
			}
			err := c.decode(c.data[:n])
			require.Error(t, err, "%s, %d bytes", name, n)
			require.False(t, errors.As(err, &failure), "%s, %d bytes", name, n)
			for bit := range 8 {
				flipped := slices.Clone(c.data)
				flipped[n] ^= 1 << bit
				_ = c.decode(flipped)
			}
		}
	}
	_, err = append(slices.Clone(config), 0xa0).Keys()
	assert.EqualError(t, err, "config: 1 bytes follow the value (at byte 11)")
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(s *pluginapi.Snapshot){
		"nodes[1]: two nodes have the name \"a\"":                       func(s *pluginapi.Snapshot) { s.Nodes[1].Name = "a" },
		"nodes[1]: \"A\" is not in its place: nodes are sorted by name": func(s *pluginapi.Snapshot) { s.Nodes[1].Name = "A" },
		"candidates[1]: node 2 is out of range: there are 2":            func(s *pluginapi.Snapshot) { s.Candidates[1] = 2 },
		"candidates[1]: not ascending, or there twice":                  func(s *pluginapi.Snapshot) { s.Candidates[1] = 0 },
		"owners: node 2 is out of range: there are 2":                   func(s *pluginapi.Snapshot) { s.Owners[0] = 2 },
		"standby: node 2 is out of range: there are 2":                  func(s *pluginapi.Snapshot) { s.Standby = []uint32{2, 0, 0} },
		"standby: has 2 elements, owners has 3":                         func(s *pluginapi.Snapshot) { s.Standby = []uint32{0, 0} },
		"load.bytes: has 1 elements, owners has 3":                      func(s *pluginapi.Snapshot) { s.Load.Bytes = []uint64{0} },
		"busy[0]: shard 3 is out of range: there are 3":                 func(s *pluginapi.Snapshot) { s.Busy = []pluginapi.Busy{{Shard: 3}} },
		"busy[0]: node 2 is out of range: there are 2":                  func(s *pluginapi.Snapshot) { s.Busy = []pluginapi.Busy{{Target: 2}} },
		"waiting[0]: shard 3 is out of range: there are 3":              func(s *pluginapi.Snapshot) { s.Waiting = []uint32{3} },
		"pinned[0]: shard 4294967295 is out of range: there are 3":      func(s *pluginapi.Snapshot) { s.Pinned = []pluginapi.Pin{{Shard: 1<<32 - 1}} },
		"pinned[0]: node 2 is out of range: there are 2":                func(s *pluginapi.Snapshot) { s.Pinned = []pluginapi.Pin{{Node: 2}} },
	} {
		s := pluginapi.Snapshot{
			Nodes: []pluginapi.Node{{Name: "a"}, {Name: "b"}}, Candidates: []int{0, 1}, Owners: []uint32{0, 1, pluginapi.NoOwner},
		}
		require.NoError(t, s.Validate(nil))
		change(&s)
		assert.ErrorContains(t, s.Validate(nil), want)
		_, err := pluginapi.DecodeInput(pluginapi.AppendInput(nil, pluginapi.OpRebalance, &s, nil))
		assert.ErrorContains(t, err, want)
	}
	s := pluginapi.Snapshot{Owners: []uint32{pluginapi.NoOwner}}
	assert.ErrorContains(t, s.Validate([]uint32{0, 1}), "shards[1]: shard 1 is out of range: there are 1")
}

// Candidates come in the order of names, whatever the input's: hash relies on it.
func TestCandidatesAreSorted(t *testing.T) {
	s := pluginapi.Snapshot{Nodes: []pluginapi.Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Candidates: []int{2, 0}}
	in, err := pluginapi.DecodeInput(pluginapi.AppendInput(nil, pluginapi.OpRebalance, &s, nil))
	require.NoError(t, err)
	assert.Equal(t, []int{0, 2}, in.Snapshot.Candidates)
}

// A few hostile bytes cannot make a decoder allocate gigabytes.
func TestDecodersAllocateLittle(t *testing.T) {
	heads := []string{"\x9a\x00\xff\xff\xff", "\x9a\xff\xff\xff\xff", "\xba\x00\xff\xff\xff"}
	for _, key := range []string{"\x65nodes", "\x64busy", "\x66pinned", "\x6acandidates", "\x65homes", "\x65moves", "\x67reasons", "\x66config", "\x64tags"} {
		for _, head := range heads {
			data := []byte("\xa1" + key + head + strings.Repeat("\x00", 64<<10))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := pluginapi.DecodeInput(data)
			assert.Error(t, err)
			_, err = pluginapi.DecodeHomes(data, 1<<24)
			assert.Error(t, err)
			_, err = pluginapi.DecodePlan(data)
			assert.Error(t, err)
			_, err = pluginapi.DecodeDescription(data)
			assert.Error(t, err)
			runtime.ReadMemStats(&after)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32*len(data)), "%q", key)
		}
	}
}

// Nor can an answer as long as the host takes one: neither by how many moves it announces, nor by keys that nobody asked for.
func TestLongAnswersCostLittle(t *testing.T) {
	const n = 3_000_000
	moves := []byte("\xa1\x65moves\x9a\x00\x2d\xc6\xc0" + strings.Repeat("\x82\x00\x00", n))
	homes := []byte("\xa1\x65homes\x9a\x00\x2d\xc6\xc0" + strings.Repeat("\x00", n))
	keys := []byte("\xba\x00\x2d\xc6\xc0")
	for i := range n { // from the last to the first, each another
		keys = append(keys, '\x64', '0'+byte((n-i)>>18), '0'+byte((n-i)>>12&63), '0'+byte((n-i)>>6&63), '0'+byte((n-i)&63), 0)
	}
	for name, c := range map[string]struct {
		decode func() error
		says   string
	}{
		"moves":                 {func() error { _, err := pluginapi.DecodePlanUpTo(moves, 16); return err }, "more than 16 moves"},
		"homes":                 {func() error { _, err := pluginapi.DecodeHomes(homes, 16); return err }, "one for each of 16 shards is wanted, got more"},
		"keys of a plan":        {func() error { _, err := pluginapi.DecodePlanUpTo(keys, 16); return err }, "a map of more than 1000 keys"},
		"keys of homes":         {func() error { _, err := pluginapi.DecodeHomes(keys, 16); return err }, "a map of more than 1000 keys"},
		"keys of configure":     {func() error { return pluginapi.DecodeConfigured(keys) }, "a map of more than 1000 keys"},
		"keys of a description": {func() error { _, err := pluginapi.DecodeDescription(keys); return err }, "a map of more than 1000 keys"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := c.decode()
		runtime.ReadMemStats(&after)
		assert.ErrorContains(t, err, c.says, name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}

func FuzzDecodeInput(f *testing.F) {
	f.Add(full())
	f.Add([]byte("\xa1\x61v\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := pluginapi.DecodeInput(data)
		if err != nil {
			var wrong *pluginapi.DecodeError
			require.ErrorAs(t, err, &wrong)
			return
		}
		require.NoError(t, in.Snapshot.Validate(in.Shards))
		// What was read can be written, and reads the same.
		written := pluginapi.AppendInput(nil, in.Op, &in.Snapshot, in.Shards)
		for _, n := range in.Snapshot.Nodes {
			if n.State == pluginapi.StateUnknown {
				return // a state that this version does not know is not kept
			}
		}
		again, err := pluginapi.DecodeInput(written)
		require.NoError(t, err)
		require.Equal(t, written, pluginapi.AppendInput(nil, again.Op, &again.Snapshot, again.Shards))
		in.Snapshot.Placement()
	})
}

func FuzzDecodeOutput(f *testing.F) {
	f.Add(pluginapi.AppendHomes(nil, &pluginapi.Homes{Nodes: []int{1, pluginapi.NoTarget}, Reasons: []string{"", "r"}, Reason: "all"}))
	f.Add(pluginapi.AppendPlan(nil, &pluginapi.Plan{Moves: []pluginapi.Move{{Shard: 1, Target: 2, Reason: "r"}}, Reason: "all"}))
	f.Add(pluginapi.AppendFailure(nil, "no"))
	f.Add(pluginapi.AppendConfigured(nil))
	description, err := pluginapi.AppendDescription(nil, &pluginapi.Description{Name: "n", Config: []pluginapi.ConfigKey{{Key: "k", Type: "uint", Default: 1}}})
	require.NoError(f, err)
	f.Add(description)
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := pluginapi.DecodeHomes(data, 2); err == nil {
			require.Len(t, h.Nodes, 2)
			_, err := pluginapi.DecodeHomes(pluginapi.AppendHomes(nil, &h), 2)
			require.NoError(t, err)
		}
		if p, err := pluginapi.DecodePlan(data); err == nil {
			again, err := pluginapi.DecodePlan(pluginapi.AppendPlan(nil, &p))
			require.NoError(t, err)
			require.Equal(t, len(p.Moves), len(again.Moves))
		}
		_, _ = pluginapi.DecodeDescription(data)
		_ = pluginapi.DecodeConfigured(data)
		c := pluginapi.Config(data)
		_, _ = c.Uint("k", 1)
		_, _ = c.Float("k", 1)
		_, _ = c.Strings("k", nil)
		_, _ = c.Keys()
	})
}
