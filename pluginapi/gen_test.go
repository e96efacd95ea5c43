package pluginapi_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/droverhq/drover/pluginapi"
)

// anySnapshot draws a valid snapshot, with every part that may be there.
func anySnapshot() *rapid.Generator[pluginapi.Snapshot] {
	return rapid.Custom(func(t *rapid.T) pluginapi.Snapshot {
		word := rapid.StringMatching(`[a-zé0-9]{0,12}`)
		s := pluginapi.Snapshot{
			Type:     word.Draw(t, "type"),
			Revision: rapid.Uint64().Draw(t, "revision"),
			Now:      rapid.Uint64().Draw(t, "now"),
			Seed:     rapid.Uint64().Draw(t, "seed"),
			MaxMoves: rapid.Uint64().Draw(t, "moves"),
		}
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{1,30}`), 0, 6, rapid.ID).Draw(t, "names")
		slices.Sort(names)
		nodes := len(names)
		for i, name := range names {
			n := pluginapi.Node{
				Name: name, Addr: word.Draw(t, "addr"), Incarnation: word.Draw(t, "incarnation"),
				State:   pluginapi.NodeState(rapid.IntRange(1, 6).Draw(t, "state")),
				Roles:   rapid.SliceOfN(word, 0, 3).Draw(t, "roles"),
				Version: word.Draw(t, "version"), Weight: rapid.Uint64().Draw(t, "weight"), Zone: word.Draw(t, "zone"),
			}
			for _, key := range rapid.SliceOfNDistinct(word, 0, 4, rapid.ID).Draw(t, "tags") {
				n.Tags = append(n.Tags, pluginapi.Tag{Key: key, Value: word.Draw(t, "tag")})
			}
			pluginapi.SortTags(n.Tags)
			if rapid.Bool().Draw(t, "has coord") {
				n.Coord = pluginapi.Coord{
					Vec:   rapid.SliceOfN(rapid.Float64(), 1, 8).Draw(t, "vec"),
					Error: rapid.Float64Range(0.1, 2).Draw(t, "error"), Adjustment: rapid.Float64().Draw(t, "adjustment"),
					Height: rapid.Float64().Draw(t, "height"),
				}
			}
			l := &n.Load
			for _, f := range []*pluginapi.Figure{&l.CPU, &l.Mem, &l.Entities, &l.Rate, &l.Depth, &l.Disk, &l.DiskFree, &l.Read, &l.Write} {
				if rapid.Bool().Draw(t, "known") {
					*f = pluginapi.Known(rapid.Uint64().Draw(t, "figure"))
				}
			}
			s.Nodes = append(s.Nodes, n)
			if rapid.Bool().Draw(t, "candidate") {
				s.Candidates = append(s.Candidates, i)
			}
		}
		shards := rapid.IntRange(0, 12).Draw(t, "shards")
		node := func(label string) int { return rapid.IntRange(-1, nodes-1).Draw(t, label) }
		column := func(label string) []uint32 {
			c := make([]uint32, shards)
			for i := range c {
				c[i] = uint32(node(label)) // -1 becomes NoOwner
			}
			return c
		}
		s.Owners = column("owner")
		if rapid.Bool().Draw(t, "has standby") {
			s.Standby = column("standby")
		}
		figures := func() []uint32 { return rapid.SliceOfN(rapid.Uint32(), shards, shards).Draw(t, "figures") }
		if rapid.Bool().Draw(t, "has load") {
			s.Load = pluginapi.ShardLoads{Entities: figures(), Rate: figures(), Bytes: rapid.SliceOfN(rapid.Uint64(), shards, shards).Draw(t, "bytes")}
		}
		for shard := range shards {
			switch rapid.IntRange(0, 5).Draw(t, "special") {
			case 0:
				s.Busy = append(s.Busy, pluginapi.Busy{Shard: uint32(shard), Target: node("target")})
			case 1:
				s.Waiting = append(s.Waiting, uint32(shard))
			case 2:
				if nodes > 0 {
					s.Pinned = append(s.Pinned, pluginapi.Pin{Shard: uint32(shard), Node: rapid.IntRange(0, nodes-1).Draw(t, "pin")})
				}
			}
		}
		if rapid.Bool().Draw(t, "has config") {
			c, err := pluginapi.NewConfig(anyTable(t, 2))
			if err != nil {
				panic(fmt.Sprint("a table of configuration: ", err))
			}
			s.Config = c
		}
		return s
	})
}

func anyTable(t *rapid.T, depth int) map[string]any {
	table := map[string]any{}
	for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_]{0,8}`), 0, 4, rapid.ID).Draw(t, "keys") {
		table[key] = anyValue(t, depth)
	}
	return table
}

func anyValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 0 {
		kinds = 8
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return 1<<63 + rapid.Uint64Range(0, 1<<63-1).Draw(t, "uint")
	case 4:
		return rapid.Float64().Draw(t, "float")
	case 5:
		return rapid.String().Draw(t, "text")
	case 6:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, anyValue(t, depth-1))
		}
		return list
	}
	return anyTable(t, depth-1)
}

// anyShards draws the shards of an allocate on s.
func anyShards(t *rapid.T, s *pluginapi.Snapshot) []uint32 {
	shards := []uint32{}
	for shard := range s.Owners {
		if rapid.Bool().Draw(t, "asked") {
			shards = append(shards, uint32(shard))
		}
	}
	return shards
}

func anyText(t *rapid.T) string { return rapid.StringMatching(`[a-z é]{0,30}`).Draw(t, "text") }

func anyHomes(t *rapid.T) pluginapi.Homes {
	h := pluginapi.Homes{Nodes: rapid.SliceOfN(rapid.IntRange(-1, 300), 0, 10).Draw(t, "homes"), Reason: anyText(t)}
	if rapid.Bool().Draw(t, "has reasons") {
		for range h.Nodes {
			h.Reasons = append(h.Reasons, anyText(t))
		}
	}
	return h
}

func anyPlan(t *rapid.T) pluginapi.Plan {
	p := pluginapi.Plan{Reason: anyText(t)}
	for range rapid.IntRange(0, 6).Draw(t, "moves") {
		p.Moves = append(p.Moves, pluginapi.Move{
			Shard: rapid.Uint32().Draw(t, "shard"), Target: rapid.IntRange(-1, 1<<31-1).Draw(t, "target"), Reason: anyText(t),
		})
	}
	return p
}

func anyDescription(t *rapid.T) pluginapi.Description {
	d := pluginapi.Description{Name: anyText(t), Version: anyText(t), Summary: anyText(t)}
	for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}`), 0, 4, rapid.ID).Draw(t, "keys") {
		d.Config = append(d.Config, pluginapi.ConfigKey{Key: key, Type: anyText(t), Default: anyValue(t, 1), Help: anyText(t)})
	}
	slices.SortFunc(d.Config, func(a, b pluginapi.ConfigKey) int { // as they are encoded
		if len(a.Key) != len(b.Key) {
			return len(a.Key) - len(b.Key)
		}
		return slices.Compare([]byte(a.Key), []byte(b.Key))
	})
	return d
}
