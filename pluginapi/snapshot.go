package pluginapi

// Version is the number of the contract that this package speaks.
const Version = 1

const (
	// NoOwner in Snapshot.Owners and Snapshot.Standby says that the shard has none.
	NoOwner uint32 = 0xffffffff
	// UnknownLoad in ShardLoads.Entities and ShardLoads.Rate says that the figure is not known.
	UnknownLoad uint32 = 0xffffffff
	// UnknownBytes in ShardLoads.Bytes says that the figure is not known.
	UnknownBytes uint64 = 0xffffffffffffffff
	// NoTarget as a target says: no node. In a Move the coordinator asks Allocate once the shard is free; in Homes the
	// shard stays without a home until the next interval; in Busy the target is not known.
	NoTarget = -1
)

// Op is the operation that an input asks for.
type Op uint8

// The operations of contract version 1.
const (
	OpAllocate  Op = 1 // find a home for each of some shards
	OpRebalance Op = 2 // propose moves
)

// String returns the operation's name in the contract.
func (o Op) String() string {
	switch o {
	case OpAllocate:
		return "allocate"
	case OpRebalance:
		return "rebalance"
	}
	return "unknown"
}

// NodeState is what the cluster holds of a node.
type NodeState uint8

// Node states. StateUnknown stands for a state that a later host may add; the candidates of a snapshot decide where
// shards may go, never the state alone.
const (
	StateUnknown     NodeState = iota
	StateUp                    // a member
	StateJoining               // seen, not yet settled
	StateLeaving               // has announced that it goes
	StateDraining              // its shards are being re-allocated
	StateUnreachable           // suspected or failed
	StateAway                  // gone, but its store holds waiting shards
)

var stateNames = [...]string{"unknown", "up", "joining", "leaving", "draining", "unreachable", "away"}

// String returns the state's name in the contract.
func (s NodeState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return stateNames[StateUnknown]
}

// ParseNodeState returns the state of that name; ok is false, and the state StateUnknown, where there is none.
func ParseNodeState(name string) (state NodeState, ok bool) {
	for i := int(StateUp); i < len(stateNames); i++ {
		if stateNames[i] == name {
			return NodeState(i), true
		}
	}
	return StateUnknown, false
}

// Snapshot is all that a strategy knows of the cluster. A node is known by its index in Nodes, a shard by its number
// from 0; len(Owners) is the number of shards of the type. A strategy must not change a snapshot.
type Snapshot struct {
	Type     string // the sharded type
	Revision uint64 // of the shard map: a raft index
	Now      uint64 // milliseconds, logical, from the replicated log
	Seed     uint64 // the same on every node for this call

	Nodes      []Node   // sorted by name, bytewise
	Candidates []int    // nodes that may get shards, ascending
	Owners     []uint32 // one a shard: node index, or NoOwner
	Busy       []Busy   // shards in handoff
	Waiting    []uint32 // shards whose state is on a node that is away: no home needed now
	Pinned     []Pin    // shards that the host keeps where they are
	Standby    []uint32 // nil where not told, else one a shard: who holds the in-sync copy, or NoOwner
	Load       ShardLoads

	MaxMoves uint64 // most moves that the host will take from this answer
	Config   Config // [type.config] of node.toml; nil where there is none

	counted []int // shards without a node, then those of each, as Owners was decoded; nil where not known
}

// Node is a member of the cluster, or one whose store holds waiting shards.
type Node struct {
	Name        string
	Addr        string
	Incarnation string
	State       NodeState
	Roles       []string
	Version     string // of the software it runs
	Weight      uint64 // capacity; 100 is one unit
	Zone        string // "" where not told
	Tags        []Tag  // by encoded key (shorter first, then bytewise); see SortTags
	Coord       Coord  // zero where not told
	Load        NodeLoad
}

// Tag is one of a node's tags.
type Tag struct{ Key, Value string }

// Busy is a shard in handoff.
type Busy struct {
	Shard  uint32
	Target int // node index, or NoTarget where not known
}

