package protocol

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.txt: only together with a new Version")

var (
	incA = sharding.Incarnation{0xaa, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}
	memA = sharding.Member{Node: "a", Incarnation: incA}
	memB = sharding.Member{Node: "b", Incarnation: sharding.Incarnation{0xbb}}
	spec = StrategySpec{Digest: [32]byte{1, 2}, Source: "builtin:hash", Config: []byte{0xa0}, Fuel: 5, Budget: 100, Memory: 16 << 20, MaxFailures: 3, MovesPass: 100}
	info = NodeInfo{Address: "127.0.0.1:7947", Roles: []string{"compute"}, Zone: "z", Version: "1", Capacity: 100,
		Tags: map[string]string{"b": "2", "a": "1", "aa": "3"}, HTTP: "127.0.0.1:8080", MinWire: 1, MaxWire: 1}
	region   = RegionInfo{Type: "counter", NumShards: 100, Hosts: true, Role: "compute", Place: "eager", Expect: 3, Strategy: spec}
	record   = ShardRecord{Shard: 7, State: Moving, Owner: memA, Epoch: 3, Granted: 9, Target: memB, Source: memB}
	decision = Decision{Digest: [32]byte{1}, Seq: 2, Pass: 3, Record: [32]byte{4}, Cause: CauseRebalance, Reason: "r", Verdict: "ok"}
	senders  = []SenderSeq{{Sender: memA, Seq: 4}}
	epochs   = []ShardEpoch{{Shard: 7, Epoch: 3}}
	rev      = sharding.Revision{Term: 2, Index: 300}
)

func u64(v uint64) *uint64 { return &v }

// controls holds one full message of every control kind.
func controls() []Message {
	return []Message{
		&Register{Info: info, Regions: []RegionInfo{region}, Owned: []TypeShards{{Type: "counter", Shards: epochs}}, Applied: rev, Supersedes: []sharding.Incarnation{incA}},
		&Renew{Seq: 1, SentAt: 2, Applied: rev, Load: &NodeLoad{CPU: u64(1), DiskFree: u64(0), Shards: []ShardLoad{{Type: "counter", Shard: 1, Entities: 2, Rate: 3}}}},
		&Stopping{Types: []sharding.TypeName{"counter"}, Drain: true},
		&GetShardHome{Type: "counter", Shards: []sharding.ShardID{1, 2, 300}},
		&HandOffComplete{Type: "counter", Shard: 7, Epoch: 3, Senders: senders},
		&HandOffRefused{Type: "counter", Shard: 7, Asked: 3, Owner: memA, Epoch: 4},
		&ShardsStopped{Type: "counter", Shards: epochs},
		&ShardStarted{Type: "counter", Shards: epochs},
		&RegisterAck{Term: 1, ClusterID: incA, Revision: rev, LeaseTTL: 5000, Refused: []Refusal{{Type: "counter", Code: "num_shards", Detail: "d"}}},
		&LeaseAck{Term: 1, Seq: 2, SentAt: 3, Revision: rev, TTL: 5000},
		&ShardMapUpdate{Term: 1, From: rev, To: rev, Full: true, Types: []TypeDelta{{Type: "counter", NumShards: 100, Shards: []ShardRecord{record}}},
			Members: []MemberRecord{{Member: memA, Info: info, Draining: true, Hosts: []sharding.TypeName{"counter"}, Proxies: []sharding.TypeName{"kv"}}}, Gone: []sharding.Member{memB}},
		&ShardHome{Term: 1, Type: "counter", Shard: record},
		&StartShard{Term: 1, Type: "counter", Shard: record, Senders: senders, Handed: true},
		&HandOff{Term: 1, Type: "counter", Shard: 7, Epoch: 3},
		&KillShard{Term: 1, Type: "counter", Shard: 7, Epoch: 3},
		&Leading{Term: 1},
	}
}

