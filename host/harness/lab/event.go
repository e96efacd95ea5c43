package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover/pluginapi"
)

// String shows the event to a person.
func (e Event) String() string {
	which := "all"
	if len(e.Shards) > 0 {
		which = shardsText(e.Shards)
	}
	switch e.Kind {
	case Demand:
		return fmt.Sprintf("%s: %s at %d/s", e.Kind, which, e.Rate)
	case Unpin:
		return fmt.Sprintf("%s %s", e.Kind, which)
	case Pin:
		return fmt.Sprintf("%s to %s %s", e.Kind, e.Node, shardsText(e.Shards))
	case Weigh:
		return fmt.Sprintf("%s %s %d", e.Kind, e.Node, e.Weight)
	case Upgrade:
		return fmt.Sprintf("%s %s to %s", e.Kind, e.Node, e.Version)
	}
	return e.Kind.String() + " " + e.Node
}

// Happen lets events happen to the cluster at once, in this order, whatever their rounds. A node that leaves is leaving from
// then on; the simulator takes it away once it has no shards.
func (c *Cluster) Happen(events ...Event) *Cluster {
	w := &world{c: c}
	for _, e := range events {
		w.happen(e)
	}
	return c
}

func (w *world) happen(e Event) {
	switch e.Kind {
	case Join:
		w.c.join(e)
	case Leave:
		w.c.State(pluginapi.StateLeaving, e.Node)
		w.leaving = append(w.leaving, e.Node)
	case Crash:
		w.crash(e.Node)
	case Demand:
		w.demand(e)
	case Drain:
		w.c.State(pluginapi.StateDraining, e.Node)
	case Unreachable:
		w.c.State(pluginapi.StateUnreachable, e.Node)
	case Away:
		w.c.State(pluginapi.StateAway, e.Node).wait(e.Node)
	case Up:
		w.stay(e.Node)
		w.c.State(pluginapi.StateUp, e.Node).wait(e.Node)
	case Weigh:
		w.c.Capacity(e.Weight, e.Node)
	case Upgrade:
		w.c.Version(e.Version, e.Node)
	case Pin:
		w.c.unpin(e.Shards).Pin(e.Node, e.Shards...)
	case Unpin:
		if len(e.Shards) == 0 {
			w.c.s.Pinned = nil
		} else if w.c.has(e.Shards) {
			w.c.unpin(e.Shards)
		}
	default:
		w.c.fail("event %d: want one of %s", e.Kind, strings.Join(EventKinds(), ", "))
	}
}

// stay says that a node does not leave.
func (w *world) stay(node string) {
	w.leaving = slices.DeleteFunc(w.leaving, func(name string) bool { return name == node })
}

// join adds a node that runs what the others run, unless the event says otherwise.
func (c *Cluster) join(e Event) {
	version, versions := "1", map[string]bool{}
	for _, n := range c.s.Nodes {
		versions[n.Version] = true
	}
	if len(versions) == 1 {
		version = c.s.Nodes[0].Version
	}
	c.Join(e.Node)
	if c.err != nil {
		return
	}
	n := &c.s.Nodes[c.s.NodeIndex(e.Node)]
	if e.Spec != nil {
		address, incarnation := n.Addr, n.Incarnation
		*n = *e.Spec
		n.Name = e.Node
		if n.Addr == "" {
			n.Addr = address
		}
		if n.Incarnation == "" {
			n.Incarnation = incarnation
		}
		if n.Version != "" {
			version = n.Version
		}
		c.State(n.State, e.Node)
	}
	n.Version = version
	if e.Version != "" {
		n.Version = e.Version
	}
	if e.Zone != "" {
		n.Zone = e.Zone
	}
	if e.Weight != 0 {
		n.Weight = e.Weight
	}
}

// wait lets the shards of a node wait for it while it is away, and no longer.
func (c *Cluster) wait(node string) {
	n := c.node(node)
	if n == pluginapi.NoTarget {
		return
	}
	c.s.Waiting = slices.DeleteFunc(c.s.Waiting, func(shard uint32) bool { return c.s.OwnerOf(shard) == n })
	if c.s.Nodes[n].State != pluginapi.StateAway {
		return
	}
	for shard := range c.s.Owners {
		if c.s.OwnerOf(uint32(shard)) == n && !c.s.IsBusy(uint32(shard)) {
			c.s.Waiting = append(c.s.Waiting, uint32(shard))
		}
	}
}

func (c *Cluster) unpin(shards []uint32) *Cluster {
	c.s.Pinned = slices.DeleteFunc(c.s.Pinned, func(p pluginapi.Pin) bool { return slices.Contains(shards, p.Shard) })
	return c
}

// After returns the cluster once the moves and homes of an answer are made, as the simulator makes them: a shard takes its
// share of the load along.
func (c *Cluster) After(a *Answer) *Cluster {
	w := &world{c: c.Clone(), loose: map[uint32]map[string]float64{}}
	for _, m := range a.Moves {
		w.put(m.Shard, w.c.node(m.To))
	}
	for _, h := range a.Homes {
		if to := w.c.node(h.Node); to != pluginapi.NoTarget {
			w.put(h.Shard, to)
		}
	}
	return w.c
}
