package snapshotfile

import (
	"encoding/binary"
	"math"

	"github.com/droverhq/drover/pluginapi"
)

// node reads a plain name or a map.
func node(path string, v any) (pluginapi.Node, error) {
	n := pluginapi.Node{State: pluginapi.StateUp, Weight: 100}
	if name, ok := v.(string); ok {
		n.Name, n.Addr = name, name
		return n, checkName(path, name)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return n, fault(path, "want a node's name or a map with a name, got %s", kind(v))
	}
	if err := keys(path, m, "name", "addr", "incarnation", "state", "roles", "version", "weight", "zone", "tags", "coord",
		"load"); err != nil {
		return n, err
	}
	if _, found := m["name"]; !found {
		return n, fault(child(path, "name"), "the key is missing")
	}
	for _, f := range []struct {
		key string
		dst *string
	}{{"name", &n.Name}, {"addr", &n.Addr}, {"incarnation", &n.Incarnation}, {"version", &n.Version}, {"zone", &n.Zone}} {
		if v, found := m[f.key]; found {
			var err error
			if *f.dst, err = textOf(child(path, f.key), v); err != nil {
				return n, err
			}
		}
	}
	if err := checkName(child(path, "name"), n.Name); err != nil {
		return n, err
	}
	if _, found := m["addr"]; !found {
		n.Addr = n.Name
	}
	if v, found := m["state"]; found {
		state, err := textOf(child(path, "state"), v)
		if err != nil {
			return n, err
		}
		if n.State, ok = pluginapi.ParseNodeState(state); !ok {
			return n, fault(child(path, "state"), "want up, joining, leaving, draining, unreachable or away, got %q", state)
		}
	}
	if v, found := m["weight"]; found {
		var err error
		if n.Weight, err = uintOf(child(path, "weight"), v, math.MaxUint64); err != nil {
			return n, err
		}
	}
	if v, found := m["roles"]; found {
		list, err := listOf(child(path, "roles"), v)
		if err != nil {
			return n, err
		}
		for i, e := range list {
			role, err := textOf(at(child(path, "roles"), i), e)
			if err != nil {
				return n, err
			}
			n.Roles = append(n.Roles, role)
		}
	}
	if v, found := m["tags"]; found {
		tags, err := mapOf(child(path, "tags"), v)
		if err != nil {
			return n, err
		}
		for key, v := range tags {
			value, err := textOf(child(child(path, "tags"), key), v)
			if err != nil {
				return n, err
			}
			n.Tags = append(n.Tags, pluginapi.Tag{Key: key, Value: value})
		}
		pluginapi.SortTags(n.Tags)
	}
	if v, found := m["coord"]; found {
		var err error
		if n.Coord, err = coord(child(path, "coord"), v); err != nil {
			return n, err
		}
	}
	if v, found := m["load"]; found {
		return n, nodeLoad(child(path, "load"), v, &n.Load)
	}
	return n, nil
}

func checkName(path, name string) error {
	if name == "" {
		return fault(path, "a node's name is empty")
	}
	return nil
}

// coord reads a typed array, a list of numbers in its order, or a map.
func coord(path string, v any) (c pluginapi.Coord, err error) {
	var vs []float64
	if m, ok := v.(map[string]any); ok {
		if err := keys(path, m, "vector", "error", "adjustment", "height"); err != nil {
			return c, err
		}
		if c.Vec, err = floats(child(path, "vector"), m["vector"]); err != nil {
			return c, err
		}
		if len(c.Vec) == 0 {
			return c, fault(child(path, "vector"), "want at least one number")
		}
		for key, dst := range map[string]*float64{"error": &c.Error, "adjustment": &c.Adjustment, "height": &c.Height} {
			if v, found := m[key]; found {
				if *dst, ok = floatOf(v); !ok {
					return c, fault(child(path, key), "want a number, got %s", kind(v))
				}
			}
		}
		return c, nil
	}
	if raw, width, ok := typedFloats(v); ok {
		for i := 0; i+width <= len(raw); i += width {
			vs = append(vs, math.Float64frombits(binary.LittleEndian.Uint64(raw[i:])))
		}
	} else if vs, err = floats(path, v); err != nil {
		return c, err
	}
	if len(vs) < 4 {
		return c, fault(path, "want a vector, error, adjustment and height, got %d numbers", len(vs))
	}
	last := len(vs) - 3
	return pluginapi.Coord{Vec: vs[:last:last], Error: vs[last], Adjustment: vs[last+1], Height: vs[last+2]}, nil
}

func nodeLoad(path string, v any, l *pluginapi.NodeLoad) error {
	m, err := mapOf(path, v)
	if err != nil {
		return err
	}
	figures := map[string]*pluginapi.Figure{
		"cpu": &l.CPU, "mem": &l.Mem, "entities": &l.Entities, "rate": &l.Rate, "depth": &l.Depth,
		"disk": &l.Disk, "diskfree": &l.DiskFree, "read": &l.Read, "write": &l.Write,
	}
	if err := keys(path, m, "cpu", "mem", "entities", "rate", "depth", "disk", "diskfree", "read", "write"); err != nil {
		return err
	}
	for key, v := range m {
		n, err := uintOf(child(path, key), v, math.MaxUint64)
		if err != nil {
			return err
		}
		*figures[key] = pluginapi.Known(n)
	}
	return nil
}
