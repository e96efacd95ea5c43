// Package answers holds right answers of the built-in strategies: for an input, the decision. The same table is run
// against the pure packages and against their wasm, so that the two cannot drift apart. It is for tests.
package answers

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
)

//go:embed answers.json
var table []byte

// Case is one right answer.
type Case struct {
	Name     string
	Strategy string // the built-in's name
	Op       pluginapi.Op
	Snapshot pluginapi.Snapshot
	Shards   []uint32 // of an allocate

	Homes []int            // wanted of an allocate
	Moves []pluginapi.Move // wanted of a rebalance, without reasons
	After []int            // wanted shards a node once the moves are made; nil where not told
	Error string           // wanted instead: a part of the failure's message
}

// row is a case as the file has it. Input is a snapshot file of spec 1.6, or counts stand for one: nodes A, B, C, … with
// so many shards each, numbered from 0 in ascending order.
type row struct {
	Name     string          `json:"name"`
	Strategy string          `json:"strategy"`
	Counts   []int           `json:"counts"`
	Input    map[string]any  `json:"input"`
	Config   map[string]any  `json:"config"`
	Homes    *[]any          `json:"homes"`
	Moves    *[]wantedMove   `json:"moves"`
	After    []int           `json:"after"`
	Error    string          `json:"error"`
	Comment  json.RawMessage `json:"why"`
}

// wantedMove is [shard, name of the target].
type wantedMove struct {
	shard  uint32
	target string
}

func (m *wantedMove) UnmarshalJSON(data []byte) error {
	pair := [...]any{&m.shard, &m.target}
	into := pair[:]
	if err := json.Unmarshal(data, &into); err != nil {
		return err
	}
	if len(into) != len(pair) {
		return fmt.Errorf("a move is [shard, target], got %s", data)
	}
	return nil
}

// All returns the table.
func All() ([]Case, error) {
	d := json.NewDecoder(strings.NewReader(string(table)))
	d.DisallowUnknownFields()
	d.UseNumber()
	var rows []row
	if err := d.Decode(&rows); err != nil {
		return nil, fmt.Errorf("answers.json: %w", err)
	}
	cases := make([]Case, len(rows))
	for i, r := range rows {
		var err error
		if cases[i], err = r.build(); err != nil {
			return nil, fmt.Errorf("answers.json: %q: %w", r.Name, err)
		}
	}
	return cases, nil
}

func (r *row) build() (Case, error) {
	c := Case{Name: r.Name, Strategy: r.Strategy, After: r.After, Error: r.Error}
	input := r.Input
	if input == nil {
		nodes, owners := []any{}, []any{}
		for i, n := range r.Counts {
			name := string(rune('A' + i))
			nodes = append(nodes, name)
			owners = append(owners, slices.Repeat([]any{name}, n)...)
		}
		input = map[string]any{"nodes": nodes, "owners": owners}
	}
	if r.Config != nil {
		input["config"] = r.Config
	}
	data, err := json.Marshal(input)
	if err != nil {
		return c, err
	}
	f, err := snapshotfile.Parse(data)
	if err != nil {
		return c, err
	}
	c.Snapshot, c.Shards, c.Op = f.Snapshot, f.Shards, pluginapi.OpRebalance
	if f.Shards != nil {
		c.Op = pluginapi.OpAllocate
	}
	wanted := 0
	for _, is := range [...]bool{r.Homes != nil, r.Moves != nil, r.Error != ""} {
		if is {
			wanted++
		}
	}
	if wanted != 1 || r.Error == "" && (r.Homes != nil) != (c.Op == pluginapi.OpAllocate) {
		return c, fmt.Errorf("want homes for an input with shards, moves for one without, or an error")
	}
	if r.Homes != nil {
		for _, h := range *r.Homes {
			node := pluginapi.NoTarget
			if name, ok := h.(string); ok {
				if node = c.Snapshot.NodeIndex(name); node == pluginapi.NoTarget {
					return c, fmt.Errorf("there is no node %q", name)
				}
			}
			c.Homes = append(c.Homes, node)
		}
	}
	if r.Moves != nil {
		for _, m := range *r.Moves {
			node := c.Snapshot.NodeIndex(m.target)
			if node == pluginapi.NoTarget {
				return c, fmt.Errorf("there is no node %q", m.target)
			}
			c.Moves = append(c.Moves, pluginapi.Move{Shard: m.shard, Target: node})
		}
	}
	return c, nil
}

// Check asks a strategy, native or behind a wasm host, and says how its answer differs from the right one.
func (c *Case) Check(s pluginapi.Strategy) error {
	if c.Op == pluginapi.OpAllocate {
		homes, err := s.Allocate(&c.Snapshot, c.Shards)
		if done, err := c.failed(err); done {
			return err
		}
		if !slices.Equal(homes.Nodes, c.Homes) {
			return fmt.Errorf("homes %v, want %v", homes.Nodes, c.Homes)
		}
		return nil
	}
	plan, err := s.Rebalance(&c.Snapshot)
	if done, err := c.failed(err); done {
		return err
	}
	same := slices.EqualFunc(plan.Moves, c.Moves, func(a, b pluginapi.Move) bool {
		return a.Shard == b.Shard && a.Target == b.Target
	})
	if !same {
		return fmt.Errorf("moves %s, want %s", text(plan.Moves), text(c.Moves))
	}
	if c.After != nil {
		if after := Apply(&c.Snapshot, plan.Moves).Placement().Counts; !slices.Equal(after, c.After) {
			return fmt.Errorf("counts after the moves %v, want %v", after, c.After)
		}
	}
	return nil
}

// failed compares an error with the wanted one; done is true where no decision is left to compare.
func (c *Case) failed(err error) (done bool, _ error) {
	switch {
	case err == nil && c.Error == "":
		return false, nil
	case err == nil:
		return true, fmt.Errorf("a decision, want an error with %q", c.Error)
	case c.Error == "":
		return true, err
	case !strings.Contains(err.Error(), c.Error):
		return true, fmt.Errorf("the error %q, want one with %q", err, c.Error)
	}
	return true, nil
}

// Apply returns the snapshot after moves with targets: owners changed, all else shared with s.
func Apply(s *pluginapi.Snapshot, moves []pluginapi.Move) *pluginapi.Snapshot {
	after := *s
	after.Owners = slices.Clone(s.Owners)
	for _, m := range moves {
		if m.Target != pluginapi.NoTarget {
			after.Owners[m.Shard] = uint32(m.Target)
		}
	}
	return &after
}

func text(moves []pluginapi.Move) string {
	var b strings.Builder
	for _, m := range moves {
		fmt.Fprintf(&b, "[%d→%d]", m.Shard, m.Target)
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}
