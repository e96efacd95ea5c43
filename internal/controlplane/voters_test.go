package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/sharding"
)

func sid(n byte) sharding.Incarnation { return sharding.Incarnation{n} }

func up(n byte) Server {
	return Server{ID: sid(n), Address: string('a' + rune(n)), Up: true, Registered: true, Ready: true}
}

func voter(n byte) seat   { return seat{ID: sid(n), Address: string('a' + rune(n)), Voter: true} }
func spareOf(n byte) seat { return seat{ID: sid(n), Address: string('a' + rune(n))} }

// Spec 2.1: an odd number of voters, at most five; a dead one is replaced where a spare exists.
func TestPlanChange(t *testing.T) {
	failed := func(n byte) Server { return Server{ID: sid(n), Address: "x", Gone: time.Minute} }
	for name, c := range map[string]struct {
		seats []seat
		known []Server
		want  change
	}{
		"alone":                           {[]seat{voter(1)}, []Server{up(1)}, change{}},
		"a new server enters":             {[]seat{voter(1)}, []Server{up(1), up(2)}, change{addNonvoter, sid(2), "c"}},
		"a stranger does not":             {[]seat{voter(1)}, []Server{up(1), {ID: sid(2), Address: "c", Up: true}}, change{}},
		"a stranger takes no seat over":   {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), up(2), up(3), {ID: sid(2), Address: "evil", Up: true}}, change{}},
		"nor a dead one's":                {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), {ID: sid(2), Address: "evil", Up: true}, up(3)}, change{}},
		"a wiped disk frees its address":  {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), failed(2), up(3), {ID: sid(9), Address: "c", Up: true, Registered: true}}, change{Op: removeServer, ID: sid(2)}},
		"and then enters":                 {[]seat{voter(1), voter(3)}, []Server{up(1), up(3), {ID: sid(9), Address: "c", Up: true, Registered: true}}, change{addNonvoter, sid(9), "c"}},
		"nobody takes the leader's":       {[]seat{voter(1)}, []Server{up(1), {ID: sid(9), Address: "b", Up: true, Registered: true}}, change{}},
		"one that moved goes for it":      {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), {ID: sid(2), Address: "d", Up: true, Registered: true}, {ID: sid(3), Address: "c", Up: true, Registered: true}}, change{Op: removeServer, ID: sid(3)}},
		"nor that of one who is there":    {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), up(2), up(3), {ID: sid(9), Address: "c", Up: true, Registered: true}}, change{}},
		"nor by its name":                 {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), up(2), up(3), {ID: sid(2), Address: "evil", Up: true, Registered: true}}, change{}},
		"two stay at one voter":           {[]seat{voter(1), spareOf(2)}, []Server{up(1), up(2)}, change{}},
		"three become voters, first":      {[]seat{voter(1), spareOf(2), spareOf(3)}, []Server{up(1), up(2), up(3)}, change{addVoter, sid(2), "c"}},
		"three become voters, second":     {[]seat{voter(1), voter(2), spareOf(3)}, []Server{up(1), up(2), up(3)}, change{addVoter, sid(3), "d"}},
		"four stay at three":              {[]seat{voter(1), voter(2), voter(3), spareOf(4)}, []Server{up(1), up(2), up(3), up(4)}, change{}},
		"not ready: no vote":              {[]seat{voter(1), voter(2), spareOf(3)}, []Server{up(1), up(2), {ID: sid(3), Address: "d", Up: true}}, change{demoteVoter, sid(2), ""}},
		"dead, with a spare":              {[]seat{voter(1), voter(2), voter(3), spareOf(4)}, []Server{up(1), failed(2), up(3), up(4)}, change{demoteVoter, sid(2), ""}},
		"then the spare":                  {[]seat{voter(1), spareOf(2), voter(3), spareOf(4)}, []Server{up(1), failed(2), up(3), up(4)}, change{addVoter, sid(4), "e"}},
		"dead, without a spare":           {[]seat{voter(1), voter(2), voter(3)}, []Server{up(1), failed(2), up(3)}, change{}},
		"failed for a moment":             {[]seat{voter(1), voter(2), voter(3), spareOf(4)}, []Server{up(1), {ID: sid(2), Gone: time.Second}, up(3), up(4)}, change{}},
		"ended by SIGTERM stays":          {[]seat{voter(1), voter(2), voter(3), spareOf(4)}, []Server{up(1), {ID: sid(2), Left: true, Gone: time.Hour}, up(3), up(4)}, change{}},
		"never more than five":            {[]seat{voter(1), voter(2), voter(3), voter(4), voter(5), spareOf(6), spareOf(7)}, []Server{up(1), up(2), up(3), up(4), up(5), up(6), up(7)}, change{}},
		"a pair goes back to one":         {[]seat{voter(1), voter(2)}, []Server{up(1), up(2)}, change{demoteVoter, sid(2), ""}},
		"a pair with one away stays":      {[]seat{voter(1), voter(2)}, []Server{up(1), failed(2)}, change{}},
		"a voter at another address":      {[]seat{voter(1), {sid(2), "old", true}, voter(3)}, []Server{up(1), up(2), up(3)}, change{addVoter, sid(2), "c"}},
		"a spare at another address":      {[]seat{voter(1), {sid(2), "old", false}}, []Server{up(1), up(2)}, change{addNonvoter, sid(2), "c"}},
		"unknown to membership: it stays": {[]seat{voter(1), voter(2), voter(3), spareOf(4)}, []Server{up(1), up(3), up(4)}, change{}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, planChange(c.seats, c.known, sid(1), 10*time.Second))
		})
	}
}

