// Package snapshotfile reads a strategy's input as people write it: CBOR as the contract says, or JSON of the same shape
// in which nodes may be plain names, owners a list of node names, indices or null, and everything left out has a
// default. It is for tools and tests on the host's side; a guest never imports it.
package snapshotfile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/droverhq/drover/pluginapi"
)

// MostShards bounds the shards of an input whose owners are left out.
const MostShards = 1 << 24

// File is a parsed input.
type File struct {
	// Op is 0 where the file does not say.
	Op       pluginapi.Op
	Snapshot pluginapi.Snapshot
	// Shards that need a home; nil where the file does not say.
	Shards []uint32

	ownersGiven, limitGiven bool
}

// Parse reads an input. Indices of nodes mean the list as given; the snapshot has its nodes sorted by name, and every
// index follows. Defaults: addr = name, state up, weight 100, candidates = the nodes that are up, owners = none for each
// shard that the file names, limits.moves = the number of shards; every other figure 0 or left out. An error names the
// value by its path, such as nodes[2].state.
//
// CBOR of the contract is read as a guest reads it: what a later version of the contract adds is passed over.
func Parse(data []byte) (*File, error) {
	if in, err := pluginapi.DecodeInput(data); err == nil {
		return &File{Op: in.Op, Snapshot: in.Snapshot, Shards: in.Shards, ownersGiven: true, limitGiven: true}, nil
	}
	tree, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	root, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("an input is a map with nodes and owners, got %s", kind(tree))
	}
	return FromTree(root)
}

// FromTree reads an input that is decoded already, into nil, bool, int64, uint64, float64, string, []any and map[string]any.
// The error is an *Error where it is about one value.
func FromTree(root map[string]any) (*File, error) {
	p := parser{file: &File{}}
	if err := p.input(root); err != nil {
		return nil, err
	}
	if err := p.file.complete(); err != nil {
		return nil, err
	}
	return p.file, nil
}

// NodeFromTree reads one node, as an input has it: a name or a map.
func NodeFromTree(path string, v any) (pluginapi.Node, error) { return node(path, v) }

// SetShards sets the shards that need a home. Where the file left owners out, it makes room for them.
func (f *File) SetShards(shards []uint32) error {
	f.Shards = slices.Clone(shards)
	return f.complete()
}

// Homeless returns the shards that have no owner and are neither busy nor waiting.
func (f *File) Homeless() []uint32 {
	taken := map[uint32]bool{}
	for _, b := range f.Snapshot.Busy {
		taken[b.Shard] = true
	}
	for _, w := range f.Snapshot.Waiting {
		taken[w] = true
	}
	var shards []uint32
	for i, o := range f.Snapshot.Owners {
		if o == pluginapi.NoOwner && !taken[uint32(i)] {
			shards = append(shards, uint32(i))
		}
	}
	return shards
}

// complete fills in the defaults that depend on the number of shards, and checks the whole.
func (f *File) complete() error {
	s := &f.Snapshot
	if !f.ownersGiven {
		n := uint32(len(s.Owners))
		for _, list := range [...][]uint32{f.Shards, s.Waiting} {
			for _, shard := range list {
				n = max(n, min(shard, MostShards)+1)
			}
		}
		for _, b := range s.Busy {
			n = max(n, min(b.Shard, MostShards)+1)
		}
		for _, p := range s.Pinned {
			n = max(n, min(p.Shard, MostShards)+1)
		}
		if n > MostShards {
			return fmt.Errorf("owners are left out, and a shard of %d or above is named: give owners", MostShards)
		}
		for uint32(len(s.Owners)) < n {
			s.Owners = append(s.Owners, pluginapi.NoOwner)
		}
	}
	if !f.limitGiven {
		s.MaxMoves = uint64(len(s.Owners))
	}
	if err := s.Validate(f.Shards); err != nil {
		if d, ok := err.(*pluginapi.DecodeError); ok {
			return fault(d.Path, "%s", d.Message)
		}
		return err
	}
	return nil
}

type parser struct {
	file  *File
	names map[string]int // name → index in the sorted list
	order []int          // index as given → index in the sorted list
}

// Error says what is wrong with one value.
type Error struct {
	Path    string // names the value, such as nodes[2].state
	Message string
}

// Error names the value and says what is wrong with it.
func (e *Error) Error() string { return e.Path + ": " + e.Message }

// fault is an error about the value at path.
func fault(path, format string, args ...any) error {
	return &Error{Path: path, Message: fmt.Sprintf(format, args...)}
}

