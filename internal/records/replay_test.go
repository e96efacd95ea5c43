package records

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

// snapshot is of n nodes with the shards dealt to the first two.
func snapshot(nodes, shards int, config pluginapi.Config) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{Type: "counter", MaxMoves: 1000, Config: config}
	for i := range nodes {
		name := fmt.Sprintf("node-%03d", i)
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100})
		s.Candidates = append(s.Candidates, i)
	}
	for i := range shards {
		s.Owners = append(s.Owners, uint32(i%2))
	}
	return s
}

// roundTrip is a recorder that keeps what the encoding makes of a record.
type roundTrip struct {
	t    *testing.T
	recs []*host.Record
}

func (k *roundTrip) Record(r *host.Record) {
	b, err := Encode(r)
	require.NoError(k.t, err)
	got, err := Decode(b)
	require.NoError(k.t, err)
	k.recs = append(k.recs, got)
}

func runtime(t *testing.T, e host.Engine) *host.Runtime {
	rt, err := host.NewRuntime(context.Background(), host.Options{Engine: e})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close(context.Background())) })
	return rt
}

// Spec 1.3: "replay re-runs records bit for bit", whatever their verdict, with configuration and limits as they were, in either engine.
func TestReplayIsTheSame(t *testing.T) {
	ctx := context.Background()
	rt := runtime(t, host.Compiler)
	modules := map[host.Digest][]byte{}
	keep := &roundTrip{t: t}
	call := func(wasm []byte, l host.Limits, config pluginapi.Config) {
		modules[host.DigestOf(wasm)] = wasm
		s, err := rt.Load(ctx, wasm, l, config, host.WithRecorder(keep))
		require.NoError(t, err)
		s.Call(ctx, pluginapi.OpRebalance, snapshot(8, 16, nil), nil, 0)
		s.Call(ctx, pluginapi.OpAllocate, snapshot(8, 16, nil), []uint32{0, 3}, 0)
		require.NoError(t, s.Close(ctx))
	}
	verdicts := map[host.Verdict]int{}
	for _, name := range []string{"well-behaved", "divide", "indirect-recursion", "loop", "bad-pointer", "grow"} {
		wasm, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", "attack", name+".wasm"))
		require.NoError(t, err)
		call(wasm, host.Limits{Fuel: 300_000, Budget: replayBudget, MemoryPages: 20}, nil)
	}
	config, err := pluginapi.NewConfig(map[string]any{"max_moves": uint64(2)})
	require.NoError(t, err)
	impl, _ := strategies.Native("leastshard")
	native, err := host.NewNative("native:leastshard", impl, config, host.WithRecorder(keep))
	require.NoError(t, err)
	native.Call(ctx, pluginapi.OpRebalance, snapshot(3, 12, nil), nil, 0)

	for _, e := range []host.Engine{host.Compiler, host.Interpreter} {
		p := NewReplayer(runtime(t, e), func(d host.Digest) ([]byte, error) {
			if wasm, ok := modules[d]; ok {
				return wasm, nil
			}
			return nil, errors.New("not here")
		})
		for _, rec := range keep.recs {
			verdicts[rec.Verdict]++
			got, err := p.Replay(ctx, rec)
			require.NoError(t, err)
			require.Equal(t, Replayed{Outcome: Same}, got, "%s %s %s", e, rec.Verdict, rec.Error)
		}
		require.NoError(t, p.Close(ctx))
	}
	for _, v := range []host.Verdict{host.VerdictOK, host.VerdictTrap, host.VerdictFuel, host.VerdictDepth, host.VerdictOutput} {
		require.Positive(t, verdicts[v], v.String())
	}
}

