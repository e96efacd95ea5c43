package pluginapi

import "strconv"

// Validate checks what every strategy may rely on: nodes sorted by name without duplicates; candidates ascending
// without duplicates; indices that point at nodes and shards; columns as long as the owners. shards are those of an
// allocate. An error is a *DecodeError that names the value.
func (s *Snapshot) Validate(shards []uint32) error {
	limit := func(column []uint32) (limit uint32) {
		for _, o := range column {
			if o != NoOwner && o >= limit {
				limit = o + 1
			}
		}
		return limit
	}
	if err := s.validate(shards, limit(s.Owners), limit(s.Standby)); err != nil {
		return err
	}
	return nil
}

func invalid(path string, i int, msg string) *DecodeError {
	if i >= 0 {
		path += "[" + strconv.Itoa(i) + "]"
	}
	return &DecodeError{Path: path, Message: msg}
}

func outOf(kind string, got, n int) string {
	return kind + " " + strconv.Itoa(got) + " is out of range: there are " + strconv.Itoa(n)
}

// validate takes one more than the highest index of each column, which the decoder knows already.
func (s *Snapshot) validate(shards []uint32, ownerLimit, standbyLimit uint32) *DecodeError {
	nodes, n := len(s.Nodes), len(s.Owners)
	for i := 1; i < nodes; i++ {
		if s.Nodes[i-1].Name < s.Nodes[i].Name {
			continue
		}
		if s.Nodes[i].Name == s.Nodes[i-1].Name {
			return invalid("nodes", i, "two nodes have the name "+strconv.Quote(s.Nodes[i].Name))
		}
		return invalid("nodes", i, strconv.Quote(s.Nodes[i].Name)+" is not in its place: nodes are sorted by name")
	}
	for i, c := range s.Candidates {
		if c < 0 || c >= nodes {
			return invalid("candidates", i, outOf("node", c, nodes))
		}
		if i > 0 && c <= s.Candidates[i-1] {
			return invalid("candidates", i, "not ascending, or there twice")
		}
	}
	if uint64(ownerLimit) > uint64(nodes) {
		return invalid("owners", -1, outOf("node", int(ownerLimit-1), nodes))
	}
	if uint64(standbyLimit) > uint64(nodes) {
		return invalid("standby", -1, outOf("node", int(standbyLimit-1), nodes))
	}
	for _, c := range [...]struct {
		path  string
		there bool
		len   int
	}{
		{"standby", s.Standby != nil, len(s.Standby)},
		{"load.entities", s.Load.Entities != nil, len(s.Load.Entities)},
		{"load.rate", s.Load.Rate != nil, len(s.Load.Rate)},
		{"load.bytes", s.Load.Bytes != nil, len(s.Load.Bytes)},
	} {
		if c.there && c.len != n {
			return invalid(c.path, -1, "has "+strconv.Itoa(c.len)+" elements, owners has "+strconv.Itoa(n))
		}
	}
	shardAt := func(path string, i int, shard uint32) *DecodeError {
		if uint64(shard) < uint64(n) {
			return nil
		}
		return invalid(path, i, "shard "+strconv.FormatUint(uint64(shard), 10)+" is out of range: there are "+strconv.Itoa(n))
	}
	for i, b := range s.Busy {
		if err := shardAt("busy", i, b.Shard); err != nil {
			return err
		}
		if b.Target != NoTarget && (b.Target < 0 || b.Target >= nodes) {
			return invalid("busy", i, outOf("node", b.Target, nodes))
		}
	}
	for i, w := range s.Waiting {
		if err := shardAt("waiting", i, w); err != nil {
			return err
		}
	}
	for i, p := range s.Pinned {
		if err := shardAt("pinned", i, p.Shard); err != nil {
			return err
		}
		if p.Node < 0 || p.Node >= nodes {
			return invalid("pinned", i, outOf("node", p.Node, nodes))
		}
	}
	for i, shard := range shards {
		if err := shardAt("shards", i, shard); err != nil {
			return err
		}
	}
	return nil
}
