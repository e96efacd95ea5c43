package pluginapi

import (
	"errors"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The host encodes tens of thousands of owners at every question, the guest reads them: neither may allocate by shard.
func TestEncodingAllocatesNothing(t *testing.T) {
	s := benchSnapshot(10, 10_000)
	s.Config = Config{0xa0}
	s.Standby = s.Owners
	s.Busy, s.Pinned, s.Waiting = []Busy{{1, 2}}, []Pin{{2, 3}}, []uint32{4}
	dst := AppendInput(nil, OpAllocate, s, []uint32{1, 2, 3})
	assert.Zero(t, testing.AllocsPerRun(20, func() { dst = AppendInput(dst[:0], OpAllocate, s, []uint32{1, 2, 3}) }))
}

func TestDecodingAllocatesByNodeNotByShard(t *testing.T) {
	few, many := AppendInput(nil, OpRebalance, benchSnapshot(10, 10), nil), AppendInput(nil, OpRebalance, benchSnapshot(10, 10_000), nil)
	allocs := func(data []byte) float64 {
		return testing.AllocsPerRun(20, func() {
			if _, err := decodeInput(data, true); err != nil {
				t.Fatal(err)
			}
		})
	}
	assert.Equal(t, allocs(few), allocs(many))
	assert.LessOrEqual(t, allocs(many), 60.0)
}

func TestTagsOutOfOrderAreEncodedInOrder(t *testing.T) {
	s := benchSnapshot(1, 1)
	s.Nodes[0].Tags = []Tag{{"b", "1"}, {"a", "2"}, {"", "3"}}
	a := AppendInput(nil, OpRebalance, s, nil)
	assert.Equal(t, "b", s.Nodes[0].Tags[0].Key, "the snapshot is the caller's")
	s.Nodes[0].Tags = []Tag{{"", "3"}, {"a", "2"}, {"b", "1"}}
	assert.Equal(t, a, AppendInput(nil, OpRebalance, s, nil))
}

type fake struct{ err error }

func (f fake) Allocate(s *Snapshot, shards []uint32) (Homes, error) {
	return Homes{Nodes: make([]int, len(shards)), Reason: s.Nodes[0].Name}, f.err
}

func (f fake) Rebalance(s *Snapshot) (Plan, error) {
	return Plan{Moves: []Move{{Shard: 0, Target: NoTarget, Reason: "why"}}}, f.err
}

type rich struct{ fake }

func (rich) Configure(c Config) error { _, err := c.Uint("n", 0); return err }

func (rich) Describe() Description { return Description{Name: "rich", Version: "3"} }

// What the exports of a guest do, without wasm (spec 1.1).
func TestGuestCalls(t *testing.T) {
	s := benchSnapshot(2, 4)
	allocate, rebalance := AppendInput(nil, OpAllocate, s, []uint32{3, 1}), AppendInput(nil, OpRebalance, s, nil)

	h, err := DecodeHomes(decide(fake{}, OpAllocate, allocate), 2)
	require.NoError(t, err)
	assert.Equal(t, Homes{Nodes: []int{0, 0}, Reason: "node-1000"}, h)
	p, err := DecodePlan(decide(fake{}, OpRebalance, rebalance))
	require.NoError(t, err)
	assert.Equal(t, Plan{Moves: []Move{{Shard: 0, Target: NoTarget, Reason: "why"}}}, p)

	for want, out := range map[string][]byte{
		"strategy failed: out of ideas":                                                                   decide(fake{errors.New("out of ideas")}, OpRebalance, rebalance),
		"strategy failed: input: op: want rebalance, got allocate":                                        decide(fake{}, OpRebalance, allocate),
		"strategy failed: input: want a map, got an integer (at byte 0)":                                  decide(fake{}, OpRebalance, []byte{0}),
		"strategy failed: no strategy: call pluginapi.Register from an init function of the main package": decide(nil, OpRebalance, rebalance),
	} {
		_, err := DecodePlan(out)
		var failure *Failure
		require.ErrorAs(t, err, &failure)
		assert.EqualError(t, err, want)
	}
	_, err = DecodeHomes(decide(fake{errors.New("no")}, OpAllocate, allocate), 2)
	assert.EqualError(t, err, "strategy failed: no")

	assert.NoError(t, DecodeConfigured(configure(fake{}, []byte{0xa0})))
	assert.NoError(t, DecodeConfigured(configure(rich{}, []byte{0xa1, 0x61, 'n', 7})))
	assert.EqualError(t, DecodeConfigured(configure(rich{}, []byte{0xa1, 0x61, 'n', 0x20})), "strategy failed: config.n: want a whole number of at least 0, got a negative integer")
	assert.Error(t, DecodeConfigured(configure(fake{}, []byte{0xa1})))

	d, err := DecodeDescription(describe(rich{}))
	require.NoError(t, err)
	assert.Equal(t, Description{Name: "rich", Version: "3"}, d)
	d, err = DecodeDescription(describe(fake{}))
	require.NoError(t, err)
	assert.Equal(t, Description{Name: "unnamed", Version: "0"}, d)
}

// Natively Register and Log do nothing, so that a strategy's package can be tested as it is.
func TestNativeStubs(t *testing.T) {
	Register(fake{})
	Log(LevelWarn, "unheard")
	assert.Equal(t, []string{"debug", "info", "warn", "error"}, []string{LevelDebug.String(), LevelInfo.String(), LevelWarn.String(), LevelError.String()})
}

func TestOutputsThatAreNone(t *testing.T) {
	both := AppendFailure(nil, "no")
	both[0] = 0xa2
	both = append(appendText(both, "moves"), 0x80)
	_, err := DecodePlan(both)
	assert.ErrorContains(t, err, "error: there beside moves")
	h := Homes{Nodes: []int{0, 1, 2}}
	for n, want := range map[int]string{2: "homes[2]: one for each of 2 shards is wanted, got more", 4: "homes: one for each of 4 shards is wanted, got 3"} {
		_, err := DecodeHomes(AppendHomes(nil, &h), n)
		assert.ErrorContains(t, err, want)
	}
	_, err = AppendDescription(nil, &Description{Config: []ConfigKey{{Key: "k", Default: struct{}{}}}})
	assert.EqualError(t, err, "config.k.default: want nil, bool, int, int64, uint64, float64, string, []any or map[string]any")
	_, err = AppendDescription(nil, &Description{Config: []ConfigKey{{Key: "k"}, {Key: "k"}}})
	assert.EqualError(t, err, "config: a key comes twice")
}

func TestConfig(t *testing.T) {
	c, err := NewConfig(map[string]any{
		"u": 7, "i": -7, "f": 0.5, "s": "text", "b": true, "l": []any{"x", "y"}, "m": []any{"x", 1}, "t": map[string]any{"u": 8}, "n": nil,
	})
	require.NoError(t, err)
	u, err := c.Uint("u", 0)
	assert.Equal(t, uint64(7), u)
	assert.NoError(t, err)
	i, err := c.Int("i", 0)
	assert.Equal(t, int64(-7), i)
	assert.NoError(t, err)
	f, err := c.Float("f", 0)
	assert.Equal(t, 0.5, f)
	assert.NoError(t, err)
	f, err = c.Float("u", 0)
	assert.Equal(t, 7.0, f, "a whole number is a float too")
	assert.NoError(t, err)
	s, err := c.String("s", "")
	assert.Equal(t, "text", s)
	assert.NoError(t, err)
	b, err := c.Bool("b", false)
	assert.True(t, b)
	assert.NoError(t, err)
	l, err := c.Strings("l", nil)
	assert.Equal(t, []string{"x", "y"}, l)
	assert.NoError(t, err)
	inner, err := c.Table("t")
	require.NoError(t, err)
	u, err = inner.Uint("u", 0)
	assert.Equal(t, uint64(8), u)
	assert.NoError(t, err)
	keys, err := c.Keys()
	assert.Equal(t, []string{"b", "f", "i", "l", "m", "n", "s", "t", "u"}, keys)
	assert.NoError(t, err)

	for _, empty := range []Config{nil, {0xa0}} {
		u, err = empty.Uint("u", 5)
		assert.Equal(t, uint64(5), u)
		assert.NoError(t, err)
		s, err = empty.String("s", "def")
		assert.Equal(t, "def", s)
		assert.NoError(t, err)
		share, err := empty.Share("x", Whole)
		assert.Equal(t, Whole, share)
		assert.NoError(t, err)
	}
	wrong := func(err error, want string) {
		var c *ConfigError
		require.ErrorAs(t, err, &c)
		assert.EqualError(t, err, want)
	}
	_, err = c.Uint("f", 0)
	wrong(err, "config.f: want a whole number of at least 0, got a float")
	_, err = c.Int("s", 0)
	wrong(err, "config.s: want a whole number, got text")
	_, err = c.Float("b", 0)
	wrong(err, "config.b: want a number, got a boolean")
	_, err = c.String("n", "")
	wrong(err, "config.n: want text, got null")
	_, err = c.Bool("u", false)
	wrong(err, "config.u: want true or false, got an integer")
	_, err = c.Strings("u", nil)
	wrong(err, "config.u: want a list of texts, got an integer")
	_, err = c.Strings("m", nil)
	wrong(err, "config.m: want a list of texts, got an integer in it")
	_, err = c.Table("l")
	wrong(err, "config.l: want a table, got an array")
	_, err = Config{0x80}.Uint("u", 0)
	wrong(err, "config: want a map, got an array (at byte 0)")
	_, err = Config{0xa0, 0xa0}.Uint("u", 0)
	wrong(err, "config: 1 bytes follow the value (at byte 1)")
	_, err = NewConfig(map[string]any{"a": []any{int8(1)}})
	assert.EqualError(t, err, "config.a[0]: want nil, bool, int, int64, uint64, float64, string, []any or map[string]any")
}

// Floats of every width are read (RFC 8949, appendix A).
func TestFloatWidths(t *testing.T) {
	for data, want := range map[string]float64{
		"\xf9\x00\x00": 0, "\xf9\x3c\x00": 1, "\xf9\x3e\x00": 1.5, "\xf9\x7b\xff": 65504, "\xf9\x00\x01": 5.960464477539063e-8,
		"\xf9\x04\x00": 0.00006103515625, "\xf9\xc4\x00": -4, "\xf9\x7c\x00": math.Inf(1), "\xf9\xfc\x00": math.Inf(-1),
		"\xfa\x47\xc3\x50\x00": 100000, "\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a": 1.1,
	} {
		f, err := Config("\xa1\x61f"+data).Float("f", 9)
		assert.NoError(t, err)
		assert.Equal(t, want, f)
	}
	f, err := Config("\xa1\x61f\xf9\x7e\x00").Float("f", 9)
	assert.NoError(t, err)
	assert.True(t, math.IsNaN(f))
}

// A share is the decimal that its author wrote: 0.29 of 100 is 29, which is not what binary floats say.
func TestShare(t *testing.T) {
	of := func(f any, n int) int {
		c, err := NewConfig(map[string]any{"s": f})
		require.NoError(t, err)
		s, err := c.Share("s", 0)
		require.NoError(t, err)
		return s.Of(n)
	}
	assert.Equal(t, 29, of(0.29, 100))
	assert.Equal(t, 57, of(0.57, 100))
	assert.Equal(t, 0, of(0.0, 100))
	assert.Equal(t, 0, of(5e-324, 100))
	assert.Equal(t, 100, of(1.0, 100))
	assert.Equal(t, 100, of(1, 100))
	assert.Equal(t, 33, of(1.0/3, 100))
	assert.Equal(t, math.MaxInt, of(1.0, math.MaxInt))
	rapid.Check(t, func(t *rapid.T) {
		ppb := rapid.Uint64Range(0, uint64(Whole)).Draw(t, "parts per billion")
		require.Equal(t, Share(ppb), shareOf(float64(ppb)/1e9))
	})
	for f, want := range map[float64]Share{
		0.5000000004: Whole / 2, 0.5000000006: Whole/2 + 1, 0.9999999996: Whole, 0.9999999994: Whole - 1,
		2.4e-4: 240_000, 0.0002400004: 240_000, 0.0002400006: 240_001, 0.0001220703125: 122_070, 0.00024414062500006: 244_141,
		1.4e-9: 1, 1.6e-9: 2, 0.4e-9: 0, 0.6e-9: 1, 1e-12: 0,
	} {
		assert.Equal(t, want, shareOf(f), f)
	}
	for _, bad := range []any{-0.1, 1.0000001, math.NaN(), math.Inf(1), 2, -1} {
		c, err := NewConfig(map[string]any{"s": bad})
		require.NoError(t, err)
		_, err = c.Share("s", 0)
		assert.EqualError(t, err, "config.s: want a number from 0 to 1")
	}
}

func TestMoveLimit(t *testing.T) {
	for _, c := range []struct {
		homed    int
		maxMoves uint64
		share    Share
		host     uint64
		want     int
	}{
		{100, 3, Whole, 100, 3}, {100, 1000, Whole, 50, 50}, {100, 1000, Whole / 10, 1000, 10}, {5, 1000, Whole / 10, 1000, 1},
		{100, 0, Whole, 100, 0}, {100, 3, Whole, 0, 0}, {0, 3, Whole, 9, 1}, {7, math.MaxUint64, Whole, math.MaxUint64, 7},
	} {
		assert.Equal(t, c.want, (&Snapshot{MaxMoves: c.host}).MoveLimit(c.homed, MoveLimits{c.maxMoves, c.share}), "%+v", c)
	}
}

// The keys of the built-in strategies' limits, and that they describe what is read (spec 1.2).
func TestMoveLimitsOfConfig(t *testing.T) {
	defaults := map[string]any{}
	for _, k := range MoveLimitKeys() {
		defaults[k.Key] = k.Default
	}
	assert.Equal(t, map[string]any{"max_moves": uint64(3), "max_moves_share": 1.0}, defaults)
	for _, table := range []map[string]any{nil, {}, defaults} {
		c, err := NewConfig(table)
		require.NoError(t, err)
		l, err := c.MoveLimits()
		require.NoError(t, err)
		assert.Equal(t, MoveLimits{Moves: 3, Share: Whole}, l)
	}
	c, err := NewConfig(map[string]any{"max_moves": 9, "max_moves_share": 0.25})
	require.NoError(t, err)
	l, err := c.MoveLimits()
	require.NoError(t, err)
	assert.Equal(t, MoveLimits{Moves: 9, Share: Whole / 4}, l)
	for key, want := range map[string]string{
		"max_moves": "config.max_moves: want a whole number of at least 0, got text", "max_moves_share": "config.max_moves_share: want a number, got text",
	} {
		c, err := NewConfig(map[string]any{key: "x"})
		require.NoError(t, err)
		_, err = c.MoveLimits()
		assert.EqualError(t, err, want)
	}
}

func TestHold(t *testing.T) {
	s := &Snapshot{Nodes: []Node{{Version: "1"}, {Version: "2"}}}
	assert.Equal(t, "no candidates", s.Hold())
	s.Candidates = []int{1}
	assert.Empty(t, s.Hold())
	s.Candidates = []int{0, 1}
	assert.Equal(t, "candidates run different versions", s.Hold())
}

// Placement against a slow obvious count.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		s := Snapshot{Nodes: make([]Node, nodes)}
		candidate := map[int]bool{}
		for i := range nodes {
			if candidate[i] = rapid.Bool().Draw(t, "candidate"); candidate[i] {
				s.Candidates = append(s.Candidates, i)
			}
		}
		want, homed := make([]int, nodes), 0
		fixed := map[int]bool{}
		for shard := range rapid.IntRange(0, 200).Draw(t, "shards") {
			owner := rapid.IntRange(-1, nodes-1).Draw(t, "owner")
			s.Owners = append(s.Owners, uint32(owner))
			at, waits := owner, false
			switch rapid.IntRange(0, 4).Draw(t, "special") {
			case 0:
				b := Busy{Shard: uint32(shard), Target: rapid.IntRange(-1, nodes-1).Draw(t, "target")}
				s.Busy = append(s.Busy, b)
				if b.Target != NoTarget {
					at = b.Target
				}
				fixed[shard] = true
			case 1:
				s.Waiting = append(s.Waiting, uint32(shard))
				fixed[shard], waits = true, true
			case 2:
				s.Pinned = append(s.Pinned, Pin{Shard: uint32(shard), Node: rapid.IntRange(0, nodes-1).Draw(t, "pin")})
				fixed[shard] = true
			}
			if at != NoTarget && (!waits || candidate[at]) {
				want[at]++
				homed++
			}
		}
		p := s.Placement()
		require.Equal(t, want, p.Counts)
		require.Equal(t, homed, p.Homed)
		for shard := range s.Owners {
			require.Equal(t, !fixed[shard], p.Movable(uint32(shard)))
			node, kept := p.Kept(uint32(shard))
			switch pin := s.PinnedTo(uint32(shard)); {
			case s.IsWaiting(uint32(shard)):
				require.True(t, kept && node == NoTarget)
			case pin != NoTarget && s.IsCandidate(pin):
				require.True(t, kept && node == pin)
			default:
				require.True(t, !kept && node == NoTarget)
			}
		}
	})
}

