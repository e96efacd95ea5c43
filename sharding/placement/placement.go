// Package placement checks what a strategy answered before anyone acts on it
// (spec 1.3), and holds the one rule for a single move that the host applies to
// an answer and the coordinator applies again to a log entry. It is pure and
// imports pluginapi alone.
package placement

import (
	"fmt"

	"github.com/droverhq/drover/pluginapi"
)

// Rule says what is wrong with a move or a home. The names are stable.
type Rule uint8

// The rules.
const (
	UnknownShard Rule = iota + 1 // the type has no such shard
	UnknownNode                  // the cluster has no such node
	NotCandidate                 // the node may not get shards
	Busy                         // the shard is in handoff
	Waiting                      // the shard's state is on a node that is away
	Pinned                       // the host keeps the shard where it is
	Homeless                     // the shard has no home that it could move from
	PresentOwner                 // the shard is there already
	Duplicate                    // the shard is moved twice in one answer
	WrongLength                  // not one home a shard asked for
)

var ruleNames = [...]string{"", "unknown-shard", "unknown-node", "not-a-candidate", "busy", "waiting", "pinned",
	"homeless", "present-owner", "duplicate", "wrong-length"}

// String returns the rule's stable name.
func (r Rule) String() string {
	if r > 0 && int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return fmt.Sprintf("rule(%d)", uint8(r))
}

// Error is an answer, or a move, that was refused.
type Error struct {
	Rule  Rule
	Index int    // place in the answer, from 0
	Shard uint32 // the shard meant
	Node  int    // the target meant, or pluginapi.NoTarget
	Msg   string // names shard and node
}

// Error implements error.
func (e *Error) Error() string { return e.Msg }

// View is what the rule for a move needs to know of the present state.
type View interface {
	NumShards() uint32
	NumNodes() int
	NodeName(node int) string
	Owner(shard uint32) int // node, or pluginapi.NoTarget
	Busy(shard uint32) bool
	Waiting(shard uint32) bool
	Pinned(shard uint32) bool
	Candidate(node int) bool // may get shards
}

// CheckMove tells whether the shard may be moved to target, or, with
// pluginapi.NoTarget, be freed for allocate. The error is an *Error.
func CheckMove(v View, shard uint32, target int) error {
	if shard >= v.NumShards() {
		return unknownShard(v, shard, target)
	}
	owner := v.Owner(shard)
	switch {
	case v.Busy(shard):
		return refuse(Busy, shard, target, "shard %d is in handoff already", shard)
	case v.Waiting(shard):
		return refuse(Waiting, shard, target, "shard %d waits for a node that is away", shard)
	case v.Pinned(shard):
		return refuse(Pinned, shard, target, "shard %d is pinned", shard)
	case owner == pluginapi.NoTarget:
		return refuse(Homeless, shard, target, "shard %d has no home to move from: it gets one from allocate", shard)
	}
	if target == pluginapi.NoTarget {
		return nil
	}
	if err := checkTarget(v, shard, target); err != nil {
		return err
	}
	if owner == target {
		return refuse(PresentOwner, shard, target, "shard %d is on %s already", shard, v.NodeName(target))
	}
	return nil
}

func unknownShard(v View, shard uint32, target int) error {
	return refuse(UnknownShard, shard, target, "shard %d: the type has shards 0 to %d", shard, int64(v.NumShards())-1)
}

func checkTarget(v View, shard uint32, target int) error {
	if target < 0 || target >= v.NumNodes() {
		return refuse(UnknownNode, shard, target, "shard %d to node %d: there are nodes 0 to %d", shard, target, v.NumNodes()-1)
	}
	if !v.Candidate(target) {
		return refuse(NotCandidate, shard, target, "shard %d to %s: that node is no candidate", shard, v.NodeName(target))
	}
	return nil
}

func refuse(r Rule, shard uint32, node int, format string, args ...any) error {
	return &Error{Rule: r, Shard: shard, Node: node, Msg: fmt.Sprintf(format, args...)}
}

// CheckPlan is Checker.Plan for one answer.
func CheckPlan(s *pluginapi.Snapshot, moves []pluginapi.Move) ([]pluginapi.Move, error) {
	return new(Checker).Plan(s, moves)
}

// CheckHomes is Checker.Homes for one answer.
func CheckHomes(s *pluginapi.Snapshot, shards []uint32, homes []int) error {
	return new(Checker).Homes(s, shards, homes)
}

// Checker checks answers one after another, and allocates nothing once it has
// seen one about a cluster as large. Its zero value is ready. It is not safe for
// concurrent use.
type Checker struct {
	board board
	seen  bits
}