// Pin is a shard that the host keeps on a node.
type Pin struct {
	Shard uint32
	Node  int
}

// ShardLoads are columns of load figures, each nil where not told, else one figure a shard.
type ShardLoads struct {
	Entities []uint32 // live entities; UnknownLoad where not known
	Rate     []uint32 // messages a second; UnknownLoad where not known
	Bytes    []uint64 // of state; UnknownBytes where not known
}

// Figure is a load figure that may be missing.
type Figure struct {
	Value uint64
	Known bool
}

// Known returns a figure that is known.
func Known(v uint64) Figure { return Figure{Value: v, Known: true} }

// Or returns the figure, or def where it is not known.
func (f Figure) Or(def uint64) uint64 {
	if f.Known {
		return f.Value
	}
	return def
}

// NodeLoad is what a node reports of itself.
type NodeLoad struct {
	CPU      Figure // thousandths
	Mem      Figure // thousandths
	Entities Figure // live entities
	Rate     Figure // messages a second
	Depth    Figure // messages queued
	Disk     Figure // thousandths
	DiskFree Figure // bytes
	Read     Figure // bytes a second
	Write    Figure // bytes a second
}

// HasRole tells whether the node has the role.
func (n *Node) HasRole(role string) bool {
	for _, r := range n.Roles {
		if r == role {
			return true
		}
	}
	return false
}

// Tag returns the value of a tag; ok is false where the node has none of that key.
func (n *Node) Tag(key string) (value string, ok bool) {
	for i := range n.Tags {
		if n.Tags[i].Key == key {
			return n.Tags[i].Value, true
		}
	}
	return "", false
}

// SortTags puts tags in the order that the encoder writes. An input whose tags are in that order is encoded without an
// allocation.
func SortTags(tags []Tag) {
	for i := 1; i < len(tags); i++ {
		for j := i; j > 0 && keyLess(tags[j].Key, tags[j-1].Key); j-- {
			tags[j], tags[j-1] = tags[j-1], tags[j]
		}
	}
}

// keyLess is the order of text keys in core-deterministic CBOR: the length comes first in the encoded key.
func keyLess(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// OwnerOf returns the node that owns a shard, NoTarget where none does.
func (s *Snapshot) OwnerOf(shard uint32) int {
	if int(shard) >= len(s.Owners) || s.Owners[shard] == NoOwner {
		return NoTarget
	}
	return int(s.Owners[shard])
}

// NodeIndex returns the index of the node of that name, NoTarget where there is none.
func (s *Snapshot) NodeIndex(name string) int {
	lo, hi := 0, len(s.Nodes)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.Nodes[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Nodes) && s.Nodes[lo].Name == name {
		return lo
	}
	return NoTarget
}

// IsCandidate tells whether the node may get shards.
func (s *Snapshot) IsCandidate(node int) bool {
	for _, c := range s.Candidates {
		if c == node {
			return true
		}
	}
	return false
}

// IsBusy tells whether the shard is in handoff. For more than a few shards build a Placement instead.
func (s *Snapshot) IsBusy(shard uint32) bool {
	for i := range s.Busy {
		if s.Busy[i].Shard == shard {
			return true
		}
	}
	return false
}

// IsWaiting tells whether the shard waits for a node that is away.
func (s *Snapshot) IsWaiting(shard uint32) bool {
	for _, w := range s.Waiting {
		if w == shard {
			return true
		}
	}
	return false
}

// PinnedTo returns the node that the host keeps the shard on, NoTarget where it is not pinned.
func (s *Snapshot) PinnedTo(shard uint32) int {
	for i := range s.Pinned {
		if s.Pinned[i].Shard == shard {
			return s.Pinned[i].Node
		}
	}
	return NoTarget
}

// MixedVersions tells whether candidates run different software versions, as they do during a rolling upgrade.
func (s *Snapshot) MixedVersions() bool {
	for _, c := range s.Candidates {
		if s.Nodes[c].Version != s.Nodes[s.Candidates[0]].Version {
			return true
		}
	}
	return false
}
