package controlplane

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// apply makes a change as raft would.
func (c change) apply(t *testing.T, seats []seat) (out []seat) {
	t.Helper()
	at := slices.IndexFunc(seats, func(s seat) bool { return s.ID == c.ID })
	out = slices.Clone(seats)
	switch c.Op {
	case addVoter:
		require.GreaterOrEqual(t, at, 0, "a voter that was no spare")
		out[at].Voter = true
	case demoteVoter:
		require.GreaterOrEqual(t, at, 0)
		out[at].Voter = false
	case removeServer:
		require.GreaterOrEqual(t, at, 0)
		out = slices.Delete(out, at, at+1)
	default:
		t.Fatalf("%v", c)
	}
	return out
}

// quorum counts without the code under test.
func quorum(seats []seat, live map[sharding.Incarnation]bool) (all, up int) {
	for _, s := range seats {
		if s.Voter {
			all++
			if live[s.ID] {
				up++
			}
		}
	}
	return all, up
}

// Spec 2.1, 5.1: over every configuration of up to seven servers, of which any are dead, ended, or no voters, and any one leaves or is forgotten: after each change
// that is allowed a majority of the voters is live if it was before, also once the steward has made what it wants to; a removal that is refused would have
// left none, and could not be helped by a spare. A dead server is never kept where there is a majority.
func TestNoChangeCostsTheQuorum(t *testing.T) {
	const kinds = 6
	type kind struct{ voter, up, ready, ended bool }
	all := [kinds]kind{{voter: true, up: true}, {voter: true}, {voter: true, ended: true}, {up: true, ready: true}, {up: true}, {}}
	leader := sid(1)
	allowed, refused := 0, 0
	var servers func(of []kind)
	servers = func(of []kind) {
		seats, known, live := []seat{voter(1)}, []Server{up(1)}, map[sharding.Incarnation]bool{leader: true}
		for i, k := range of {
			s := up(byte(i + 2))
			s.Up, s.Ready, s.Left = k.up, k.ready, k.ended
			if !k.up {
				s.Gone = time.Minute
			}
			live[s.ID] = k.up
			known = append(known, s)
			seats = append(seats, spareOf(byte(i+2)).withVote(k.voter))
		}
		for i := range seats {
			id := seats[i].ID
			voters, alive := quorum(seats, live)
			had := 2*alive > voters
			now, done := seats, false
			for step := 0; !done; step++ {
				require.Less(t, step, 3, "%v without %v", seats, id)
				c, err := planRemoval(now, known, id, live)
				if e, ok := errors.AsType[*QuorumError](err); ok {
					refused++
					require.False(t, had && !live[id], "a dead server is kept: %v", seats)
					if had {
						without := change{Op: removeServer, ID: id}.apply(t, now)
						v, a := quorum(without, live)
						require.LessOrEqual(t, 2*a, v, "refused for nothing: %v without %v", seats, id)
						require.Equal(t, v-a, len(e.Silent))
						ready := slices.ContainsFunc(seats, func(s seat) bool { return !s.Voter && s.ID != id && known[s.ID[0]-1].Ready })
						require.True(t, !ready || voters >= MaxVoters, "a spare could vote: %v without %v", seats, id)
					}
					now = seats
					break
				}
				require.NoError(t, err)
				require.True(t, had, "a change that cannot be committed: %v without %v", seats, id)
				allowed++
				now = c.apply(t, now)
				v, a := quorum(now, live)
				require.Greater(t, 2*a, v, "%v without %v: %v costs the quorum", seats, id, c)
				require.True(t, c.Op != addVoter || v <= MaxVoters, "%d voters", v)
				done = c.Op == removeServer
			}
			if !had || done && id == leader { // who leads then plans with itself as the leader, as below
				continue
			}
			still := slices.Clone(known)
			still[slices.IndexFunc(known, func(s Server) bool { return s.ID == id })].Leaving = done
			for step := 0; ; step++ {
				require.Less(t, step, 20, "%v", seats)
				c := planChange(now, still, leader, 10*time.Second)
				if c.Op == noChange {
					break
				}
				require.NoError(t, checkQuorum(now, live, c), "the steward plans what it may not do: %v in %v", c, now)
				now = c.apply(t, now)
				v, a := quorum(now, live)
				require.Greater(t, 2*a, v, "%v costs the quorum of %v", c, seats)
			}
		}
		if len(of) < 6 {
			for _, k := range all {
				servers(append(slices.Clone(of), k))
			}
		}
	}
	servers(nil)
	assert.Greater(t, allowed, 1000)
	assert.Greater(t, refused, 100)
}