// entries holds one full entry of every kind.
func entries() []*Entry {
	e := func(k Kind, f func(*Entry)) *Entry {
		x := &Entry{V: Version, Kind: k, Term: 4, Now: 1_700_000_000_000, Command: Command{Client: incA, Seq: 9}}
		f(x)
		return x
	}
	return []*Entry{
		e(KindCreateCluster, func(e *Entry) {
			e.CreateCluster = &CreateCluster{ClusterID: incA, Label: "l", Settings: Settings{LeaseTTL: 5000}, BaseEpoch: 7}
		}),
		e(KindConfigure, func(e *Entry) { e.Configure = &Configure{Settings: Settings{LeaseTTL: 5000}} }),
		e(KindPutServer, func(e *Entry) { e.PutServer = &PutServer{Server: incA, Member: memA, Address: "x:1"} }),
		e(KindRemoveServer, func(e *Entry) { e.RemoveServer = &RemoveServer{Server: incA} }),
		e(KindRegister, func(e *Entry) {
			e.Register = &RegisterNode{Member: memA, Info: info, Regions: []RegionInfo{region}}
		}),
		e(KindDeregister, func(e *Entry) {
			e.Deregister = &Deregister{Member: memA, Types: []sharding.TypeName{"counter"}, Cause: CauseLapsed}
		}),
		e(KindGrantLeases, func(e *Entry) { e.GrantLeases = &GrantLeases{Members: []sharding.Member{memA, memB}, TTL: 5000} }),
		e(KindSetDrain, func(e *Entry) { e.SetDrain = &SetDrain{Member: memA, On: true} }),
		e(KindBeginPass, func(e *Entry) { e.BeginPass = &BeginPass{Type: "counter", Seed: 1 << 63, Cause: CauseInterval} }),
		e(KindPlanMoves, func(e *Entry) {
			e.PlanMoves = &PlanMoves{Type: "counter", Decision: decision, Moves: []Move{{Shard: 7, From: memA, Epoch: 3, Target: memB, Reason: "r"}}}
		}),
		e(KindAssignHomes, func(e *Entry) {
			e.AssignHomes = &AssignHomes{Type: "counter", Decision: decision, Homes: []Home{{Shard: 7, Epoch: 3, Owner: memB, Reason: "r"}}}
		}),
		e(KindCompleteHandOff, func(e *Entry) {
			e.CompleteHandOff = &CompleteHandOff{Type: "counter", Shard: 7, Epoch: 3, From: memA, Senders: senders}
		}),
		e(KindFenceShards, func(e *Entry) {
			e.FenceShards = &FenceShards{Type: "counter", Shards: epochs, Cause: CauseTimeout}
		}),
		e(KindReleaseShards, func(e *Entry) {
			e.ReleaseShards = &ReleaseShards{Type: "counter", Shards: epochs, Cause: CauseLapsed}
		}),
		e(KindPinShard, func(e *Entry) { e.PinShard = &PinShard{Type: "counter", Shard: 7, Node: "a"} }),
		e(KindSetPaused, func(e *Entry) { e.SetPaused = &SetPaused{On: true} }),
		e(KindSetStrategy, func(e *Entry) {
			e.SetStrategy = &SetStrategy{Type: "counter", Spec: spec, Expect: 1, Cause: CauseSwap}
		}),
		e(KindStrategyOutcome, func(e *Entry) {
			e.StrategyOutcome = &StrategyOutcome{Type: "counter", Seq: 2, Failure: "trap: unreachable"}
		}),
		e(KindSetShadow, func(e *Entry) {
			e.SetShadow = &SetShadow{Type: "counter", Spec: spec, Expect: 2, Shadow: 3, Cause: CauseOperator}
		}),
		e(KindPromote, func(e *Entry) { e.Promote = &Promote{Type: "counter", Expect: 2, Shadow: 3} }),
		e(KindRollback, func(e *Entry) { e.Rollback = &Rollback{Type: "counter", Expect: 2} }),
		e(KindReleaseHandovers, func(e *Entry) { e.ReleaseHandovers = &ReleaseHandovers{Type: "counter", Shards: epochs} }),
	}
}

// Every control message and entry comes back as it went, and every kind is in the lists.
func TestRoundTrip(t *testing.T) {
	kinds := 0
	for k := range frameNames[:FrameDeliver] {
		if frameNames[k] != "" {
			kinds++
		}
	}
	require.Len(t, controls(), kinds)
	for _, m := range controls() {
		b, err := AppendFrame([]byte("before"), m)
		require.NoError(t, err, m.FrameKind())
		require.True(t, bytes.HasPrefix(b, []byte("before")))
		got, err := DecodeFrame(b[len("before"):])
		require.NoError(t, err, m.FrameKind())
		require.Equal(t, m, got)
	}
	kinds = 0
	for _, n := range kindNames {
		if n != "" {
			kinds++
		}
	}
	require.Len(t, entries(), kinds)
	for _, e := range entries() {
		b, err := EncodeEntry(e)
		require.NoError(t, err, e.Kind)
		got, err := DecodeEntry(b)
		require.NoError(t, err, e.Kind)
		require.Equal(t, e, got)
	}
}