// What was changed is found, and what cannot be said is not said to be the same.
func TestReplayFindsDifferences(t *testing.T) {
	ctx := context.Background()
	rt := runtime(t, host.Compiler)
	wasm, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", "attack", "well-behaved.wasm"))
	require.NoError(t, err)
	keep := &roundTrip{t: t}
	s, err := rt.Load(ctx, wasm, host.Limits{}, nil, host.WithRecorder(keep))
	require.NoError(t, err)
	s.Call(ctx, pluginapi.OpRebalance, snapshot(8, 16, nil), nil, 0)
	require.NoError(t, s.Close(ctx))
	p := NewReplayer(rt, func(d host.Digest) ([]byte, error) {
		if d == host.DigestOf(wasm) {
			return wasm, nil
		}
		return nil, errors.New("it is not here")
	})
	defer p.Close(ctx)
	replay := func(change func(r *host.Record)) Replayed {
		r := *keep.recs[0]
		r.Output = append([]byte{}, r.Output...)
		change(&r)
		got, err := p.Replay(ctx, &r)
		require.NoError(t, err)
		return got
	}
	more := *keep.recs[0].Fuel + 1
	for of, change := range map[string]func(r *host.Record){
		"output":      func(r *host.Record) { r.Output[len(r.Output)-1] ^= 1 },
		"fuel":        func(r *host.Record) { r.Fuel = &more },
		"verdict":     func(r *host.Record) { r.Verdict = host.VerdictTrap },
		"memoryPages": func(r *host.Record) { r.Pages++ },
	} {
		got := replay(change)
		require.Equal(t, Differs, got.Outcome, of)
		require.Len(t, got.Differences, 1, of)
		require.Equal(t, of, got.Differences[0].Of)
		require.NotEqual(t, got.Differences[0].Recorded, got.Differences[0].Replayed)
	}
	require.Equal(t, []Difference{{"fuel", "null", fuelText(keep.recs[0].Fuel)}, {"output", "none", outputText(keep.recs[0].Output)}},
		replay(func(r *host.Record) { r.Fuel, r.Output = nil, nil }).Differences)

	for why, tc := range map[string]struct {
		outcome Outcome
		change  func(r *host.Record)
	}{
		"the clock":                        {NotComparable, func(r *host.Record) { r.Verdict = host.VerdictBudget }},
		"the host could not make the call": {NotComparable, func(r *host.Record) { r.Verdict = host.VerdictRefused }},
		"too long to be kept":              {NotReplayed, func(r *host.Record) { r.Input = nil }},
		"cost model 99":                    {NotReplayed, func(r *host.Record) { r.CostModel = 99 }},
		"its input cannot be read":         {NotReplayed, func(r *host.Record) { r.Input = []byte{1} }},
		"it is of allocate":                {NotReplayed, func(r *host.Record) { r.Op = pluginapi.OpAllocate }},
		"it is not here":                   {NotReplayed, func(r *host.Record) { r.Digest[0] ^= 1 }},
		"no strategy \"native:mine\"":      {NotReplayed, func(r *host.Record) { r.Digest, r.Strategy = host.Digest{}, "native:mine" }},
		"fuel":                             {NotReplayed, func(r *host.Record) { r.FuelLimit = 1 }}, // not enough for admission
	} {
		got := replay(tc.change)
		require.Equal(t, tc.outcome, got.Outcome, why)
		require.Contains(t, got.Reason, why)
	}

	gone, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("no patience"))
	_, err = p.Replay(gone, keep.recs[0])
	require.ErrorContains(t, err, "no patience")
}

// Only so many strategies stay prepared, the latest used.
func TestReplayerIsBounded(t *testing.T) {
	ctx := context.Background()
	keep := &roundTrip{t: t}
	impl, _ := strategies.Native("hash")
	for i := range keepPrepared + 3 {
		config, err := pluginapi.NewConfig(map[string]any{"x": uint64(i)})
		require.NoError(t, err)
		s, err := host.NewNative("native:hash", impl, config, host.WithRecorder(keep))
		require.NoError(t, err)
		s.Call(ctx, pluginapi.OpRebalance, snapshot(3, 12, nil), nil, 0)
	}
	p := NewReplayer(nil, nil)
	for range 2 {
		for _, rec := range keep.recs {
			got, err := p.Replay(ctx, rec)
			require.NoError(t, err)
			require.Equal(t, Replayed{Outcome: Same}, got)
			require.LessOrEqual(t, len(p.prepared), keepPrepared)
		}
	}
}
