package lab

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/pluginapi"
)

var tables = func() cbor.DecMode {
	m, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any](), IntDec: cbor.IntDecConvertNone}.DecMode()
	if err != nil {
		panic(err) // the options are constant
	}
	return m
}()

// configTable returns a configuration as the table that it was made from.
func configTable(c pluginapi.Config) (map[string]any, error) {
	table := map[string]any{}
	if len(c) == 0 {
		return table, nil
	}
	if err := tables.Unmarshal(c, &table); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return table, nil
}

// MarshalJSON writes the cluster as `drover strategy run --input` reads it (spec 1.6).
func (c *Cluster) MarshalJSON() ([]byte, error) {
	s, err := c.Snapshot()
	if err != nil {
		return nil, err
	}
	name := func(node int) any {
		if node == pluginapi.NoTarget {
			return nil
		}
		return s.Nodes[node].Name
	}
	column := func(owners []uint32) []any {
		names := make([]any, len(owners))
		for i, o := range owners {
			if o != pluginapi.NoOwner {
				names[i] = name(int(o))
			}
		}
		return names
	}
	nodes, candidates := make([]map[string]any, len(s.Nodes)), []string{}
	for i := range s.Nodes {
		nodes[i] = nodeTable(&s.Nodes[i])
	}
	for _, n := range s.Candidates {
		candidates = append(candidates, s.Nodes[n].Name)
	}
	m := map[string]any{
		"type": s.Type, "revision": s.Revision, "now": s.Now, "seed": s.Seed,
		"nodes": nodes, "candidates": candidates, "owners": column(s.Owners), "limits": map[string]any{"moves": s.MaxMoves},
	}
	if len(s.Busy) > 0 {
		busy := make([][2]any, len(s.Busy))
		for i, b := range s.Busy {
			busy[i] = [2]any{b.Shard, name(b.Target)}
		}
		m["busy"] = busy
	}
	if len(s.Waiting) > 0 {
		m["waiting"] = s.Waiting
	}
	if len(s.Pinned) > 0 {
		pinned := make([][2]any, len(s.Pinned))
		for i, p := range s.Pinned {
			pinned[i] = [2]any{p.Shard, name(p.Node)}
		}
		m["pinned"] = pinned
	}
	if s.Standby != nil {
		m["standby"] = column(s.Standby)
	}
	load := map[string]any{}
	known(load, "entities", s.Load.Entities, pluginapi.UnknownLoad)
	known(load, "rate", s.Load.Rate, pluginapi.UnknownLoad)
	known(load, "bytes", s.Load.Bytes, pluginapi.UnknownBytes)
	if len(load) > 0 {
		m["load"] = load
	}
	config, err := configTable(s.Config)
	if err != nil {
		return nil, err
	}
	if len(config) > 0 {
		m["config"] = config
	}
	return json.Marshal(m)
}

func known[T uint32 | uint64](into map[string]any, key string, column []T, unknown T) {
	if column == nil {
		return
	}
	figures := make([]any, len(column))
	for i, n := range column {
		if n != unknown {
			figures[i] = n
		}
	}
	into[key] = figures
}

func nodeTable(n *pluginapi.Node) map[string]any {
	m := map[string]any{"name": n.Name, "addr": n.Addr, "incarnation": n.Incarnation, "state": n.State.String(), "weight": n.Weight, "version": n.Version}
	if n.State == pluginapi.StateUnknown {
		delete(m, "state") // the file has no word for it
	}
	if len(n.Roles) > 0 {
		m["roles"] = n.Roles
	}
	if n.Zone != "" {
		m["zone"] = n.Zone
	}
	if len(n.Tags) > 0 {
		tags := map[string]string{}
		for _, t := range n.Tags {
			tags[t.Key] = t.Value
		}
		m["tags"] = tags
	}
	if !n.Coord.IsZero() {
		m["coord"] = map[string]any{"vector": n.Coord.Vec, "error": n.Coord.Error, "adjustment": n.Coord.Adjustment, "height": n.Coord.Height}
	}
	load := map[string]uint64{}
	for _, f := range figures(&n.Load) {
		if f.Known {
			load[f.name] = f.Value
		}
	}
	if len(load) > 0 {
		m["load"] = load
	}
	return m
}

// figure is one of a node's load figures and its name.
type figure struct {
	name string
	*pluginapi.Figure
}

