package transport

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/sharding"
)

// CoordinatorRole is the role of nodes that may be raft servers and lead (spec 2.1).
const CoordinatorRole = "coordinator"

// Class says what a connection is for.
type Class uint8

// The classes. They travel in the handshake: numbers are never reused.
const (
	Control Class = 1 // frames: leases, directives, the map
	Data    Class = 2 // frames: messages of entities
	Call    Class = 3 // requests and answers, large ones too
	Raft    Class = 4 // raft's own protocol, between coordinator-capable nodes alone
)

func (c Class) String() string {
	switch c {
	case Control:
		return "control"
	case Data:
		return "data"
	case Call:
		return "call"
	case Raft:
		return "raft"
	default:
		return fmt.Sprintf("class-%d", uint8(c))
	}
}

func (c Class) valid() bool    { return c >= Control && c <= Raft }
func (c Class) isStream() bool { return c == Control || c == Data }

// maxFrame bounds the frames of a class, in bytes.
func (c Class) maxFrame() int {
	if c == Control {
		return MaxControlFrame
	}
	return MaxFrame
}

// Versions is the range of wire versions that a node reads.
type Versions struct{ Oldest, Newest uint8 }

// common gives the newest version that both read.
func (v Versions) common(o Versions) (uint8, bool) {
	n := min(v.Newest, o.Newest)
	return n, n >= max(v.Oldest, o.Oldest)
}

// Peer is the authenticated other end of a connection. Its fields come from the handshake, never from a payload.
type Peer struct {
	Member sharding.Member
	// Roles are those of the certificate; without TLS those that the peer claims. Sorted.
	Roles       []string
	Coordinator bool                 // Roles has the coordinator role
	ClusterID   sharding.Incarnation // zero: the peer does not know it yet
	Version     uint8                // newest wire version that both sides read
	Addr        string               // where the peer listens, by its own account; may be empty
	Remote      string               // address of the other end of the connection
}

func (p Peer) hasRole(role string) bool { return slices.Contains(p.Roles, role) }
