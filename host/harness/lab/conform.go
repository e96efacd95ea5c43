package lab

import (
	"context"
	"math"

	"github.com/droverhq/drover/pluginapi"
)

// Conform runs every check that each right strategy passes, whatever it is for, on each of the clusters, and returns the
// first fault of each check. The error is the host's own trouble, or about a cluster.
//
// What is left out is a matter of the strategy: a plan longer than the host's limit (the host takes the first moves), moves
// while candidates run different versions (the built-in strategies plan none), shards left without a home, pins in an
// allocate (the host keeps them), evenness.
func (s *Strategy) Conform(ctx context.Context, clusters ...*Cluster) ([]*Fault, error) {
	var faults []*Fault
	found := map[Check]bool{}
	for _, c := range clusters {
		for _, check := range []func(context.Context, *Cluster) error{s.Valid, s.Deterministic, s.OrderFree, s.Forward, s.SettlesAtAll} {
			err := check(ctx, c)
			if err == nil {
				continue
			}
			f := IsFault(err)
			if f == nil {
				return faults, err
			}
			if !found[f.Check] {
				found[f.Check] = true
				faults = append(faults, f)
			}
			if f.Check == CheckAdmitted {
				return faults, nil
			}
		}
	}
	f, err := s.keepsItsWord(ctx)
	if f != nil {
		faults = append(faults, f)
	}
	return faults, err
}

// keepsItsWord checks that a strategy that describes max_moves keeps it.
func (s *Strategy) keepsItsWord(ctx context.Context) (*Fault, error) {
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, nil // it asks for a configuration, or fails in describe: not about moves
	}
	key := pluginapi.MoveLimitKeys()[0]
	for _, k := range d.Config {
		if k.Key != key.Key || k.Type != key.Type {
			continue
		}
		for _, most := range []int{0, 2} {
			err := s.MovesAtMost(ctx, NewCluster(3, 0).Counts(9, 0, 3).Config(key.Key, most), most)
			if f := IsFault(err); f != nil || err != nil {
				return f, unlessFault(err)
			}
		}
	}
	return nil, nil
}

func unlessFault(err error) error {
	if IsFault(err) != nil {
		return nil
	}
	return err
}

// Corners returns clusters at the edges of what the contract allows: without nodes, shards or candidates, with every shard
// busy, waiting or pinned, with figures that are missing, 0 or as large as they can be.
func Corners() []*Cluster {
	three := func() *Cluster { return NewCluster(3, 12).AllOn("a") }
	shards := three().Even().s.Owners
	var all []uint32
	for i := range shards {
		all = append(all, uint32(i))
	}
	busy, lost := three(), three()
	for _, shard := range all[:11] {
		busy.Busy(shard, "b")
		lost.Busy(shard, "")
	}
	large := NewCluster(20, 1000)
	for i := range large.s.Owners {
		large.s.Owners[i] = uint32(i * i % 7)
	}
	full := pluginapi.NodeLoad{CPU: pluginapi.Known(1000), Mem: pluginapi.Known(math.MaxUint32), Rate: pluginapi.Known(math.MaxUint32), Entities: pluginapi.Known(0)}
	return []*Cluster{
		NewCluster(0, 0), NewCluster(0, 5), NewCluster(1, 0), NewCluster(1, 5), NewCluster(1, 5).AllOn("a"),
		three(), three().Even(), NewCluster(3, 12), NewCluster(3, 0).Counts(1, 2, 2), NewCluster(3, 0).Counts(4, 4, 2),
		three().Candidate(false),
		three().State(pluginapi.StateDraining),
		NewCluster(3, 12).State(pluginapi.StateUnreachable),
		three().State(pluginapi.StateLeaving, "b"),
		three().Candidate(false, "b", "c"),
		three().State(pluginapi.StateUnreachable, "b").Candidate(true, "b"),
		three().Version("2", "b"),
		three().Pin("a", all...), three().Pin("b", all...), NewCluster(3, 12).Pin("c", all...),
		three().Pin("a", all[:6]...), three().Waiting(all[:6]...), three().Busy(0, "b").Busy(1, "c").Busy(2, ""),
		three().Own("", all[:4]...),
		three().Busy(0, "b").Waiting(1).Pin("a", 2, 3).Own("", 4, 5).State(pluginapi.StateDraining, "c"),
		busy, lost,
		three().State(pluginapi.StateAway, "a").Waiting(all...), NewCluster(3, 12).Waiting(all[3:]...),
		three().Capacity(0), three().Capacity(math.MaxUint64, "b"), three().Capacity(0, "a"),
		three().Limit(0), three().Limit(1), three().Limit(math.MaxUint64),
		three().Load(full, "a").Rate(100), three().Load(full).Rate(0).Entities(0).Bytes(math.MaxUint64 - 1),
		three().Zone("z1", "a", "b").Zone("z2", "c").Standby("b", 0, 1, 2),
		three().Coord(pluginapi.Coord{Vec: []float64{0.1, 0.2}, Error: 0.5}, "a").Coord(pluginapi.Coord{Vec: []float64{1e300}, Error: 1}, "b"),
		three().Role("store", "a").Role("web", "a", "b").Tag("rack", "7", "c"),
		large,
	}
}
