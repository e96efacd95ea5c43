package controlplane

import (
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
)

// MaxVoters bounds the voters (spec 2.1).
const MaxVoters = 5

// Server is a coordinator-capable node as membership knows it.
type Server struct {
	ID      sharding.Incarnation // the raft server's UUID
	Address string               // of its transport
	Up      bool
	Left    bool          // ended by SIGTERM: it stays a voter, and is not replaced (spec 5.1)
	Gone    time.Duration // how long it has been failed
	// Registered: its node told the coordinator of ID and Address over an authenticated connection. Membership alone is a hint that anybody may give:
	// without it no server enters, and none is sought at another address.
	Registered bool
	Leaving    bool // its node leaves: it is taken in no more, and keeps what seat it has until it is removed
	Ready      bool // has caught up with the log and holds the active modules, so that it may vote
}

// isAt says that the server is there, by its node's own word.
func (s Server) isAt(address string) bool { return s.Up && s.Registered && s.Address == address }

// seat is a server in raft's configuration.
type seat struct {
	ID      sharding.Incarnation
	Address string
	Voter   bool
}

// change is one membership change of raft.
type change struct {
	Op      changeOp
	ID      sharding.Incarnation
	Address string
}

type changeOp uint8

const (
	noChange changeOp = iota
	addNonvoter
	addVoter
	demoteVoter
	removeServer
)

// String names the change for logs.
func (o changeOp) String() string {
	return [...]string{"none", "add as non-voter", "make a voter", "make a non-voter", "remove"}[o]
}

// planChange gives the next change of raft's configuration, or noChange. It is called again after each: changes come one at a time. leader
// is this server. A voter that has been failed for longer than grace gives its seat to a ready spare; without a spare it keeps it, because a
// seat less makes the quorum no easier to reach for those who are left.
//
// The number of voters is odd and at most MaxVoters: the largest that the sound voters and the ready spares fill. On the way from one odd number to the
// next it is even for the length of one change.
func planChange(seats []seat, known []Server, leader sharding.Incarnation, grace time.Duration) change {
	known = slices.DeleteFunc(slices.Clone(known), func(s Server) bool { return s.Leaving })
	byID := make(map[sharding.Incarnation]Server, len(known))
	claims := map[sharding.Incarnation]int{} // by how many nodes that are up; more than one: one of them has a copy of the other's data_dir, or lies
	for _, s := range known {
		if s.Up && s.Registered {
			claims[s.ID]++
		}
		if !byID[s.ID].Registered {
			byID[s.ID] = s
		}
	}
	seated := make(map[sharding.Incarnation]seat, len(seats))
	voters, dead := 0, 0
	var deadest, last, spare sharding.Incarnation
	for _, s := range sorted(seats) {
		seated[s.ID] = s
		k, isKnown := byID[s.ID]
		switch {
		case s.Voter:
			voters++
			if s.ID != leader && (isKnown && !k.Up && !k.Left && k.Gone > grace) {
				dead++
				if deadest.IsZero() || k.Gone > byID[deadest].Gone {
					deadest = s.ID
				}
			} else if s.ID != leader {
				last = s.ID
			}
		case isKnown && k.Up && k.Ready && spare.IsZero():
			spare = s.ID
		}
	}
	spares := 0
	for _, s := range seats {
		if k := byID[s.ID]; !s.Voter && k.Up && k.Ready {
			spares++
		}
	}
	// A server that moved keeps its seat at its new address; a new one enters as a non-voter. Whoever sat at the address before is not there any
	// more: raft admits no address twice, so that seat goes first. Should its server live elsewhere it enters again. If it is there after all, one of the two
	// advertises the other's address, and who sits stays.
	for _, k := range sortedServers(known) {
		s, ok := seated[k.ID]
		if !k.Up || !k.Registered || k.Address == "" || ok && s.Address == k.Address || k.ID == leader || claims[k.ID] > 1 {
			continue
		}
		at := slices.IndexFunc(seats, func(o seat) bool { return o.Address == k.Address && o.ID != k.ID })
		switch {
		case at >= 0 && (seats[at].ID == leader || byID[seats[at].ID].isAt(k.Address)):
		case at >= 0:
			return change{Op: removeServer, ID: seats[at].ID}
		case ok && s.Voter:
			return change{addVoter, k.ID, k.Address}
		default:
			return change{addNonvoter, k.ID, k.Address}
		}
	}
	target := min(voters-dead+spares, MaxVoters)
	if target%2 == 0 {
		target--
	}
	switch {
	case dead > 0 && spares > 0:
		return change{Op: demoteVoter, ID: deadest}
	case voters < target && spares > 0:
		return change{addVoter, spare, seated[spare].Address}
	case voters > target && voters%2 == 0 && dead == 0 && !last.IsZero() && allUp(seats, byID, leader):
		return change{Op: demoteVoter, ID: last} // the other half of a pair is gone: back to an odd number
	}
	return change{}
}

// allUp says that every voter is there: only then may a sound one lose its seat.
func allUp(seats []seat, byID map[sharding.Incarnation]Server, leader sharding.Incarnation) bool {
	for _, s := range seats {
		if s.Voter && s.ID != leader && !byID[s.ID].Up {
			return false
		}
	}
	return true
}

func sorted(seats []seat) []seat {
	out := slices.Clone(seats)
	slices.SortFunc(out, func(a, b seat) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return out
}

func sortedServers(known []Server) []Server {
	out := slices.Clone(known)
	slices.SortFunc(out, func(a, b Server) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return out
}