// The bytes of version 1 are frozen: nodes of two builds run side by side, and logs outlive builds (spec 2.1).
func TestGolden(t *testing.T) {
	var out strings.Builder
	for _, m := range controls() {
		b, err := AppendFrame(nil, m)
		require.NoError(t, err)
		fmt.Fprintf(&out, "frame %s %s\n", m.FrameKind(), hex.EncodeToString(b))
	}
	for _, e := range entries() {
		b, err := EncodeEntry(e)
		require.NoError(t, err)
		fmt.Fprintf(&out, "entry %s %s\n", e.Kind, hex.EncodeToString(b))
	}
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile("testdata/golden.txt", []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile("testdata/golden.txt")
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(out.String(), "\n"))
}

// Zero members, digests and the like take no room: a map of 100 000 shards is mostly such fields.
func TestZeroFieldsAreLeftOut(t *testing.T) {
	b, err := AppendFrame(nil, &ShardHome{Term: 1, Type: "t", Shard: ShardRecord{Shard: 1}})
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), 24)
}

func TestBadFrames(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		is   error
		text string
	}{
		"empty":        {nil, nil, "shorter than its header"},
		"old version":  {[]byte{0, 1, 0xa0}, ErrVersion, "reads 1 to 1"},
		"next version": {[]byte{2, 1, 0xa0}, ErrVersion, "version 2"},
		"unknown":      {[]byte{1, 63, 0xa0}, ErrUnknownKind, "63"},
		"unknown data": {[]byte{1, 200, 0xa0}, ErrUnknownKind, "200"},
		"cut":          {[]byte{1, byte(FrameRenew), 0xa3, 0}, nil, "decode Renew"},
		"trailing":     {[]byte{1, byte(FrameLeading), 0xa0, 0}, nil, "decode Leading"},
		"indefinite":   {[]byte{1, byte(FrameLeading), 0xbf, 0xff}, nil, "decode Leading"},
		"duplicate":    {[]byte{1, byte(FrameLeading), 0xa2, 0, 1, 0, 2}, nil, "decode Leading"},
		"huge array":   {[]byte{1, byte(FrameGetShardHome), 0xa1, 1, 0x9a, 0xff, 0xff, 0xff, 0xff}, nil, "decode GetShardHome"},
		"deep":         {append([]byte{1, byte(FrameLeading), 0xa1, 0x18, 99}, bytes.Repeat([]byte{0x81}, 40)...), nil, "decode Leading"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeFrame(c.in)
			require.ErrorContains(t, err, c.text)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
	_, err := DecodeFrame([]byte{1, byte(FrameLeading), 0xa2, 0, 5, 0x18, 99, 0x61, 'x'})
	require.NoError(t, err, "unknown keys are skipped: the next version may add some")
}

func TestBadEntries(t *testing.T) {
	_, err := EncodeEntry(&Entry{Kind: KindSetPaused})
	require.ErrorContains(t, err, "set_paused has 0 bodies")
	_, err = EncodeEntry(&Entry{Kind: KindSetPaused, SetPaused: &SetPaused{}, PinShard: &PinShard{}})
	require.ErrorContains(t, err, "2 bodies")
	_, err = EncodeEntry(&Entry{Kind: KindSetPaused, PinShard: &PinShard{}})
	require.Error(t, err)
	_, err = EncodeEntry(&Entry{Kind: 200})
	require.ErrorIs(t, err, ErrUnknownKind)
	b, err := encMode.Marshal(&Entry{V: 9, Kind: KindSetPaused, SetPaused: &SetPaused{}})
	require.NoError(t, err)
	_, err = DecodeEntry(b)
	require.ErrorIs(t, err, ErrVersion)
}

func FuzzDecodeFrame(f *testing.F) {
	for _, m := range controls() {
		b, err := AppendFrame(nil, m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeFrame(b)
		if err != nil {
			return
		}
		again, err := AppendFrame(nil, m)
		if err != nil {
			t.Fatalf("%#v was decoded and cannot be encoded: %v", m, err)
		}
		m2, err := DecodeFrame(again)
		if err != nil {
			t.Fatal(err)
		}
		third, err := AppendFrame(nil, m2)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%x and %x: one message, two forms (%v)", again, third, err)
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	for _, e := range entries() {
		b, err := EncodeEntry(e)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		e2, err := DecodeEntry(again)
		if err != nil {
			t.Fatal(err)
		}
		e.V = Version
		if third, err := EncodeEntry(e2); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("one entry, two forms: %v", err)
		}
	})
}

// Every enum value has a name of its own.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range controls() {
		n := m.FrameKind().String()
		require.False(t, seen[n])
		require.Equal(t, reflect.TypeOf(m).Elem().Name(), n)
		seen[n] = true
	}
	require.Equal(t, "kind 255", Kind(255).String())
	require.True(t, errors.Is(fmt.Errorf("x: %w", ErrVersion), ErrVersion))
}
