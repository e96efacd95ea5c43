package sharding

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ShardID numbers the shards of one type from 0 (spec 1.1).
type ShardID uint32

// What a cluster carries: its servers and nodes hold every shard in memory, and a node names all that it owns in one frame when it registers.
const (
	MaxShards    = 100_000 // of a type
	MaxAllShards = 500_000 // of all types together
)

// NodeID is a node's name, as in node.toml. A process is a [Member]: a name with an incarnation.
type NodeID string

// TypeName names a sharded type.
type TypeName string

// Epoch is the generation of a shard's ownership. It grows at every grant and fences the owner before (spec 2.1). 0: never granted.
type Epoch uint64

// Incarnation is the UUID that a node makes at each start; with the name it identifies one process.
type Incarnation [16]byte

// NewIncarnation makes a random (version 4) incarnation.
func NewIncarnation() Incarnation {
	var i Incarnation
	rand.Read(i[:]) // never fails: crypto/rand aborts the process instead
	i[6] = i[6]&0x0f | 0x40
	i[8] = i[8]&0x3f | 0x80
	return i
}

// IsZero says that no incarnation is set.
func (i Incarnation) IsZero() bool { return i == Incarnation{} }

// String gives the UUID's usual text, 36 characters.
func (i Incarnation) String() string {
	var b [36]byte
	hex.Encode(b[0:8], i[0:4])
	hex.Encode(b[9:13], i[4:6])
	hex.Encode(b[14:18], i[6:8])
	hex.Encode(b[19:23], i[8:10])
	hex.Encode(b[24:36], i[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// MarshalText makes JSON show the text form.
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (i *Incarnation) UnmarshalText(b []byte) error {
	v, err := ParseIncarnation(string(b))
	if err == nil {
		*i = v
	}
	return err
}

// ParseIncarnation reads a UUID in its usual text form.
func ParseIncarnation(s string) (Incarnation, error) {
	var i Incarnation
	bad := len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-'
	if !bad {
		digits := strings.ReplaceAll(s, "-", "")
		_, err := hex.Decode(i[:], []byte(digits))
		bad = err != nil || len(digits) != 32
	}
	if bad {
		return Incarnation{}, fmt.Errorf("%q is no UUID: want 8-4-4-4-12 hexadecimal digits", s)
	}
	return i, nil
}

// Member is one process of the cluster: the unit of authentication, leases and ownership.
type Member struct {
	Node        NodeID      `cbor:"0,keyasint,omitempty" json:"node"`
	Incarnation Incarnation `cbor:"1,keyasint,omitzero" json:"incarnation"`
}

// IsZero says that no member is meant.
func (m Member) IsZero() bool { return m == Member{} }

// String gives name@first-eight-digits, for logs.
func (m Member) String() string {
	if m.IsZero() {
		return "none"
	}
	return string(m.Node) + "@" + m.Incarnation.String()[:8]
}

// Less orders members by name bytewise, then incarnation: the one order used wherever a set of members leaves a pure machine.
func (m Member) Less(o Member) bool {
	if m.Node != o.Node {
		return m.Node < o.Node
	}
	return string(m.Incarnation[:]) < string(o.Incarnation[:])
}

// Revision orders states of the shard map: the raft index at which the map last changed, and the term of that entry. Indices alone
// order revisions of one cluster; the term tells who published.
type Revision struct {
	Term  uint64 `cbor:"0,keyasint,omitempty" json:"term"`
	Index uint64 `cbor:"1,keyasint,omitempty" json:"index"`
}

// String gives term/index.
func (r Revision) String() string { return fmt.Sprintf("%d/%d", r.Term, r.Index) }

// Less says whether r is older than o.
func (r Revision) Less(o Revision) bool { return r.Index < o.Index }

// Instant is a point on this machine's CLOCK_BOOTTIME in nanoseconds. Instants of two machines are never compared (spec 2.1).
type Instant int64

// Add gives the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub gives the time from o to i.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// MaxEntityID is the longest entity id, in bytes (spec 2.4).
const MaxEntityID = 1024

// ErrEntityID says that an id is empty or longer than MaxEntityID.
var ErrEntityID = errors.New("entity id must have 1 to 1024 bytes")

// CheckEntityID returns an error that wraps ErrEntityID and tells the length, or nil. Any bytes are legal.
func CheckEntityID(id string) error {
	if len(id) == 0 || len(id) > MaxEntityID {
		return fmt.Errorf("%w, this one has %d", ErrEntityID, len(id))
	}
	return nil
}
