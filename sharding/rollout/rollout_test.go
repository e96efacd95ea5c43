package rollout

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/sharding"
)

func server(i int) sharding.Incarnation { return sharding.Incarnation{byte(i + 1)} }

func servers(n int) (out []sharding.Incarnation) {
	for i := range n {
		out = append(out, server(i))
	}
	return out
}

func text(cmds []Command) string {
	var out []string
	for _, c := range cmds {
		switch c := c.(type) {
		case Store:
			out = append(out, fmt.Sprintf("store %d", c.Server[0]-1))
		case End:
			out = append(out, fmt.Sprintf("end %s: %v", c.Step, c.Err))
		default:
			out = append(out, strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c), "rollout.")))
		}
	}
	return strings.Join(out, ", ")
}

// Spec 1.4: admitted and compiled, stored by digest on a majority of the voters, then activated by one log entry. One voter that is down blocks nothing; a
// step that fails ends the change and says which.
func TestSteps(t *testing.T) {
	broken := errors.New("broken")
	begun := []any{Began{}, "fetch", Fetched{}, "admit", Admitted{}, "store 0", Stored{Server: server(0)}, "countvoters"}
	for name, story := range map[string][]any{
		"one voter":         {Counted{Voters: servers(1)}, "order", Ordered{}, "end ordering: <nil>"},
		"one of three down": {Counted{Voters: servers(3)}, "store 1, store 2", Stored{server(2), broken}, "", Stored{Server: server(1)}, "countvoters", Counted{Voters: servers(3)}, "order", Ordered{}, "end ordering: <nil>"},
		"two of three down": {Counted{Voters: servers(3)}, "store 1, store 2", Stored{server(2), broken}, "", Stored{server(1), broken}, "end spreading: only 1 of 3 voters could store the module"},
		"two voters come while it spreads": {Counted{Voters: servers(3)}, "store 1, store 2", Stored{Server: server(1)}, "countvoters", Stored{server(2), broken}, "", Counted{Voters: servers(5)},
			"store 3, store 4", Stored{Server: server(3)}, "countvoters", Counted{Voters: servers(5)}, "order"},
		"a voter's late answer":       {Counted{Voters: servers(3)}, "store 1, store 2", Stored{Server: server(1)}, "countvoters", Stored{Server: server(2)}, "", Counted{Voters: servers(3)}, "order", Stored{Server: server(2)}, "", Counted{Voters: servers(5)}, ""},
		"voters cannot be told":       {Counted{Err: broken}, "end spreading: broken"},
		"the entry is refused":        {Counted{Voters: servers(1)}, "order", Ordered{broken}, "end ordering: broken", Ordered{}, ""},
		"this server does not vote":   {Counted{Voters: servers(4)[1:]}, "store 1, store 2, store 3", Stored{Server: server(1)}, "", Stored{Server: server(2)}, "countvoters", Counted{Voters: servers(4)[1:]}, "order"},
		"it answers twice":            {Counted{Voters: servers(5)}, "store 1, store 2, store 3, store 4", Stored{Server: server(1)}, "", Stored{Server: server(1)}, "", Stored{Server: server(2)}, "countvoters"},
		"nobody asked for its answer": {Counted{Voters: servers(3)}, "store 1, store 2", Stored{Server: server(7)}, "", Ordered{}, "", Fetched{broken}, "", Admitted{broken}, ""},
	} {
		t.Run(name, func(t *testing.T) { play(t, append(append([]any{}, begun...), story...)) })
	}
	play(t, []any{Began{}, "fetch", Fetched{broken}, "end fetching: broken", Fetched{}, ""})
	play(t, []any{Began{}, "fetch", Fetched{}, "admit", Admitted{broken}, "end admitting: broken"})
	play(t, []any{Began{}, "fetch", Fetched{}, "admit", Admitted{}, "store 0", Stored{server(0), broken}, "end storing: broken"})
}

func play(t *testing.T, story []any) {
	t.Helper()
	m := New(server(0), Mutations{})
	for i := 0; i < len(story); i += 2 {
		require.Equal(t, story[i+1], text(m.Step(story[i].(Event))), "%d: %T", i/2, story[i])
	}
}

// Spec 1.4: whatever answers come in, in whatever order: nothing is ordered that a majority of the voters does not have, and a majority suffices.
func TestOrderedOnlyWithAMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "voters")
		m := New(server(0), Mutations{})
		stored := map[sharding.Incarnation]bool{}
		queue := []Event{Began{}}
		ordered, ended := false, false
		down := map[int]bool{}
		for len(queue) > 0 {
			i := rapid.IntRange(0, len(queue)-1).Draw(t, "next")
			ev := queue[i]
			queue = append(queue[:i], queue[i+1:]...)
			if s, ok := ev.(Stored); ok && s.Err == nil {
				stored[s.Server] = true
			}
			for _, c := range m.Step(ev) {
				switch c := c.(type) {
				case Fetch:
					queue = append(queue, Fetched{})
				case Admit:
					queue = append(queue, Admitted{})
				case Store:
					var err error
					if i := int(c.Server[0]); i > 1 && rapid.Bool().Draw(t, "down") {
						err, down[i] = errors.New("down"), true
					}
					queue = append(queue, Stored{c.Server, err})
				case CountVoters:
					queue = append(queue, Counted{Voters: servers(n)})
				case Order:
					ordered = true
					have := 0
					for _, v := range servers(n) {
						if stored[v] {
							have++
						}
					}
					if 2*have <= n {
						t.Fatalf("ordered with the module on %d of %d voters", have, n)
					}
					queue = append(queue, Ordered{})
				case End:
					ended = true
				}
			}
		}
		if !ended {
			t.Fatal("the change has no end")
		}
		if 2*(n-len(down)) > n && !ordered {
			t.Fatalf("%d of %d voters are down, and nothing is ordered", len(down), n)
		}
	})
}

// The mutation of the simulation does what it says.
func TestWithoutAMajority(t *testing.T) {
	m := New(server(0), Mutations{Majority: true})
	m.Step(Began{})
	m.Step(Fetched{})
	m.Step(Admitted{})
	assert.Equal(t, "order", text(m.Step(Stored{Server: server(0)})))
}
