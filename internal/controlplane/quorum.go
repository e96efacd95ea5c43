package controlplane

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/sharding"
)

// QuorumError refuses a change of the voters: raft goes by the new voters from the moment that they are in the leader's log, and without a live majority
// of them the change could neither be committed nor taken back.
type QuorumError struct {
	Server sharding.Incarnation   // whose seat was to change
	Op     string                 // what was to be done to it
	Voters int                    // that would be left
	Silent []sharding.Incarnation // of those, who do not answer
}

// Error says how many voters would answer.
func (e *QuorumError) Error() string {
	if e.Voters == 0 {
		return fmt.Sprintf("raft server %s is the only voter, and no other server is ready to vote", e.Server)
	}
	return fmt.Sprintf("%s raft server %s: only %d of the %d voters that would be left answer: no quorum", e.Op, e.Server, e.Voters-len(e.Silent), e.Voters)
}

// votersAfter lists the voters once a change is made.
func votersAfter(seats []seat, c change) (out []sharding.Incarnation) {
	for _, s := range seats {
		if s.Voter && (s.ID != c.ID || c.Op != demoteVoter && c.Op != removeServer) {
			out = append(out, s.ID)
		}
	}
	if c.Op == addVoter && !slices.Contains(out, c.ID) {
		out = append(out, c.ID)
	}
	return out
}

// checkQuorum refuses a change after which no majority of the voters would be live, or which no majority is there to commit. live is as raft's leader sees
// it; the leader itself is live.
func checkQuorum(seats []seat, live map[sharding.Incarnation]bool, c change) error {
	for _, voters := range [][]sharding.Incarnation{votersAfter(seats, c), votersAfter(seats, change{})} {
		silent := slices.DeleteFunc(slices.Clone(voters), func(id sharding.Incarnation) bool { return live[id] })
		if 2*(len(voters)-len(silent)) <= len(voters) {
			return &QuorumError{Server: c.ID, Op: c.Op.String(), Voters: len(voters), Silent: silent}
		}
	}
	return nil
}

// planRemoval gives the next change on the way to a configuration without a server, noChange once it has none. Where the server is a live voter of an odd
// number a ready spare is made a voter first: those that are left then bear as many losses as before. It is called again after that, and refuses with a
// QuorumError.
func planRemoval(seats []seat, known []Server, id sharding.Incarnation, live map[sharding.Incarnation]bool) (change, error) {
	at := slices.IndexFunc(seats, func(s seat) bool { return s.ID == id })
	if at < 0 {
		return change{}, nil
	}
	c := change{Op: removeServer, ID: id}
	if voters := len(votersAfter(seats, change{})); seats[at].Voter && live[id] && voters%2 == 1 && voters < MaxVoters {
		for _, s := range sorted(seats) {
			if !s.Voter && s.ID != id && live[s.ID] && slices.ContainsFunc(known, func(k Server) bool { return k.ID == s.ID && k.Ready && !k.Leaving && k.isAt(s.Address) }) {
				c = change{addVoter, s.ID, s.Address}
				break
			}
		}
	}
	return c, checkQuorum(seats, live, c)
}
