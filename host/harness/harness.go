// Package harness is the test kit of people who write strategies: clusters built fluently, assertions about what a
// strategy decides, and a suite that every right one passes, for modules and native strategies alike (docs/harness.md).
// It is for tests; what needs none of testing is package lab.
//
// An assertion fails the test and returns false; what it prints shows the snapshot, the decision and what would have been
// right.
package harness

import (
	"context"
	"testing"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/pluginapi"
)

// What tests name most, so that one import does.
type (
	// Strategy is a strategy on trial.
	Strategy = lab.Strategy
	// Cluster is what it is asked about.
	Cluster = lab.Cluster
	// Move is a shard's way to another node.
	Move = lab.Move
	// Home is a shard's home.
	Home = lab.Home
)

// NewCluster returns a cluster of nodes a, b, c, … and of shards without a home: see lab.NewCluster.
func NewCluster(nodes, shards int) *Cluster { return lab.NewCluster(nodes, shards) }

// Native returns a strategy of Go.
func Native(t testing.TB, name string, impl pluginapi.Strategy) *Strategy {
	t.Helper()
	return closed(t, lab.Native(name, impl))
}

// Module returns the strategy in a .wasm file's bytes, under the limits of a node but without its budget of time. It is
// released with the test.
func Module(t testing.TB, name string, wasm []byte) *Strategy {
	t.Helper()
	return closed(t, lab.Module(name, wasm, host.Limits{}))
}

// Open is Module for a file; one that cannot be read ends the test.
func Open(t testing.TB, path string) *Strategy {
	t.Helper()
	s, err := lab.Open(path, host.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, s)
}

func closed(t testing.TB, s *Strategy) *Strategy {
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("%s: close: %v", s.Name(), err)
		}
	})
	return s
}

// report fails the test with what a check found.
func report(t testing.TB, err error) bool {
	t.Helper()
	if err != nil {
		t.Errorf("%v", err)
	}
	return err == nil
}

// Moves asserts that a rebalance answers these moves in this order. From may be left out; reasons are not compared.
func Moves(t testing.TB, s *Strategy, c *Cluster, want ...Move) bool {
	t.Helper()
	return report(t, s.DecidesMoves(t.Context(), c, want...))
}

// Homes asserts that an allocate of these shards answers these homes.
func Homes(t testing.TB, s *Strategy, c *Cluster, want ...Home) bool {
	t.Helper()
	return report(t, s.DecidesHomes(t.Context(), c, want...))
}

// Converges asserts that after at most n rounds nothing changes any more.
func Converges(t testing.TB, s *Strategy, c *Cluster, n int) bool {
	t.Helper()
	return report(t, s.Settles(t.Context(), c, n))
}

// EvensOut asserts that from round n on the fullest candidate has at most spread shards more than the emptiest.
func EvensOut(t testing.TB, s *Strategy, c *Cluster, n, spread int) bool {
	t.Helper()
	return report(t, s.EvensOut(t.Context(), c, n, spread))
}

// NeverOscillates asserts that the strategy never comes back to an arrangement that it has left.
func NeverOscillates(t testing.TB, s *Strategy, c *Cluster) bool {
	t.Helper()
	return report(t, s.NeverOscillates(t.Context(), c))
}

// MovesAtMost asserts that a rebalance plans at most so many moves.
func MovesAtMost(t testing.TB, s *Strategy, c *Cluster, most int) bool {
	t.Helper()
	return report(t, s.MovesAtMost(t.Context(), c, most))
}

// WithinFuel asserts that neither operation takes more fuel. A native strategy has none, and fails.
func WithinFuel(t testing.TB, s *Strategy, c *Cluster, most int64) bool {
	t.Helper()
	return report(t, s.WithinFuel(t.Context(), c, most))
}

// WithinBudget asserts that neither operation takes longer. It depends on how busy the machine is.
func WithinBudget(t testing.TB, s *Strategy, c *Cluster, most time.Duration) bool {
	t.Helper()
	return report(t, s.WithinBudget(t.Context(), c, most))
}

// Deterministic asserts that the same input gives the same bytes for the same fuel: again, in fresh instances, in both
// engines.
func Deterministic(t testing.TB, s *Strategy, c *Cluster) bool {
	t.Helper()
	return report(t, s.Deterministic(t.Context(), c))
}

// KeepsPins asserts that pinned shards are not moved, and get their home where they are pinned.
func KeepsPins(t testing.TB, s *Strategy, c *Cluster) bool {
	t.Helper()
	return report(t, s.KeepsPins(t.Context(), c))
}

// SpreadsZones asserts that after at most n rounds no zone has more than spread shards more than another, and no shard is
// in the zone of its standby.
func SpreadsZones(t testing.TB, s *Strategy, c *Cluster, n, spread int) bool {
	t.Helper()
	return report(t, s.SpreadsZones(t.Context(), c, n, spread))
}

// Simulate plays the strategy on a copy of the cluster while nodes come and go; see lab.Simulate. What it cannot play ends
// the test.
func Simulate(t testing.TB, s *Strategy, c *Cluster, o lab.Options) *lab.Run {
	t.Helper()
	run, err := lab.Simulate(t.Context(), s, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return run
}