func TestLookups(t *testing.T) {
	s := &Snapshot{
		Nodes:      []Node{{Name: "a", Roles: []string{"x"}, Tags: []Tag{{"k", "v"}}, Version: "1"}, {Name: "b", Version: "1"}, {Name: "c", Version: "2"}},
		Candidates: []int{0, 1}, Owners: []uint32{2, NoOwner}, Busy: []Busy{{1, 0}}, Waiting: []uint32{0}, Pinned: []Pin{{1, 2}},
	}
	assert.Equal(t, []int{0, 2, NoTarget, NoTarget}, []int{s.NodeIndex("a"), s.NodeIndex("c"), s.NodeIndex("bb"), s.NodeIndex("")})
	assert.Equal(t, []int{2, NoTarget, NoTarget}, []int{s.OwnerOf(0), s.OwnerOf(1), s.OwnerOf(9)})
	assert.True(t, s.IsBusy(1) && !s.IsBusy(0) && s.IsWaiting(0) && !s.IsWaiting(1) && s.IsCandidate(1) && !s.IsCandidate(2))
	assert.Equal(t, 2, s.PinnedTo(1))
	assert.False(t, s.MixedVersions())
	s.Candidates = append(s.Candidates, 2)
	assert.True(t, s.MixedVersions())
	assert.True(t, s.Nodes[0].HasRole("x") && !s.Nodes[1].HasRole("x"))
	v, ok := s.Nodes[0].Tag("k")
	assert.True(t, ok && v == "v")
	_, ok = s.Nodes[0].Tag("l")
	assert.False(t, ok)
	assert.Equal(t, "away unknown", StateAway.String()+" "+NodeState(99).String())
	assert.Equal(t, "allocate rebalance unknown", OpAllocate.String()+" "+OpRebalance.String()+" "+Op(0).String())
	assert.Equal(t, []uint64{5, 9}, []uint64{Known(5).Or(9), Figure{}.Or(9)})
}

