package pluginapi

import (
	"math"
	"slices"
)

// AppendInput appends the input of one call to dst: the snapshot and, for OpAllocate, the shards that need a home. It
// makes no allocation once dst is large enough and each node's tags are in the order of SortTags. The same snapshot
// always gives the same bytes. It trusts the snapshot; Validate tells whether the decoder would take it.
func AppendInput(dst []byte, op Op, s *Snapshot, shards []uint32) []byte {
	// Keys in the order of RFC 8949, 4.2.1: by length, then bytewise.
	n := uint64(11)
	for _, there := range [...]bool{op == OpAllocate, len(s.Waiting) > 0, len(s.Pinned) > 0, s.Standby != nil, s.Load.any(), s.Config != nil} {
		if there {
			n++
		}
	}
	dst = appendHead(dst, majorMap, n)
	dst = appendUint(appendText(dst, "v"), Version)
	dst = appendText(appendText(dst, "op"), op.String())
	dst = appendUint(appendText(dst, "now"), s.Now)
	dst = appendHead(appendText(dst, "busy"), majorArray, uint64(len(s.Busy)))
	for _, b := range s.Busy {
		dst = appendUint(appendHead(dst, majorArray, 2), uint64(b.Shard))
		dst = appendTarget(dst, b.Target)
	}
	if s.Load.any() {
		dst = s.Load.append(appendText(dst, "load"))
	}
	dst = appendUint(appendText(dst, "seed"), s.Seed)
	dst = appendText(appendText(dst, "type"), s.Type)
	dst = appendHead(appendText(dst, "nodes"), majorArray, uint64(len(s.Nodes)))
	for i := range s.Nodes {
		dst = s.Nodes[i].append(dst)
	}
	if s.Config != nil {
		dst = appendText(dst, "config")
		if len(s.Config) == 0 {
			dst = appendHead(dst, majorMap, 0)
		}
		dst = append(dst, s.Config...)
	}
	dst = appendHead(appendText(dst, "limits"), majorMap, 1)
	dst = appendUint(appendText(dst, "moves"), s.MaxMoves)
	dst = appendColumn(appendText(dst, "owners"), s.Owners, len(s.Nodes))
	if len(s.Pinned) > 0 {
		dst = appendHead(appendText(dst, "pinned"), majorArray, uint64(len(s.Pinned)))
		for _, p := range s.Pinned {
			dst = appendUint(appendHead(dst, majorArray, 2), uint64(p.Shard))
			dst = appendUint(dst, uint64(p.Node))
		}
	}
	if op == OpAllocate {
		dst = appendUint32s(appendText(dst, "shards"), shards)
	}
	if s.Standby != nil {
		dst = appendColumn(appendText(dst, "standby"), s.Standby, len(s.Nodes))
	}
	if len(s.Waiting) > 0 {
		dst = appendUint32s(appendText(dst, "waiting"), s.Waiting)
	}
	dst = appendUint(appendText(dst, "revision"), s.Revision)
	dst = appendHead(appendText(dst, "candidates"), majorArray, uint64(len(s.Candidates)))
	for _, c := range s.Candidates {
		dst = appendUint(dst, uint64(c))
	}
	return dst
}

// appendColumn appends node indices in the narrowest form in which all bits set can still mean none.
func appendColumn(dst []byte, column []uint32, nodes int) []byte {
	if nodes < math.MaxUint16 {
		return appendUint16s(dst, column)
	}
	return appendUint32s(dst, column)
}

func (n *Node) append(dst []byte) []byte {
	load := n.Load.fields()
	figures := uint64(0)
	for _, f := range load {
		if f.figure.Known {
			figures++
		}
	}
	keys := uint64(7)
	for _, there := range [...]bool{figures > 0, len(n.Tags) > 0, n.Zone != "", !n.Coord.IsZero()} {
		if there {
			keys++
		}
	}
	dst = appendHead(dst, majorMap, keys)
	dst = appendText(appendText(dst, "addr"), n.Addr)
	if figures > 0 {
		dst = appendHead(appendText(dst, "load"), majorMap, figures)
		for _, f := range load {
			if f.figure.Known {
				dst = appendUint(appendText(dst, f.key), f.figure.Value)
			}
		}
	}
	dst = appendText(appendText(dst, "name"), n.Name)
	if len(n.Tags) > 0 {
		tags := n.Tags
		for i := 1; i < len(tags); i++ {
			if keyLess(tags[i].Key, tags[i-1].Key) {
				tags = slices.Clone(tags)
				SortTags(tags)
				break
			}
		}
		dst = appendHead(appendText(dst, "tags"), majorMap, uint64(len(tags)))
		for _, t := range tags {
			dst = appendText(appendText(dst, t.Key), t.Value)
		}
	}
	if n.Zone != "" {
		dst = appendText(appendText(dst, "zone"), n.Zone)
	}
	if !n.Coord.IsZero() {
		dst = n.Coord.append(appendText(dst, "coord"))
	}
	dst = appendHead(appendText(dst, "roles"), majorArray, uint64(len(n.Roles)))
	for _, role := range n.Roles {
		dst = appendText(dst, role)
	}
	dst = appendText(appendText(dst, "state"), n.State.String())
	dst = appendUint(appendText(dst, "weight"), n.Weight)
	dst = appendText(appendText(dst, "version"), n.Version)
	return appendText(appendText(dst, "incarnation"), n.Incarnation)
}

type loadField struct {
	key    string
	figure *Figure
}

// fields lists the figures in the order of their encoded keys.
func (l *NodeLoad) fields() [9]loadField {
	return [...]loadField{
		{"cpu", &l.CPU}, {"mem", &l.Mem}, {"disk", &l.Disk}, {"rate", &l.Rate}, {"read", &l.Read},
		{"depth", &l.Depth}, {"write", &l.Write}, {"diskfree", &l.DiskFree}, {"entities", &l.Entities},
	}
}

func (c Coord) append(dst []byte) []byte {
	dst, room := typedArray(dst, tagFloat64, len(c.Vec)+3, 8)
	for i, v := range c.Vec {
		putLE64(room[8*i:], math.Float64bits(v))
	}
	for i, v := range [...]float64{c.Error, c.Adjustment, c.Height} {
		putLE64(room[8*(len(c.Vec)+i):], math.Float64bits(v))
	}
	return dst
}

func (l *ShardLoads) any() bool { return l.Entities != nil || l.Rate != nil || l.Bytes != nil }

func (l *ShardLoads) append(dst []byte) []byte {
	n := uint64(0)
	for _, there := range [...]bool{l.Entities != nil, l.Rate != nil, l.Bytes != nil} {
		if there {
			n++
		}
	}
	dst = appendHead(dst, majorMap, n)
	if l.Rate != nil {
		dst = appendUint32s(appendText(dst, "rate"), l.Rate)
	}
	if l.Bytes != nil {
		dst = appendUint64s(appendText(dst, "bytes"), l.Bytes)
	}
	if l.Entities != nil {
		dst = appendUint32s(appendText(dst, "entities"), l.Entities)
	}
	return dst
}