func (s seat) withVote(v bool) seat { s.Voter = v; return s }

// From any start, with membership standing still, the changes end; each is one step; the leader keeps its vote; the end is odd where spares allow, and at most five.
func TestPlanChangeSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := byte(rapid.IntRange(1, 9).Draw(t, "servers"))
		var known []Server
		seats := []seat{voter(1)}
		known = append(known, up(1))
		for i := byte(2); i <= n; i++ {
			s := up(i)
			s.Up = rapid.Bool().Draw(t, "up")
			s.Ready = rapid.Bool().Draw(t, "ready")
			if !s.Up {
				s.Left = rapid.Bool().Draw(t, "left")
				s.Gone = rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "gone")
			}
			known = append(known, s)
			switch rapid.IntRange(0, 2).Draw(t, "seat") {
			case 1:
				seats = append(seats, spareOf(i))
			case 2:
				seats = append(seats, voter(i))
			}
		}
		voters := func() (all, alive int) {
			for _, s := range seats {
				if s.Voter {
					all++
					if known[s.ID[0]-1].Up {
						alive++
					}
				}
			}
			return
		}
		start, _ := voters()
		for step := 0; ; step++ {
			if step > 40 {
				t.Fatalf("does not settle: %v", seats)
			}
			c := planChange(seats, known, sid(1), 10*time.Second)
			if c.Op == noChange {
				break
			}
			_, aliveBefore := voters()
			at := -1
			for i, s := range seats {
				if s.ID == c.ID {
					at = i
				}
			}
			switch c.Op {
			case addNonvoter:
				if at >= 0 {
					t.Fatalf("%v is seated already", c.ID)
				}
				seats = append(seats, seat{c.ID, c.Address, false})
			case addVoter:
				seats[at] = seats[at].withVote(true)
			case demoteVoter:
				if c.ID == sid(1) {
					t.Fatal("the leader loses its vote")
				}
				seats[at] = seats[at].withVote(false)
			}
			all, alive := voters()
			if c.Op == addVoter && all > MaxVoters {
				t.Fatalf("%d voters", all)
			}
			if aliveBefore*2 > start && alive*2 <= all {
				t.Fatalf("the change %v leaves %d of %d voters alive: no quorum", c, alive, all)
			}
		}
		all, alive := voters()
		if all == alive && all <= MaxVoters && all%2 == 0 {
			t.Fatalf("settled at %d voters, all alive: %v", all, seats)
		}
	})
}