func TestCoord(t *testing.T) {
	a := Coord{Vec: []float64{0, 3}, Height: 1}
	b := Coord{Vec: []float64{4, 0}, Height: 2, Adjustment: -0.5}
	rtt, ok := a.RTT(b)
	assert.True(t, ok)
	assert.Equal(t, 7.5, rtt)
	b.Adjustment = -100 // an adjustment never makes it negative
	rtt, ok = b.RTT(a)
	assert.True(t, ok)
	assert.Equal(t, 8.0, rtt)
	_, ok = a.RTT(Coord{})
	assert.False(t, ok)
	assert.True(t, Coord{}.IsZero())
	// What is no number is no distance: sorted by, it would order nodes at random.
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, c := range []Coord{{Vec: []float64{bad, 3}}, {Vec: []float64{0, 3}, Height: bad}, {Vec: []float64{0, 3}, Adjustment: bad}} {
			rtt, ok = a.RTT(c)
			assert.False(t, ok, c)
			assert.Zero(t, rtt, c)
			_, ok = c.RTT(c)
			assert.False(t, ok, c)
		}
	}
	_, ok = Coord{Vec: []float64{math.MaxFloat64}}.RTT(Coord{Vec: []float64{-math.MaxFloat64}})
	assert.False(t, ok)
}

