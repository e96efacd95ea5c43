package pluginapi

import "math/bits"

// Placement is where the shards of a snapshot are, or will be: a shard in handoff counts at its target, or at its owner
// where no target is known. It is built once a call, in one pass over the owners.
type Placement struct {
	Counts []int // shards a node, by node index
	// Homed is the number of shards with a home or on their way to one. A shard that waits for a node that is away has
	// none: it counts only where its owner is a candidate.
	Homed int

	fixed []uint64 // bit set: the shard is busy, waiting or pinned; nil where none is
	s     *Snapshot
	kept  map[uint32]int // built by the first call of Kept
}

// Placement counts the shards of each node.
func (s *Snapshot) Placement() *Placement {
	p := &Placement{Counts: make([]int, len(s.Nodes)), s: s}
	counts := p.Counts
	if len(s.counted) == len(counts)+1 {
		copy(counts, s.counted[1:])
	} else {
		for _, o := range s.Owners {
			if o < uint32(len(counts)) { // NoOwner is above every index
				counts[o]++
			}
		}
	}
	if len(s.Busy)+len(s.Waiting)+len(s.Pinned) > 0 {
		p.fixed = make([]uint64, (len(s.Owners)+63)/64)
	}
	for _, b := range s.Busy {
		if !p.fix(b.Shard) || b.Target == NoTarget {
			continue
		}
		p.Take(s.OwnerOf(b.Shard))
		p.Put(b.Target)
	}
	for _, c := range counts {
		p.Homed += c
	}
	var candidate []bool
	for _, w := range s.Waiting {
		owner := s.OwnerOf(w)
		if !p.fix(w) || owner == NoTarget {
			continue
		}
		if candidate == nil {
			candidate = s.candidateSet()
		}
		if !candidate[owner] {
			p.Take(owner)
			p.Homed--
		}
	}
	for _, pin := range s.Pinned {
		p.fix(pin.Shard)
	}
	return p
}

// candidateSet tells of each node whether it is a candidate.
func (s *Snapshot) candidateSet() []bool {
	set := make([]bool, len(s.Nodes))
	for _, c := range s.Candidates {
		set[c] = true
	}
	return set
}

// fix marks a shard as one that must not move; false where it was marked already or is not a shard.
func (p *Placement) fix(shard uint32) bool {
	w, bit := int(shard>>6), uint64(1)<<(shard&63)
	if w >= len(p.fixed) || p.fixed[w]&bit != 0 {
		return false
	}
	p.fixed[w] |= bit
	return true
}

// Movable tells whether a rebalance may move the shard: it is neither busy nor waiting nor pinned.
func (p *Placement) Movable(shard uint32) bool {
	return p.fixed == nil || p.fixed[shard>>6]&(1<<(shard&63)) == 0
}

// Kept tells whether the home of a shard that Allocate is asked for is not the strategy's to choose: a shard that waits
// for a node that is away is left without one (NoTarget), and one that is pinned to a candidate goes there.
func (p *Placement) Kept(shard uint32) (node int, kept bool) {
	if len(p.s.Waiting)+len(p.s.Pinned) == 0 {
		return NoTarget, false
	}
	if p.kept == nil {
		p.kept = make(map[uint32]int, len(p.s.Waiting)+len(p.s.Pinned))
		candidate := p.s.candidateSet()
		for _, pin := range p.s.Pinned {
			if candidate[pin.Node] {
				p.kept[pin.Shard] = pin.Node
			}
		}
		for _, w := range p.s.Waiting {
			p.kept[w] = NoTarget
		}
	}
	if node, kept = p.kept[shard]; !kept {
		node = NoTarget
	}
	return node, kept
}

// Put counts one more shard at a node; NoTarget counts nowhere.
func (p *Placement) Put(node int) {
	if node >= 0 {
		p.Counts[node]++
	}
}

// Take counts one shard less at a node; NoTarget counts nowhere.
func (p *Placement) Take(node int) {
	if node >= 0 {
		p.Counts[node]--
	}
}

// Share is a part of a whole in parts per billion. Configuration holds it as a decimal such as 0.29, which no float
// equals: 0.29 × 100 is 28.999… in binary, and 29 is what its author means.
type Share uint64

// Whole is the share 1.0.
const Whole Share = 1_000_000_000

// Of returns floor(share × n).
func (s Share) Of(n int) int {
	hi, lo := bits.Mul64(uint64(s), uint64(n))
	if hi >= uint64(Whole) {
		return n
	}
	q, _ := bits.Div64(hi, lo, uint64(Whole))
	return int(q)
}
