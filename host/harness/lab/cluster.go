package lab

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
)

// Cluster is what a strategy is asked about, as a test writes it:
//
//	lab.NewCluster(3, 12).AllOn("a").Zone("z1", "a", "b").Pin("a", 0).Limit(3)
//
// Each method changes the cluster and returns it. A name or number that the cluster does not have is remembered, and
// comes out as the error of Snapshot, and so of whatever is asked about the cluster.
type Cluster struct {
	s         pluginapi.Snapshot // without Candidates
	candidate []bool             // by node index
	err       error              // the first
}

// NewCluster returns a cluster of so many nodes and shards. The nodes are a, b, c, … (n000, n001, … where the alphabet
// does not suffice), up, candidates, of weight 100 and version 1. No shard has a home. The host takes any number of moves.
func NewCluster(nodes, shards int) *Cluster {
	c := &Cluster{}
	if nodes < 0 {
		c.fail("there cannot be %d nodes", nodes)
	}
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		if nodes <= 26 {
			name = string(rune('a' + i))
		}
		c.Join(name)
	}
	return c.Shards(shards)
}

// FromSnapshot returns the cluster of a snapshot, of which it keeps nothing.
func FromSnapshot(s *pluginapi.Snapshot) *Cluster {
	if err := s.Validate(nil); err != nil {
		return &Cluster{err: err}
	}
	c := &Cluster{s: copyOf(s), candidate: make([]bool, len(s.Nodes))}
	for _, n := range s.Candidates {
		c.candidate[n] = true
	}
	return c
}

// copyOf shares no memory with s but that of a node's own lists and of the configuration, which nobody writes to.
func copyOf(s *pluginapi.Snapshot) pluginapi.Snapshot {
	return pluginapi.Snapshot{
		Type: s.Type, Revision: s.Revision, Now: s.Now, Seed: s.Seed,
		Nodes: slices.Clone(s.Nodes), Owners: slices.Clone(s.Owners), Busy: slices.Clone(s.Busy), Waiting: slices.Clone(s.Waiting),
		Pinned: slices.Clone(s.Pinned), Standby: slices.Clone(s.Standby),
		Load:     pluginapi.ShardLoads{Entities: slices.Clone(s.Load.Entities), Rate: slices.Clone(s.Load.Rate), Bytes: slices.Clone(s.Load.Bytes)},
		MaxMoves: s.MaxMoves, Config: s.Config,
	}
}

// Clone returns a copy.
func (c *Cluster) Clone() *Cluster {
	return &Cluster{s: copyOf(&c.s), candidate: slices.Clone(c.candidate), err: c.err}
}

// Snapshot returns the snapshot that a strategy is asked about; it is the caller's. The error is the first that was made
// in building the cluster.
func (c *Cluster) Snapshot() (*pluginapi.Snapshot, error) {
	if c.err != nil {
		return nil, c.err
	}
	s := copyOf(&c.s)
	for i, is := range c.candidate {
		if is {
			s.Candidates = append(s.Candidates, i)
		}
	}
	return &s, nil
}

// Homeless returns the shards that need a home: they have none, and are neither busy nor waiting.
func (c *Cluster) Homeless() []uint32 { return (&snapshotfile.File{Snapshot: c.s}).Homeless() }

// Nodes returns the names of the nodes, sorted.
func (c *Cluster) Nodes() []string {
	names := make([]string, len(c.s.Nodes))
	for i := range names {
		names[i] = c.s.Nodes[i].Name
	}
	return names
}

// Owner returns the name of the node that owns a shard, "" where none does.
func (c *Cluster) Owner(shard uint32) string { return c.name(c.s.OwnerOf(shard)) }

func (c *Cluster) name(node int) string {
	if node == pluginapi.NoTarget {
		return ""
	}
	return c.s.Nodes[node].Name
}

func (c *Cluster) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// node returns the index of a name; NoTarget for "".
func (c *Cluster) node(name string) int {
	if name == "" {
		return pluginapi.NoTarget
	}
	n := c.s.NodeIndex(name)
	if n == pluginapi.NoTarget {
		c.fail("there is no node %q: the nodes are %q", name, c.Nodes())
	}
	return n
}

// each calls f for each of the named nodes, or all where none is named.
func (c *Cluster) each(names []string, f func(i int, n *pluginapi.Node)) *Cluster {
	if len(names) == 0 {
		names = c.Nodes()
	}
	for _, name := range names {
		if i := c.node(name); i != pluginapi.NoTarget {
			f(i, &c.s.Nodes[i])
		}
	}
	return c
}

// has tells whether the shards are there.
func (c *Cluster) has(shards []uint32) bool {
	for _, shard := range shards {
		if uint64(shard) >= uint64(len(c.s.Owners)) {
			c.fail("there is no shard %d: there are %d", shard, len(c.s.Owners))
			return false
		}
	}
	return true
}

