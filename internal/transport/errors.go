package transport

import (
	"errors"
	"fmt"

	"github.com/droverhq/drover/sharding"
)

// Reason says why a handshake failed.
type Reason uint8

// The reasons. They travel in the handshake: numbers are never reused.
const (
	ReasonIO        Reason = 1  // the connection broke, or was not made at all
	ReasonTimeout   Reason = 2  // the handshake took too long
	ReasonMalformed Reason = 3  // the peer does not speak this protocol
	ReasonMode      Reason = 4  // one side uses TLS or a key, the other does not
	ReasonTLS       Reason = 5  // a certificate was not accepted
	ReasonKey       Reason = 6  // the sides have no gossip key in common
	ReasonCluster   Reason = 7  // the peer belongs to another cluster
	ReasonName      Reason = 8  // the peer is not the node that was dialled
	ReasonSelf      Reason = 9  // the peer is this node, or uses its name
	ReasonRole      Reason = 10 // the peer's role does not allow this class
	ReasonVersion   Reason = 11 // no common version of the wire format
	ReasonInsecure  Reason = 12 // neither TLS nor a key, and the peer is not on loopback
	ReasonBusy      Reason = 13 // too many handshakes at once, or this node is closing
	ReasonFault     Reason = 14 // a fault point of a test
	reasonCount            = 15
)

func (r Reason) String() string {
	switch r {
	case ReasonIO:
		return "io"
	case ReasonTimeout:
		return "timeout"
	case ReasonMalformed:
		return "malformed"
	case ReasonMode:
		return "mode"
	case ReasonTLS:
		return "tls"
	case ReasonKey:
		return "key"
	case ReasonCluster:
		return "cluster"
	case ReasonName:
		return "name"
	case ReasonSelf:
		return "self"
	case ReasonRole:
		return "role"
	case ReasonVersion:
		return "version"
	case ReasonInsecure:
		return "insecure"
	case ReasonBusy:
		return "busy"
	case ReasonFault:
		return "fault"
	default:
		return fmt.Sprintf("reason-%d", uint8(r))
	}
}

// HandshakeError is the failure of a handshake. Err is a *ClusterMismatchError, *KeyMismatchError or *NameMismatchError
// where that is the reason.
type HandshakeError struct {
	Reason Reason
	Addr   string // the peer's address
	Remote bool   // the peer refused, not this node
	Err    error
}

func (e *HandshakeError) Error() string {
	who := "refused"
	if e.Remote {
		who = "refused by the peer"
	}
	if e.Reason == ReasonIO || e.Reason == ReasonTimeout {
		who = "failed"
	}
	return fmt.Sprintf("connection with %s %s (%s): %v", e.Addr, who, e.Reason, e.Err)
}

// passing says that the failure is what happens when a peer starts, ends or is found under an old identity, and no misconfiguration.
func (e *HandshakeError) passing() bool {
	switch e.Reason {
	case ReasonIO, ReasonTimeout, ReasonFault:
		return true
	case ReasonBusy:
		_, crowded := errors.AsType[*crowdedError](e.Err)
		return !crowded
	case ReasonName:
		m, ok := errors.AsType[*NameMismatchError](e.Err)
		return e.Remote || ok && m.Want.Node == m.Got.Node
	}
	return false
}

// crowdedError says that somebody takes up more of this node than a peer in order does.
type crowdedError struct{ what string }

func (e *crowdedError) Error() string { return e.what }

// Misfit says that the two sides are configured for different clusters: neither time nor a retry mends that (spec 5.1).
func (e *HandshakeError) Misfit() bool {
	switch e.Reason {
	case ReasonMode, ReasonTLS, ReasonKey, ReasonCluster:
		return true
	}
	return false
}

func (e *HandshakeError) Unwrap() error { return e.Err }

// ClusterMismatchError says that two nodes belong to different clusters. An ID is zero where it is not known yet.
type ClusterMismatchError struct {
	Label, PeerLabel string
	ID, PeerID       sharding.Incarnation
}

func (e *ClusterMismatchError) Error() string {
	return fmt.Sprintf("the peer belongs to cluster %s, this node to %s: check [gossip] join, or wipe data_dir if this node is to change clusters",
		clusterText(e.PeerLabel, e.PeerID), clusterText(e.Label, e.ID))
}

func clusterText(label string, id sharding.Incarnation) string {
	if id.IsZero() {
		return fmt.Sprintf("%q (no ID yet)", label)
	}
	return fmt.Sprintf("%q (ID %s)", label, id)
}

// KeyMismatchError says that two nodes have no gossip key in common.
type KeyMismatchError struct {
	PeerLabel string // cluster label that the peer claims; empty if it is the one who refused
}

func (e *KeyMismatchError) Error() string {
	peer := "the peer"
	if e.PeerLabel != "" {
		peer = fmt.Sprintf("the peer (cluster %q by its own account)", e.PeerLabel)
	}
	return fmt.Sprintf("this node and %s have no gossip key in common: check [gossip] keys on both", peer)
}

// NameMismatchError says that another node answers at an address than the one that was dialled.
type NameMismatchError struct {
	Want, Got sharding.Member // the incarnation of Want is zero when any was welcome
}

func (e *NameMismatchError) Error() string {
	if e.Want.Node == e.Got.Node {
		return fmt.Sprintf("node %s has restarted: wanted incarnation %s, found %s", e.Want.Node, e.Want.Incarnation, e.Got.Incarnation)
	}
	return fmt.Sprintf("found node %q where %q was expected: check [transport] advertise of both", e.Got.Node, e.Want.Node)
}

// What Send and Call return. Each means that the frame or request was surely not delivered.
var (
	ErrClosed       = errors.New("the transport is closed")
	ErrUnknownPeer  = errors.New("no address is known for this member")
	ErrBackPressure = errors.New("the queue to this peer is full")
	ErrTooLarge     = errors.New("too large to send")
)

// UnavailableError says that a peer cannot be reached just now; a connection is being tried again and again.
type UnavailableError struct {
	Member sharding.Member
	Err    error // why the last attempt failed
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s cannot be reached: %v", e.Member, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// RemoteError is what the peer's Handler.Call returned.
type RemoteError struct {
	Member  sharding.Member
	Message string
}

func (e *RemoteError) Error() string { return fmt.Sprintf("%s answered: %s", e.Member, e.Message) }
