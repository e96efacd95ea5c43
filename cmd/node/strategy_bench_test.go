package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/coordinator"
)

// Spec 1.5: median and p99 by nearest rank.
func TestPercentile(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i+1))
	}
	assert.EqualValues(t, 100, percentile(times, 0.5))
	assert.EqualValues(t, 198, percentile(times, 0.99))
	assert.EqualValues(t, 7, percentile([]time.Duration{7}, 0.5))
	assert.EqualValues(t, 3, percentile([]time.Duration{1, 2, 3}, 0.99))
}

// Spec 1.5: the clusters are what the help says they are.
func TestBenchClusters(t *testing.T) {
	for _, c := range benchCases {
		for _, nodes := range []int{1, 2, 5} {
			snap, homeless := c.cluster(200, nodes)
			name := (&benchPoint{Op: c.op.String(), Owners: c.owners}).title()
			require.Len(t, snap.Owners, 200, name)
			require.Len(t, snap.Nodes, nodes, name)
			require.Len(t, snap.Candidates, nodes, name)
			assert.EqualValues(t, 200, snap.MaxMoves, name)
			counts := make([]int, nodes)
			free := 0
			for _, o := range snap.Owners {
				if o == pluginapi.NoOwner {
					free++
					continue
				}
				counts[o]++
			}
			require.Len(t, homeless, min(free, coordinator.HomesPerQuestion), name)
			for _, s := range homeless {
				require.Equal(t, pluginapi.NoOwner, snap.Owners[s], name)
			}
			want := 0
			switch {
			case c.owners == ownersNone:
				want = 200
			case c.op == pluginapi.OpAllocate:
				want = 20
			}
			assert.Equal(t, want, free, name)
			if c.owners == ownersUneven && nodes > 1 {
				assert.Equal(t, 100, counts[0], name)
				for _, n := range counts[1:] {
					assert.Positive(t, n, name)
				}
			}
			if c.op == pluginapi.OpRebalance && c.owners == ownersEven {
				for _, n := range counts {
					assert.Equal(t, 200/nodes, n, name)
				}
			}
		}
	}
}

// Spec 1.3: fuel is exact, so that bench says what run says.
func TestBenchFuelIsThatOfTheCall(t *testing.T) {
	f := benchFlags{shards: []int{50}, nodes: []int{3}, callFlags: callFlags{repeat: 2, engine: "compiler", budget: time.Minute,
		limits: func() (host.Limits, error) { return host.Limits{Fuel: host.DefaultFuel}, nil }}}
	req, err := f.request(&cobra.Command{}, "builtin:leastshard")
	require.NoError(t, err)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	require.NoError(t, withRuntime(t.Context(), host.Compiler, func(rt *host.Runtime) error {
		res, err := req.run(t.Context(), rt, &progress{})
		require.NoError(t, err)
		require.Len(t, res.Points, len(benchCases))
		s, err := rt.Load(t.Context(), req.wasm, req.limits, nil)
		require.NoError(t, err)
		seen := map[int64]bool{}
		for i, c := range benchCases {
			snap, homeless := c.cluster(50, 3)
			call := s.Call(t.Context(), c.op, snap, homeless, 0)
			require.NoError(t, call.Err)
			p := res.Points[i]
			require.Equal(t, *call.Record.Fuel, *p.Fuel, p.title())
			require.InDelta(t, float64(*p.Fuel)/host.DefaultFuel, *p.FuelShare, 1e-12)
			require.InDelta(t, p.P99Us/60e6, p.BudgetShare, 1e-9)
			require.LessOrEqual(t, p.MedianUs, p.P99Us)
			seen[*p.Fuel] = true
		}
		require.Len(t, seen, len(benchCases), "each case asks something else")

		// Who gives up gets no table of calls that blew their budget.
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		_, err = req.measure(ctx, s, benchCases[0], 50, 3)
		require.ErrorIs(t, err, enough)
		return s.Close(t.Context())
	}))
}

// The picture is well-formed whatever the name and the figures are, and a point without fuel is a gap.
func TestBenchPicture(t *testing.T) {
	fuel := func(n int64) *int64 { return &n }
	res := &benchResult{FuelLimit: 1, BudgetUs: 0, Points: []benchPoint{
		{Op: "rebalance", Shards: 1, Nodes: 3, Fuel: fuel(1), P99Us: 0.4},
		{Op: "rebalance", Shards: 10, Nodes: 3, Verdict: host.VerdictTrap, P99Us: 3},
		{Op: "rebalance", Shards: 100, Nodes: 3, Fuel: fuel(host.MaxFuel), P99Us: 5e9},
	}}
	for _, file := range []string{"a.svg", "a.HTML"} {
		text := string(pictureFile(file, `<&">`, benchSVG(`<&">`, res)))
		_, picture, ok := strings.Cut(text, "<svg")
		require.True(t, ok)
		assert.Equal(t, file == "a.HTML", strings.HasPrefix(text, "<!doctype html>"))
		d := xml.NewDecoder(strings.NewReader("<svg" + picture))
		circles := 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "circle" {
				circles++
			}
		}
		assert.Equal(t, 2+3, circles, "a point for each fuel and each time")
		assert.NotContains(t, text, "NaN")
		assert.NotContains(t, text, "Inf")
	}
}

func TestBenchOwnersString(t *testing.T) {
	assert.Equal(t, "even", ownersEven.String())
	assert.Equal(t, "uneven", ownersUneven.String())
	assert.Equal(t, "none", ownersNone.String())
	assert.Equal(t, "owners(9)", benchOwners(9).String())
}

// A node asks for so many homes at once, and so does bench: what a call costs does not grow with the shards that wait.
func TestBenchAsksAsANode(t *testing.T) {
	const shards = 20 * coordinator.HomesPerQuestion
	for _, c := range benchCases {
		snap, homeless := c.cluster(shards, 3)
		free := 0
		for _, o := range snap.Owners {
			if o == pluginapi.NoOwner {
				free++
			}
		}
		if c.op == pluginapi.OpAllocate {
			assert.Len(t, homeless, coordinator.HomesPerQuestion)
			assert.Greater(t, free, coordinator.HomesPerQuestion)
		} else {
			assert.Zero(t, free)
		}
	}
}