// The cases that operators meet (spec 5.1).
func TestPlanRemoval(t *testing.T) {
	lives := func(ids ...byte) map[sharding.Incarnation]bool {
		out := map[sharding.Incarnation]bool{}
		for _, n := range ids {
			out[sid(n)] = true
		}
		return out
	}
	three := []seat{voter(1), voter(2), voter(3)}
	for name, c := range map[string]struct {
		seats   []seat
		spares  []byte // ready
		live    map[sharding.Incarnation]bool
		id      byte
		want    change
		refused *QuorumError
	}{
		"one of three":                    {three, nil, lives(1, 2, 3), 2, change{Op: removeServer, ID: sid(2)}, nil},
		"the leader of three":             {three, nil, lives(1, 2, 3), 1, change{Op: removeServer, ID: sid(1)}, nil},
		"a dead one":                      {three, nil, lives(1, 2), 3, change{Op: removeServer, ID: sid(3)}, nil},
		"a live one beside a dead one":    {three, nil, lives(1, 2), 2, change{}, &QuorumError{Server: sid(2), Op: "remove", Voters: 2, Silent: []sharding.Incarnation{sid(3)}}},
		"the leader beside a dead one":    {three, nil, lives(1, 2), 1, change{}, &QuorumError{Server: sid(1), Op: "remove", Voters: 2, Silent: []sharding.Incarnation{sid(3)}}},
		"but a spare helps":               {append(three[:3:3], spareOf(4)), []byte{4}, lives(1, 2, 4), 2, change{addVoter, sid(4), "e"}, nil},
		"one that is not ready does not":  {append(three[:3:3], spareOf(4)), nil, lives(1, 2, 4), 2, change{}, &QuorumError{Server: sid(2), Op: "remove", Voters: 2, Silent: []sharding.Incarnation{sid(3)}}},
		"the only voter":                  {[]seat{voter(1)}, nil, lives(1), 1, change{}, &QuorumError{Server: sid(1), Op: "remove"}},
		"the only voter, with a spare":    {[]seat{voter(1), spareOf(2)}, []byte{2}, lives(1, 2), 1, change{addVoter, sid(2), "c"}, nil},
		"then it":                         {[]seat{voter(1), voter(2)}, nil, lives(1, 2), 1, change{Op: removeServer, ID: sid(1)}, nil},
		"a spare":                         {append(three[:3:3], spareOf(4)), []byte{4}, lives(1, 2, 3, 4), 4, change{Op: removeServer, ID: sid(4)}, nil},
		"a stranger":                      {three, nil, lives(1, 2, 3), 9, change{}, nil},
		"without a majority nothing goes": {three, nil, lives(1), 3, change{}, &QuorumError{Server: sid(3), Op: "remove", Voters: 2, Silent: []sharding.Incarnation{sid(2)}}},
	} {
		t.Run(name, func(t *testing.T) {
			var known []Server
			for _, s := range c.seats {
				k := up(s.ID[0])
				k.Up, k.Ready = c.live[s.ID], slices.Contains(c.spares, s.ID[0])
				known = append(known, k)
			}
			got, err := planRemoval(c.seats, known, sid(c.id), c.live)
			if c.refused != nil {
				e, ok := errors.AsType[*QuorumError](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, c.refused, e)
				assert.NotEmpty(t, e.Error())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