func figures(l *pluginapi.NodeLoad) []figure {
	return []figure{
		{"cpu", &l.CPU}, {"mem", &l.Mem}, {"entities", &l.Entities}, {"rate", &l.Rate}, {"depth", &l.Depth},
		{"disk", &l.Disk}, {"diskfree", &l.DiskFree}, {"read", &l.Read}, {"write", &l.Write},
	}
}

// String shows the cluster to a person, a line a node; an input to run again is in MarshalJSON.
func (c *Cluster) String() string {
	if c.err != nil {
		return "not a cluster: " + c.err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d nodes, %d shards, at most %d moves", len(c.s.Nodes), len(c.s.Owners), c.s.MaxMoves)
	if table, err := configTable(c.s.Config); err == nil && len(table) > 0 {
		if text, err := json.Marshal(table); err == nil {
			fmt.Fprintf(&b, ", config %s", text)
		}
	}
	b.WriteByte('\n')
	on := make([][]uint32, len(c.s.Nodes)+1) // the last: without a home
	for shard, o := range c.s.Owners {
		node := min(int(o), len(c.s.Nodes)) // NoOwner is above every index
		on[node] = append(on[node], uint32(shard))
	}
	for i := range c.s.Nodes {
		fmt.Fprintf(&b, "  %s: %s\n", nodeText(&c.s.Nodes[i], c.candidate[i]), shardsText(on[i]))
	}
	if homeless := on[len(c.s.Nodes)]; len(homeless) > 0 {
		fmt.Fprintf(&b, "  without a home: %s\n", shardsText(homeless))
	}
	var busy, pinned []string
	for _, x := range c.s.Busy {
		busy = append(busy, Move{Shard: x.Shard, From: c.Owner(x.Shard), To: c.name(x.Target)}.String())
	}
	for _, x := range c.s.Pinned {
		pinned = append(pinned, Home{Shard: x.Shard, Node: c.name(x.Node)}.String())
	}
	for _, l := range []struct {
		what string
		list []string
	}{{"busy", busy}, {"pinned", pinned}} {
		if len(l.list) > 0 {
			fmt.Fprintf(&b, "  %s: %s\n", l.what, listText(l.list))
		}
	}
	if len(c.s.Waiting) > 0 {
		fmt.Fprintf(&b, "  waiting: %s\n", shardsText(c.s.Waiting))
	}
	return b.String()
}

func nodeText(n *pluginapi.Node, candidate bool) string {
	parts := []string{n.State.String()}
	if candidate != (n.State == pluginapi.StateUp) {
		parts = append(parts, map[bool]string{true: "candidate", false: "no candidate"}[candidate])
	}
	if n.Zone != "" {
		parts = append(parts, "zone "+n.Zone)
	}
	if len(n.Roles) > 0 {
		parts = append(parts, "roles "+strings.Join(n.Roles, "+"))
	}
	parts = append(parts, fmt.Sprintf("weight %d", n.Weight), "version "+n.Version)
	for _, f := range figures(&n.Load) {
		if f.Known {
			parts = append(parts, fmt.Sprintf("%s %d", f.name, f.Value))
		}
	}
	return n.Name + " (" + strings.Join(parts, ", ") + ")"
}

// mostListed bounds what a text lists.
const mostListed = 40

func listText(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	if more := len(list) - mostListed; more > 0 {
		return strings.Join(list[:mostListed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}

// shardsText returns such as "4: 0-2, 7".
func shardsText(shards []uint32) string {
	if len(shards) == 0 {
		return "0"
	}
	sorted := slices.Sorted(slices.Values(shards))
	var runs []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if run := fmt.Sprint(sorted[i]); i == j {
			runs = append(runs, run)
		} else {
			runs = append(runs, fmt.Sprintf("%s-%d", run, sorted[j]))
		}
		i = j + 1
	}
	return fmt.Sprintf("%d: %s", len(shards), listText(runs))
}

// String shows the answer to a person.
func (a *Answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s → ", a.Op)
	switch {
	case a.Err != nil:
		fmt.Fprintf(&b, "%s: %v", a.Verdict, a.Err)
	case a.Op == pluginapi.OpAllocate:
		b.WriteString("homes: " + listText(texts(a.Homes)))
	default:
		b.WriteString("moves: " + listText(texts(a.Moves)))
		if a.Planned > len(a.Moves) {
			fmt.Fprintf(&b, " (the first of %d)", a.Planned)
		}
	}
	if a.Reason != "" {
		fmt.Fprintf(&b, "; because: %s", a.Reason)
	}
	if a.Fuel >= 0 {
		fmt.Fprintf(&b, "; fuel %d", a.Fuel)
	}
	return b.String()
}

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}
