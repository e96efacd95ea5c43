package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/strategies"
	"github.com/droverhq/drover/strategies/answers"
)

// kept copies what a recorder may keep.
type kept []host.Record

func (k *kept) Record(r *host.Record) {
	c := *r
	c.Input, c.Output = bytes.Clone(r.Input), bytes.Clone(r.Output)
	*k = append(*k, c)
}

// Spec 1.3, "Records": a Recorder sees every call, failed ones and second tries too, with what Call's caller gets.
func TestRecorder(t *testing.T) {
	ctx := context.Background()
	var k kept
	s := load(t, host.Compiler, fixture(t, "attack/well-behaved"), host.Limits{}, host.WithName("recorded"), host.WithRecorder(&k))
	res := allocate(s)
	require.NoError(t, res.Err)
	require.Len(t, k, 1)
	require.Equal(t, res.Record.Input, k[0].Input)
	require.Equal(t, res.Record.Output, k[0].Output)
	require.Equal(t, "recorded", k[0].Strategy)
	require.Equal(t, host.VerdictOK, k[0].Verdict)
	d := s.Allocate(ctx, cluster(8, 16), []uint32{0})
	require.NoError(t, d.Err)
	require.Len(t, k, 2)
	require.Equal(t, host.Digest(sha256.Sum256(k[1].Input)), d.InputDigest, "homes follow from the call")
	require.Equal(t, d.InputDigest, k[1].InputDigest)
	d = s.Rebalance(ctx, cluster(8, 16))
	require.NoError(t, d.Err)
	require.Len(t, k, 3)
	require.Zero(t, d.InputDigest, "nothing follows from the call")
	require.Equal(t, sha256.Sum256(k[2].Input), [32]byte(k[2].DigestInput()))

	k = nil
	s = load(t, host.Compiler, fixture(t, "attack/loop"), host.Limits{Fuel: host.MaxFuel, Budget: 10 * time.Millisecond}, host.WithRecorder(&k))
	d = s.Allocate(ctx, cluster(8, 16), []uint32{0})
	require.ErrorIs(t, d.Err, host.ErrBudget)
	require.Len(t, k, 2)
	for i, rec := range k {
		require.Equal(t, host.VerdictBudget, rec.Verdict)
		require.Equal(t, d.Calls()[i].Elapsed, rec.Elapsed)
		require.EqualValues(t, -1, d.Calls()[i].Fuel)
		require.NotEmpty(t, rec.Error)
		require.NotZero(t, rec.InputDigest, "the fallback follows from the call")
	}

	k = nil
	native, err := host.NewNative("native:panics", panics{}, nil, host.WithRecorder(&k))
	require.NoError(t, err)
	require.Error(t, native.Rebalance(ctx, cluster(8, 16)).Err)
	require.Len(t, k, 1)
	require.Equal(t, host.VerdictTrap, k[0].Verdict)
}

// The guest in C plans what the pure package plans (spec 1.2).
func TestGuestInC(t *testing.T) {
	impl, _ := strategies.Native("leastshard")
	r := rand.New(rand.NewPCG(11, 0))
	moved := 0
	for _, e := range engines {
		s := load(t, e, fixture(t, "guests/leastshard"), host.Limits{Budget: time.Minute})
		for range 300 {
			snap, _ := answers.Random(r)
			want, err := impl.Rebalance(snap)
			require.NoError(t, err)
			d := s.Rebalance(context.Background(), snap)
			require.NoError(t, d.Err)
			require.Equal(t, len(want.Moves), len(d.Plan.Moves))
			for i := range want.Moves {
				require.Equal(t, want.Moves[i], d.Plan.Moves[i])
			}
			moved += len(want.Moves)
		}
	}
	require.Greater(t, moved, 300)
	d := load(t, host.Compiler, fixture(t, "guests/leastshard"), host.Limits{}).Allocate(context.Background(), cluster(2, 2), []uint32{0})
	require.True(t, strings.Contains(d.Err.Error(), "only rebalances"), "%v", d.Err)
}
