// Package rolepinning is an example of a strategy that places one shard at a time: the lowest shards, which an
// application may use for what must not share a node with the rest, live on nodes of one role, and all others elsewhere.
package rolepinning

import "github.com/droverhq/drover/pluginapi"

// Defaults of the configuration.
const (
	DefaultRole = "coordinator"
	DefaultLow  = 4
)

// Strategy is the example. Its zero value is ready.
type Strategy struct{}

type settings struct {
	role string
	low  uint64
}

func read(c pluginapi.Config) (set settings, err error) {
	if set.role, err = c.String("role", DefaultRole); err != nil {
		return set, err
	}
	set.low, err = c.Uint("low", DefaultLow)
	return set, err
}

// Configure implements pluginapi.Configurer: a bad configuration is refused when the strategy is loaded.
func (Strategy) Configure(c pluginapi.Config) error {
	_, err := read(c)
	return err
}

// Describe implements pluginapi.Describer.
func (Strategy) Describe() pluginapi.Description {
	return pluginapi.Description{
		Name:    "role-pinning",
		Version: "1",
		Summary: "The lowest shards live on nodes of one role, all others elsewhere.",
		Config: []pluginapi.ConfigKey{
			{Key: "role", Type: "string", Default: DefaultRole, Help: "role of the nodes for the lowest shards"},
			{Key: "low", Type: "uint", Default: DefaultLow, Help: "how many shards, from 0, live on them"},
		},
	}
}

// Allocate implements pluginapi.Strategy.
func (Strategy) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	set, err := read(s.Config)
	if err != nil {
		return pluginapi.Homes{}, err
	}
	if !set.present(s) {
		pluginapi.Log(pluginapi.LevelWarn, "no candidate has the role "+set.role+": any node will do")
	}
	return set.oneByOne().Allocate(s, shards)
}

// Rebalance implements pluginapi.Strategy.
func (Strategy) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	set, err := read(s.Config)
	if err != nil {
		return pluginapi.Plan{}, err
	}
	return set.oneByOne().Rebalance(s)
}

func (set settings) oneByOne() pluginapi.OneByOne {
	return pluginapi.OneByOne{
		Place: func(s *pluginapi.Snapshot, p *pluginapi.Placement, shard uint32) (int, error) {
			return set.best(s, p, shard), nil
		},
		Move: func(s *pluginapi.Snapshot, p *pluginapi.Placement, shard uint32) (int, error) {
			owner := s.OwnerOf(shard)
			best := set.best(s, p, shard)
			// Only a wrong kind of node is worth a move; evenness is not this strategy's concern.
			if best == pluginapi.NoTarget || !s.IsCandidate(owner) || set.fits(s, owner, shard) == set.fits(s, best, shard) {
				return pluginapi.NoTarget, nil
			}
			return best, nil
		},
	}
}

// present tells whether any candidate has the role.
func (set settings) present(s *pluginapi.Snapshot) bool {
	for _, c := range s.Candidates {
		if s.Nodes[c].HasRole(set.role) {
			return true
		}
	}
	return false
}

// fits tells whether the node is of the kind that the shard should live on.
func (set settings) fits(s *pluginapi.Snapshot, node int, shard uint32) bool {
	return s.Nodes[node].HasRole(set.role) == (uint64(shard) < set.low)
}

// best returns the candidate with the fewest shards among those that fit, or among all where none does.
func (set settings) best(s *pluginapi.Snapshot, p *pluginapi.Placement, shard uint32) int {
	best := pluginapi.NoTarget
	for _, c := range s.Candidates {
		switch {
		case best == pluginapi.NoTarget:
			best = c
		case set.fits(s, c, shard) != set.fits(s, best, shard):
			if set.fits(s, c, shard) {
				best = c
			}
		case p.Counts[c] < p.Counts[best]:
			best = c
		}
	}
	return best
}
