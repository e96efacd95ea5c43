package scenario

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/internal/tomldoc"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
)

// stepKeys are those of a step, and of a scenario that is its own only step.
var stepKeys = []string{"op", "events", "ask", "rounds", "handoff", "expect"}

// mostRounds and mostHandoff bound a play.
const (
	mostRounds  = 100_000
	mostHandoff = 1000
)

// step reads a step. Its table may have other keys: those of the scenario.
func (p *parser) step(t *table) Step {
	s := Step{Line: max(1, p.spots[t.path].Key.Line)}
	text, ok := t.text("op")
	switch op := slices.Index(opNames[:], text); {
	case ok && op >= int(Rebalance):
		s.Op = Op(op)
	case ok:
		p.fail(t.child("op"), "want %s, got %s", strings.Join(opNames[Rebalance:], ", "), tomldoc.QuoteText(text))
	case t.m["op"] == nil:
		p.fail(t.child("op"), "it is missing: want %s", strings.Join(opNames[Rebalance:], ", "))
	}
	if s.Op == 0 {
		return s
	}
	for key, of := range map[string]Op{"ask": Allocate, "rounds": Play, "handoff": Play} {
		if _, given := t.m[key]; given && of != s.Op {
			p.fail(t.child(key), "it is of %s, not of %s", of, s.Op)
		}
	}
	if v, given := t.m["ask"]; given && s.Op == Allocate {
		s.Ask, _ = p.world.shardList(t.child("ask"), v)
		if s.Ask == nil {
			s.Ask = []uint32{}
		}
	}
	if n, ok := t.number("rounds", 1, mostRounds); ok {
		s.Play.Rounds = int(n)
	}
	if n, ok := t.number("handoff", 0, mostHandoff); ok {
		s.Play.Handoff = int(n)
	}
	events := p.events(t, &s)
	if s.Op == Play {
		s.Play.Events, s.Play.Quiet = events, quiet
	} else {
		s.Events = events
	}
	if expect := t.sub("expect"); expect != nil {
		p.expects(expect, &s)
		p.enoughRounds(expect, &s)
	}
	return s
}

// quiet is how many rounds without a change tell that there will be none.
const quiet = 3

// enoughRounds refuses a play that is too short to tell whether it settles.
func (p *parser) enoughRounds(expect *table, s *Step) {
	within, ok := expect.m["settles_within"].(int64)
	if !ok || within > mostRounds || s.Op != Play {
		return
	}
	if need, has := s.lastEvent()-1+int(within)+quiet, cmp.Or(s.Play.Rounds, defaultRounds); need > has {
		p.fail(expect.child("settles_within"), "in %d rounds it cannot be told, only in %d: rounds = %d", has, need, need)
	}
}

// lastEvent is the round of the last event of a play, 1 where there is none.
func (s *Step) lastEvent() int {
	round := 1
	for _, e := range s.Play.Events {
		round = max(round, e.Round)
	}
	return round
}

// eventKeys says which keys an event of a kind may have, beside round and kind; those with ! it must have.
var eventKeys = map[lab.EventKind][]string{
	lab.Join: append([]string{"node!"}, nodeKeys...), lab.Leave: {"node!"}, lab.Crash: {"node!"}, lab.Drain: {"node!"},
	lab.Unreachable: {"node!"}, lab.Away: {"node!"}, lab.Up: {"node!"}, lab.Demand: {"rate!", "shards"},
	lab.Weigh: {"node!", "weight!"}, lab.Upgrade: {"node!", "version!"}, lab.Pin: {"node!", "shards!"}, lab.Unpin: {"shards"},
}

// nodeKeys are those of a node of the cluster, beside its name.
var nodeKeys = []string{"addr", "incarnation", "state", "roles", "version", "weight", "zone", "tags", "coord", "load"}