// Join adds nodes, as NewCluster makes them.
func (c *Cluster) Join(names ...string) *Cluster {
	for _, name := range names {
		at, there := slices.BinarySearchFunc(c.s.Nodes, name, func(n pluginapi.Node, name string) int {
			switch {
			case n.Name < name:
				return -1
			case n.Name > name:
				return 1
			}
			return 0
		})
		if there || name == "" {
			c.fail("a node %q cannot be added: names are not empty, and not there twice", name)
			continue
		}
		n := pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100}
		c.s.Nodes = slices.Insert(c.s.Nodes, at, n)
		c.candidate = slices.Insert(c.candidate, at, true)
		c.reindex(func(i int) int {
			if i >= at {
				return i + 1
			}
			return i
		})
	}
	return c
}

// Remove takes nodes away, as if they had never been: their shards have no home, and no pin, standby or target is there.
func (c *Cluster) Remove(names ...string) *Cluster {
	for _, name := range names {
		at := c.node(name)
		if at == pluginapi.NoTarget {
			continue
		}
		c.s.Busy = slices.DeleteFunc(c.s.Busy, func(b pluginapi.Busy) bool { return c.s.OwnerOf(b.Shard) == at })
		c.s.Pinned = slices.DeleteFunc(c.s.Pinned, func(p pluginapi.Pin) bool { return p.Node == at })
		c.s.Nodes = slices.Delete(c.s.Nodes, at, at+1)
		c.candidate = slices.Delete(c.candidate, at, at+1)
		c.reindex(func(i int) int {
			switch {
			case i == at:
				return pluginapi.NoTarget
			case i > at:
				return i - 1
			}
			return i
		})
	}
	return c
}

// reindex puts other indices in the place of all that the snapshot holds.
func (c *Cluster) reindex(to func(int) int) {
	for _, column := range [...][]uint32{c.s.Owners, c.s.Standby} {
		for i, n := range column {
			if n != pluginapi.NoOwner {
				column[i] = uint32(to(int(n))) // NoTarget becomes NoOwner
			}
		}
	}
	for i := range c.s.Busy {
		if b := &c.s.Busy[i]; b.Target != pluginapi.NoTarget {
			b.Target = to(b.Target)
		}
	}
	for i := range c.s.Pinned {
		c.s.Pinned[i].Node = to(c.s.Pinned[i].Node)
	}
}

// Shards sets the number of shards, none of which has a home; what was said of shards before is forgotten.
func (c *Cluster) Shards(n int) *Cluster {
	if n < 0 {
		c.fail("there cannot be %d shards", n)
		n = 0
	}
	c.s.Owners = slices.Repeat([]uint32{pluginapi.NoOwner}, n)
	c.s.Busy, c.s.Waiting, c.s.Pinned, c.s.Standby, c.s.Load = nil, nil, nil, nil, pluginapi.ShardLoads{}
	c.s.MaxMoves = uint64(n)
	return c
}

// AllOn puts every shard on one node.
func (c *Cluster) AllOn(node string) *Cluster {
	owner := uint32(c.node(node)) // NoTarget becomes NoOwner
	for i := range c.s.Owners {
		c.s.Owners[i] = owner
	}
	return c
}

// Even deals the shards to the nodes in turn.
func (c *Cluster) Even() *Cluster {
	for i := range c.s.Owners {
		if n := len(c.s.Nodes); n > 0 {
			c.s.Owners[i] = uint32(i % n)
		}
	}
	return c
}

// Counts gives each node in turn so many shards, numbered in ascending order, and sets the number of shards to their sum.
func (c *Cluster) Counts(counts ...int) *Cluster {
	if len(counts) != len(c.s.Nodes) {
		c.fail("there are %d counts for %d nodes", len(counts), len(c.s.Nodes))
		return c
	}
	var owners []uint32
	for node, n := range counts {
		if n < 0 {
			c.fail("%s cannot have %d shards", c.name(node), n)
			return c
		}
		owners = append(owners, slices.Repeat([]uint32{uint32(node)}, n)...)
	}
	c.Shards(len(owners))
	c.s.Owners = owners
	return c
}

// Own puts shards on a node; "" takes their home away.
func (c *Cluster) Own(node string, shards ...uint32) *Cluster {
	owner := uint32(c.node(node))
	if c.has(shards) {
		for _, shard := range shards {
			c.s.Owners[shard] = owner
		}
	}
	return c
}

// Busy says that a shard is in handoff to a node, "" where that is not known.
func (c *Cluster) Busy(shard uint32, target string) *Cluster {
	if c.has([]uint32{shard}) {
		c.s.Busy = append(c.s.Busy, pluginapi.Busy{Shard: shard, Target: c.node(target)})
	}
	return c
}

// Waiting says that the state of shards is on a node that is away.
func (c *Cluster) Waiting(shards ...uint32) *Cluster {
	if c.has(shards) {
		c.s.Waiting = append(c.s.Waiting, shards...)
	}
	return c
}

