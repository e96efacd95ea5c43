package answers

import (
	"fmt"
	"math/rand/v2"

	"github.com/droverhq/drover/pluginapi"
)

// Random draws a snapshot of at most 12 nodes in up to three zones, some of them draining or without a role, with shards busy, waiting, pinned or without
// a home. Those without one are given too, for an allocate.
func Random(r *rand.Rand) (s *pluginapi.Snapshot, homeless []uint32) {
	s = &pluginapi.Snapshot{Type: "counter", Owners: make([]uint32, r.IntN(300))}
	s.Seed, s.Now, s.Revision, s.MaxMoves = r.Uint64(), r.Uint64N(1<<40), r.Uint64N(1000), r.Uint64N(50)
	for i := range 1 + r.IntN(12) {
		name := fmt.Sprintf("n%03d", i)
		n := pluginapi.Node{
			Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 50 + r.Uint64N(200),
			Zone:  []string{"", "z1", "z2", "z3"}[r.IntN(4)],
			Roles: [][]string{nil, {"web"}, {"coordinator", "web"}}[r.IntN(3)],
		}
		switch r.IntN(10) {
		case 0:
			n.State = pluginapi.StateDraining
		case 1: // up, and not of the type's role
		default:
			s.Candidates = append(s.Candidates, i)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range s.Owners {
		shard := uint32(i)
		s.Owners[i] = uint32(r.IntN(len(s.Nodes)))
		switch r.IntN(12) {
		case 0:
			s.Busy = append(s.Busy, pluginapi.Busy{Shard: shard, Target: r.IntN(len(s.Nodes)+1) - 1})
		case 1:
			s.Pinned = append(s.Pinned, pluginapi.Pin{Shard: shard, Node: int(s.Owners[i])})
		case 2:
			s.Waiting = append(s.Waiting, shard)
		case 3:
			s.Owners[i] = pluginapi.NoOwner
			homeless = append(homeless, shard)
		}
	}
	return s, homeless
}