// Plan checks every move of an answer to rebalance, and returns those that
// the limit lets through: the first ones, in the strategy's order. A bad answer
// is refused whole. The error is an *Error.
func (c *Checker) Plan(s *pluginapi.Snapshot, moves []pluginapi.Move) ([]pluginapi.Move, error) {
	if len(moves) == 0 {
		return nil, nil
	}
	b := &c.board
	b.show(s)
	defer b.show(nil)
	c.seen = c.seen.empty(len(s.Owners))
	seen := c.seen
	for i, m := range moves {
		err := CheckMove(b, m.Shard, m.Target)
		if err == nil && seen.has(m.Shard) {
			err = refuse(Duplicate, m.Shard, m.Target, "shard %d is moved twice", m.Shard)
		}
		if err != nil {
			return nil, at(err, "move", i)
		}
		seen.set(m.Shard)
	}
	if uint64(len(moves)) > s.MaxMoves {
		moves = moves[:s.MaxMoves]
	}
	return moves, nil
}

// CheckHome tells whether the shard may get target as its home. The error is an
// *Error.
func CheckHome(v View, shard uint32, target int) error {
	if shard >= v.NumShards() {
		return unknownShard(v, shard, target)
	}
	return checkTarget(v, shard, target)
}

// Homes checks an answer to allocate: one home for each shard asked for, a
// candidate or pluginapi.NoTarget. The error is an *Error.
func (c *Checker) Homes(s *pluginapi.Snapshot, shards []uint32, homes []int) error {
	if len(homes) != len(shards) {
		return refuse(WrongLength, 0, pluginapi.NoTarget, "%d homes for %d shards", len(homes), len(shards))
	}
	b := &c.board
	b.show(s)
	defer b.show(nil)
	for i, node := range homes {
		if node == pluginapi.NoTarget {
			continue
		}
		if err := CheckHome(b, shards[i], node); err != nil {
			return at(err, "home", i)
		}
	}
	return nil
}

func at(err error, what string, i int) error {
	e := err.(*Error)
	e.Index = i
	e.Msg = fmt.Sprintf("%s %d: %s", what, i, e.Msg)
	return e
}

// board is the View of a snapshot, with sets that it uses again. Sets that the snapshot leaves empty cost
// nothing: most snapshots have no busy, waiting or pinned shard.
type board struct {
	s                                *pluginapi.Snapshot
	busy, waiting, pinned, candidate bits
}

// show makes the board that of s; nil lets go of the last one.
func (b *board) show(s *pluginapi.Snapshot) {
	b.s = s
	if s == nil {
		return
	}
	b.candidate = b.candidate.empty(len(s.Nodes))
	for _, c := range s.Candidates {
		if c >= 0 && c < len(s.Nodes) {
			b.candidate.set(uint32(c)) // Serf's state is a hint: a suspect stays a candidate until its lease lapses (spec 2.2)
		}
	}
	b.busy, b.waiting, b.pinned = b.busy[:0], b.waiting[:0], b.pinned[:0]
	if len(s.Busy) > 0 {
		b.busy = b.busy.empty(len(s.Owners))
		for _, x := range s.Busy {
			b.busy.set(x.Shard)
		}
	}
	if len(s.Waiting) > 0 {
		b.waiting = b.waiting.empty(len(s.Owners))
		for _, x := range s.Waiting {
			b.waiting.set(x)
		}
	}
	if len(s.Pinned) > 0 {
		b.pinned = b.pinned.empty(len(s.Owners))
		for _, x := range s.Pinned {
			b.pinned.set(x.Shard)
		}
	}
}

func (b *board) NumShards() uint32         { return uint32(len(b.s.Owners)) }
func (b *board) NumNodes() int             { return len(b.s.Nodes) }
func (b *board) NodeName(node int) string  { return b.s.Nodes[node].Name }
func (b *board) Owner(shard uint32) int    { return b.s.OwnerOf(shard) }
func (b *board) Busy(shard uint32) bool    { return b.busy.has(shard) }
func (b *board) Waiting(shard uint32) bool { return b.waiting.has(shard) }
func (b *board) Pinned(shard uint32) bool  { return b.pinned.has(shard) }
func (b *board) Candidate(node int) bool   { return b.candidate.has(uint32(node)) }

// bits is a set of shards or nodes; what lies beyond its size is never in it.
type bits []uint64

// empty returns an empty set with room for the numbers below n, in b's memory
// if that is enough.
func (b bits) empty(n int) bits {
	words := (n + 63) / 64
	if words > cap(b) {
		return make(bits, words)
	}
	b = b[:words]
	clear(b)
	return b
}

func (b bits) has(i uint32) bool {
	w := int(i >> 6)
	return w < len(b) && b[w]&(1<<(i&63)) != 0
}

func (b bits) set(i uint32) {
	if w := int(i >> 6); w < len(b) {
		b[w] |= 1 << (i & 63)
	}
}