// Pin says that the host keeps shards on a node. It does not put them there.
func (c *Cluster) Pin(node string, shards ...uint32) *Cluster {
	if n := c.node(node); n != pluginapi.NoTarget && c.has(shards) {
		for _, shard := range shards {
			c.s.Pinned = append(c.s.Pinned, pluginapi.Pin{Shard: shard, Node: n})
		}
	}
	return c
}

// Standby says that a node holds the copies of shards that are in sync.
func (c *Cluster) Standby(node string, shards ...uint32) *Cluster {
	if n := c.node(node); c.has(shards) {
		if c.s.Standby == nil {
			c.s.Standby = slices.Repeat([]uint32{pluginapi.NoOwner}, len(c.s.Owners))
		}
		for _, shard := range shards {
			c.s.Standby[shard] = uint32(n)
		}
	}
	return c
}

// Zone puts nodes in a zone, all where none is named, as of every method below that takes nodes.
func (c *Cluster) Zone(zone string, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) { n.Zone = zone })
}

// Role gives nodes a role, beside those that they have.
func (c *Cluster) Role(role string, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) { n.Roles = append(slices.Clone(n.Roles), role) })
}

// Capacity sets the weight of nodes; 100 is one unit.
func (c *Cluster) Capacity(weight uint64, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) { n.Weight = weight })
}

// Version sets the version of the software that nodes run.
func (c *Cluster) Version(version string, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) { n.Version = version })
}

// State sets the state of nodes. One that is up is a candidate, any other is none: see Candidate.
func (c *Cluster) State(state pluginapi.NodeState, nodes ...string) *Cluster {
	return c.each(nodes, func(i int, n *pluginapi.Node) { n.State, c.candidate[i] = state, state == pluginapi.StateUp })
}

// Candidate says whether nodes may get shards, whatever their state: a node that gossip suspects stays a candidate until
// its lease lapses, and one that is up but has not the type's role is none.
func (c *Cluster) Candidate(is bool, nodes ...string) *Cluster {
	return c.each(nodes, func(i int, _ *pluginapi.Node) { c.candidate[i] = is })
}

// Tag gives nodes a tag.
func (c *Cluster) Tag(key, value string, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) {
		n.Tags = slices.DeleteFunc(slices.Clone(n.Tags), func(t pluginapi.Tag) bool { return t.Key == key })
		n.Tags = append(n.Tags, pluginapi.Tag{Key: key, Value: value})
		pluginapi.SortTags(n.Tags)
	})
}

// Coord gives nodes a network coordinate, in seconds.
func (c *Cluster) Coord(coord pluginapi.Coord, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) { n.Coord = coord })
}

// Load sets what nodes report of themselves.
func (c *Cluster) Load(load pluginapi.NodeLoad, nodes ...string) *Cluster {
	return c.each(nodes, func(_ int, n *pluginapi.Node) { n.Load = load })
}

// Rate sets the messages a second of shards, all where none is named, as of Entities and Bytes. Those of which nothing is
// said are unknown.
func (c *Cluster) Rate(rate uint32, shards ...uint32) *Cluster {
	return setLoad(c, &c.s.Load.Rate, pluginapi.UnknownLoad, rate, shards)
}

// Entities sets the live entities of shards.
func (c *Cluster) Entities(n uint32, shards ...uint32) *Cluster {
	return setLoad(c, &c.s.Load.Entities, pluginapi.UnknownLoad, n, shards)
}

// Bytes sets the bytes of state of shards.
func (c *Cluster) Bytes(n uint64, shards ...uint32) *Cluster {
	return setLoad(c, &c.s.Load.Bytes, pluginapi.UnknownBytes, n, shards)
}

func setLoad[T uint32 | uint64](c *Cluster, column *[]T, unknown, value T, shards []uint32) *Cluster {
	if *column == nil {
		*column = slices.Repeat([]T{unknown}, len(c.s.Owners))
	}
	if len(shards) == 0 {
		for i := range *column {
			(*column)[i] = value
		}
	} else if c.has(shards) {
		for _, shard := range shards {
			(*column)[shard] = value
		}
	}
	return c
}

// Limit sets the most moves that the host takes from one answer.
func (c *Cluster) Limit(moves uint64) *Cluster {
	c.s.MaxMoves = moves
	return c
}

// Config sets one key of the strategy's configuration, beside those that are set; a value is as pluginapi.NewConfig takes
// it.
func (c *Cluster) Config(key string, value any) *Cluster {
	table, err := configTable(c.s.Config)
	if err == nil {
		table[key] = value
		var config pluginapi.Config
		if config, err = pluginapi.NewConfig(table); err == nil {
			c.s.Config = config
		}
	}
	if err != nil {
		c.fail("%w", err)
	}
	return c
}

// At sets the logical time, in milliseconds, and the seed.
func (c *Cluster) At(now, seed uint64) *Cluster {
	c.s.Now, c.s.Seed = now, seed
	return c
}