func TestOneByOne(t *testing.T) {
	s := &Snapshot{
		Nodes: []Node{{Name: "a"}, {Name: "b"}}, Candidates: []int{0, 1}, MaxMoves: 1,
		Owners: []uint32{0, 0, 0, NoOwner, NoOwner}, Busy: []Busy{{0, NoTarget}}, Pinned: []Pin{{4, 0}},
	}
	fewest := func(s *Snapshot, p *Placement, _ uint32) (int, error) {
		if p.Counts[1] < p.Counts[0] {
			return 1, nil
		}
		return 0, nil
	}
	o := OneByOne{Place: fewest, Move: fewest}
	h, err := o.Allocate(s, []uint32{3, 4})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 0}, h.Nodes)
	p, err := o.Rebalance(s)
	require.NoError(t, err)
	assert.Equal(t, []Move{{Shard: 1, Target: 1}}, p.Moves)
	s.MaxMoves = 10
	p, err = o.Rebalance(s)
	require.NoError(t, err)
	assert.Equal(t, []Move{{Shard: 1, Target: 1}, {Shard: 2, Target: 1}}, p.Moves, "the second is asked after the first is counted: 2 to 1")

	o.Move = nil
	p, err = o.Rebalance(s)
	require.NoError(t, err)
	assert.Empty(t, p.Moves)
	for _, node := range []int{2, -2} {
		nowhere := func(*Snapshot, *Placement, uint32) (int, error) { return node, nil }
		_, err = OneByOne{Place: nowhere}.Allocate(s, []uint32{3})
		assert.EqualError(t, err, "shard 3: node "+strconv.Itoa(node)+" is out of range: there are 2")
		_, err = OneByOne{Move: nowhere}.Rebalance(s)
		assert.EqualError(t, err, "shard 1: node "+strconv.Itoa(node)+" is out of range: there are 2")
	}
	fails := func(*Snapshot, *Placement, uint32) (int, error) { return 0, errors.New("no") }
	o = OneByOne{Place: fails, Move: fails}
	_, err = o.Allocate(s, []uint32{3})
	assert.EqualError(t, err, "no")
	_, err = o.Rebalance(s)
	assert.EqualError(t, err, "no")
}