// child is the path of a key, which at the top is the key itself.
func child(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// keys refuses keys that are not known, with the nearest one that is.
func keys(path string, m map[string]any, known ...string) error {
	for _, key := range slices.Sorted(mapKeys(m)) {
		if slices.Contains(known, key) {
			continue
		}
		if near := nearest(key, known); near != "" {
			return fault(child(path, key), "unknown key: did you mean %q?", near)
		}
		return fault(child(path, key), "unknown key: known here are %s", strings.Join(known, ", "))
	}
	return nil
}

func (p *parser) input(m map[string]any) error {
	if err := keys("", m, "v", "op", "type", "revision", "now", "seed", "nodes", "candidates", "owners", "busy", "waiting",
		"pinned", "standby", "load", "limits", "config", "shards"); err != nil {
		return err
	}
	s := &p.file.Snapshot
	if v, found := m["v"]; found {
		if n, err := uintOf("v", v, math.MaxUint64); err != nil {
			return err
		} else if n != pluginapi.Version {
			return fault("v", "contract version %d is not known here, only %d", n, pluginapi.Version)
		}
	}
	if v, found := m["op"]; found {
		op, err := textOf("op", v)
		if err != nil {
			return err
		}
		switch op {
		case pluginapi.OpAllocate.String():
			p.file.Op = pluginapi.OpAllocate
		case pluginapi.OpRebalance.String():
			p.file.Op = pluginapi.OpRebalance
		default:
			return fault("op", "want allocate or rebalance, got %q", op)
		}
	}
	var err error
	if v, found := m["type"]; found {
		if s.Type, err = textOf("type", v); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		key string
		dst *uint64
	}{{"revision", &s.Revision}, {"now", &s.Now}, {"seed", &s.Seed}} {
		if v, found := m[f.key]; found {
			if *f.dst, err = uintOf(f.key, v, math.MaxUint64); err != nil {
				return err
			}
		}
	}
	for _, step := range []struct {
		key  string
		read func(v any) error
	}{
		{"nodes", p.nodes}, // first: the others refer to them
		{"candidates", p.candidates},
		{"owners", func(v any) error {
			p.file.ownersGiven = true
			s.Owners, err = p.column("owners", v)
			return err
		}},
		{"standby", func(v any) error {
			s.Standby, err = p.column("standby", v)
			return err
		}},
		{"busy", p.busy},
		{"pinned", p.pinned},
		{"waiting", func(v any) error {
			s.Waiting, err = uint32s("waiting", v, false)
			return err
		}},
		{"shards", func(v any) error {
			p.file.Shards, err = uint32s("shards", v, false)
			return err
		}},
		{"load", p.loads},
		{"limits", p.limits},
		{"config", p.config},
	} {
		if v, found := m[step.key]; found {
			if err := step.read(v); err != nil {
				return err
			}
		}
	}
	if _, found := m["candidates"]; !found {
		for i := range s.Nodes {
			if s.Nodes[i].State == pluginapi.StateUp {
				s.Candidates = append(s.Candidates, i)
			}
		}
	}
	return nil
}

func (p *parser) nodes(v any) error {
	list, err := listOf("nodes", v)
	if err != nil {
		return err
	}
	given := make([]pluginapi.Node, len(list))
	first := map[string]int{}
	for i, e := range list {
		if given[i], err = node(at("nodes", i), e); err != nil {
			return err
		}
		if j, twice := first[given[i].Name]; twice {
			return fault(at("nodes", i), "the name %q is that of nodes[%d] already", given[i].Name, j)
		}
		first[given[i].Name] = i
	}
	sorted := make([]int, len(list))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return strings.Compare(given[a].Name, given[b].Name) })
	p.order, p.names = make([]int, len(list)), map[string]int{}
	for to, from := range sorted {
		p.order[from] = to
		p.names[given[from].Name] = to
		p.file.Snapshot.Nodes = append(p.file.Snapshot.Nodes, given[from])
	}
	return nil
}

// ref reads a node's name or its index in the list as given.
func (p *parser) ref(path string, v any) (int, error) {
	if name, ok := v.(string); ok {
		if i, found := p.names[name]; found {
			return i, nil
		}
		known := slices.Sorted(mapKeys(p.names))
		if near := nearest(name, known); near != "" {
			return 0, fault(path, "there is no node %q: did you mean %q?", name, near)
		}
		return 0, fault(path, "there is no node %q in nodes", name)
	}
	n, isInt := unsigned(v)
	if !isInt {
		return 0, fault(path, "want a node's name or index, got %s", kind(v))
	}
	if n >= uint64(len(p.order)) {
		return 0, fault(path, "node %d is out of range: nodes has %d", n, len(p.order))
	}
	return p.order[n], nil
}