func (p *parser) events(t *table, s *Step) []lab.Event {
	list, ok := t.list("events")
	if !ok {
		return nil
	}
	var out []lab.Event
	for i, e := range list {
		path := tomldoc.Index(t.child("events"), i)
		m, ok := e.(map[string]any)
		if !ok {
			p.fail(path, "want a table, got %s", tomldoc.Describe(e))
			continue
		}
		if event, ok := p.event(p.table(path, m), s); ok {
			out = append(out, event)
		}
	}
	// A node is there once it has come: events are told in any order.
	for _, e := range out {
		if e.Kind == lab.Join {
			p.world.known[e.Node] = true
		}
	}
	for i, e := range out {
		if e.Kind != lab.Join && e.Node != "" {
			p.world.isNode(tomldoc.Join(tomldoc.Index(t.child("events"), i), "node"), e.Node)
		}
	}
	return out
}

func (p *parser) event(t *table, s *Step) (e lab.Event, ok bool) {
	before := len(p.errs)
	kind, ok := t.text("kind")
	if !ok {
		if t.m["kind"] == nil {
			p.fail(t.child("kind"), "it is missing: want one of %s", strings.Join(lab.EventKinds(), ", "))
		}
		return e, false
	}
	if e.Kind.UnmarshalText([]byte(kind)) != nil {
		hint := tomldoc.DidYouMean(kind, lab.EventKinds())
		if hint == "" {
			hint = ": want one of " + strings.Join(lab.EventKinds(), ", ")
		}
		p.fail(t.child("kind"), "there is no event %s%s", tomldoc.QuoteText(kind), hint)
		return e, false
	}
	has := []string{"kind!"}
	if s.Op == Play {
		has = append(has, "round!")
	}
	var known []string
	for _, key := range append(has, eventKeys[e.Kind]...) {
		key, must := strings.CutSuffix(key, "!")
		known = append(known, key)
		if _, given := t.m[key]; must && !given {
			p.fail(t.child(key), "it is missing: an event %s says it", e.Kind)
		}
	}
	p.unknownKeys(t, known)
	if n, ok := t.number("round", 1, mostRounds); ok {
		e.Round = int(n)
		if most := cmp.Or(s.Play.Rounds, defaultRounds); e.Round > most {
			p.fail(t.child("round"), "round %d is not played: rounds is %d", e.Round, most)
		}
	}
	e.Node, _ = t.text("node")
	if n, ok := t.number("rate", 0, math.MaxUint32-1); ok {
		e.Rate = uint32(n)
	}
	if v, given := t.m["shards"]; given {
		e.Shards, _ = p.world.shardList(t.child("shards"), v)
		if len(e.Shards) == 0 && len(p.errs) == before {
			p.fail(t.child("shards"), "the list is empty: leave it out for all shards")
		}
	}
	switch e.Kind {
	case lab.Join:
		p.joining(t, &e)
	case lab.Weigh:
		if n, ok := t.number("weight", 0, math.MaxInt64); ok {
			e.Weight = uint64(n)
		}
	case lab.Upgrade:
		e.Version, _ = t.text("version")
	}
	return e, len(p.errs) == before
}

// defaultRounds is how many rounds are played where nothing is said.
const defaultRounds = 100

// joining reads what an event says of a node that comes, as of a node of the cluster.
func (p *parser) joining(t *table, e *lab.Event) {
	node := maps.Clone(t.m)
	maps.DeleteFunc(node, func(key string, _ any) bool { return !slices.Contains(nodeKeys, key) })
	node["name"] = e.Node
	spec, err := snapshotfile.NodeFromTree(t.path, node)
	if err != nil {
		if at, ok := err.(*snapshotfile.Error); ok {
			if at.Path == t.path+".name" {
				at.Path = t.path + ".node"
			}
			p.fail(at.Path, "%s", at.Message)
		}
		return
	}
	if spec.Addr == spec.Name {
		spec.Addr = ""
	}
	e.Spec, e.Zone, e.Weight, e.Version = &spec, spec.Zone, spec.Weight, spec.Version
}