func (p *parser) candidates(v any) error {
	list, err := listOf("candidates", v)
	if err != nil {
		return err
	}
	s := &p.file.Snapshot
	for i, e := range list {
		c, err := p.ref(at("candidates", i), e)
		if err != nil {
			return err
		}
		if slices.Contains(s.Candidates, c) {
			return fault(at("candidates", i), "the node %q is there twice", s.Nodes[c].Name)
		}
		s.Candidates = append(s.Candidates, c)
	}
	slices.Sort(s.Candidates)
	return nil
}

// column reads a node for each shard: a typed array, or a list of names, indices and null.
func (p *parser) column(path string, v any) ([]uint32, error) {
	if raw, width, ok := typedArray(v, 2, 4); ok {
		column := make([]uint32, 0, len(raw)/width)
		for i, n := range elements(raw, width) {
			if n == 1<<(8*width)-1 {
				column = append(column, pluginapi.NoOwner)
				continue
			}
			node, err := p.ref(at(path, i), n)
			if err != nil {
				return nil, err
			}
			column = append(column, uint32(node))
		}
		return column, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fault(path, "want a list of node names, indices or null, or a typed array, got %s", kind(v))
	}
	column := make([]uint32, len(list))
	for i, e := range list {
		if e == nil {
			column[i] = pluginapi.NoOwner
			continue
		}
		node, err := p.ref(at(path, i), e)
		if err != nil {
			return nil, err
		}
		column[i] = uint32(node)
	}
	return column, nil
}

// pairs reads a list of [shard, node] and refuses a shard that comes twice.
func (p *parser) pairs(path string, v any, add func(shard uint32, node any, at string) error) error {
	list, err := listOf(path, v)
	if err != nil {
		return err
	}
	seen := map[uint64]bool{}
	for i, e := range list {
		pair, ok := e.([]any)
		if !ok || len(pair) != 2 {
			return fault(at(path, i), "want [shard, node]")
		}
		shard, err := uintOf(at(at(path, i), 0), pair[0], math.MaxUint32)
		if err != nil {
			return err
		}
		if seen[shard] {
			return fault(at(path, i), "shard %d is there twice", shard)
		}
		seen[shard] = true
		if err := add(uint32(shard), pair[1], at(at(path, i), 1)); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) busy(v any) error {
	s := &p.file.Snapshot
	return p.pairs("busy", v, func(shard uint32, v any, path string) error {
		target := pluginapi.NoTarget
		if v != nil {
			var err error
			if target, err = p.ref(path, v); err != nil {
				return err
			}
		}
		s.Busy = append(s.Busy, pluginapi.Busy{Shard: shard, Target: target})
		return nil
	})
}

func (p *parser) pinned(v any) error {
	s := &p.file.Snapshot
	return p.pairs("pinned", v, func(shard uint32, v any, path string) error {
		node, err := p.ref(path, v)
		s.Pinned = append(s.Pinned, pluginapi.Pin{Shard: shard, Node: node})
		return err
	})
}

func (p *parser) loads(v any) error {
	m, err := mapOf("load", v)
	if err != nil {
		return err
	}
	if err := keys("load", m, "entities", "rate", "bytes"); err != nil {
		return err
	}
	l := &p.file.Snapshot.Load
	if v, found := m["entities"]; found {
		if l.Entities, err = uint32s("load.entities", v, true); err != nil {
			return err
		}
	}
	if v, found := m["rate"]; found {
		if l.Rate, err = uint32s("load.rate", v, true); err != nil {
			return err
		}
	}
	if v, found := m["bytes"]; found {
		l.Bytes, err = uint64s("load.bytes", v)
	}
	return err
}

func (p *parser) limits(v any) error {
	m, err := mapOf("limits", v)
	if err != nil {
		return err
	}
	if err := keys("limits", m, "moves"); err != nil {
		return err
	}
	if v, found := m["moves"]; found {
		p.file.limitGiven = true
		p.file.Snapshot.MaxMoves, err = uintOf("limits.moves", v, math.MaxUint64)
	}
	return err
}

func (p *parser) config(v any) error {
	m, err := mapOf("config", v)
	if err != nil {
		return err
	}
	p.file.Snapshot.Config, err = EncodeConfig(m)
	return err
}
