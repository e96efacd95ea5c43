package scenario

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/internal/tomldoc"
	"github.com/droverhq/drover/pluginapi"
)

// The expectations about where shards are after a step, and about a play as a whole.

// settles reads in how many rounds from the last event on the last change must be.
func (p *parser) settles(path string, v any) judge {
	want, ok := p.number(path, v, 0, mostRounds)
	if !ok {
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		start := o.step.lastEvent()
		took := o.run.Settled - start + 1
		switch {
		case o.run.Settled < 0:
			return o.fault(lab.CheckSettles, fmt.Sprintf("no change after round %d", start+int(want)-1), "it still changes something after %d rounds", len(o.run.Rounds))
		case took > int(want):
			return o.fault(lab.CheckSettles, fmt.Sprintf("no change after round %d", start+int(want)-1), "the last change is in round %d, the %s", o.run.Settled, nth(took, start))
		}
		return nil
	}
}

func nth(n, start int) string {
	if start > 1 {
		return fmt.Sprintf("number %d from the last event on", n)
	}
	return fmt.Sprintf("number %d", n)
}

// cycles reads whether an arrangement comes back with nothing having happened.
func (p *parser) cycles(path string, v any) judge {
	want, ok := v.(bool)
	if !ok {
		p.fail(path, "want true or false, got %s", tomldoc.Describe(v))
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		switch c := o.run.Cycle; {
		case c != nil && !want:
			return o.fault(lab.CheckOscillates, fmt.Sprintf("no move after round %d, or only moves that make the arrangement better by some measure, so that none comes back", c.From),
				"the shards are at the end of round %d where they were at the end of round %d, and nothing has happened to the cluster in between", c.From+c.Length, c.From)
		case c == nil && want:
			return o.fault(lab.CheckOscillates, "an arrangement that comes back", "none did in %d rounds", len(o.run.Rounds))
		}
		return nil
	}
}

// failures reads how many calls may fail; without it none may, which Run sees to.
func (p *parser) failures(path string, v any) judge {
	want, ok := p.number(path, v, 0, math.MaxInt32)
	if !ok {
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		failed := 0
		for _, r := range o.run.Rounds {
			failed += len(r.Failures)
		}
		if failed > int(want) {
			return o.fault(lab.CheckValid, fmt.Sprintf("at most %d calls that fail", want), "%d calls failed", failed)
		}
		return nil
	}
}

// spread is what is where in a cluster.
type spread struct {
	s      *pluginapi.Snapshot
	counts map[string]int // by node
}

func (o *outcome) spread() (*spread, error) {
	s, err := o.after.Snapshot()
	if err != nil {
		return nil, err
	}
	out := &spread{s: s, counts: map[string]int{}}
	for i, n := range s.Placement().Counts {
		out.counts[s.Nodes[i].Name] = n
	}
	return out, nil
}

// about is an expectation about the cluster after a step.
func about(f func(o *outcome, s *spread) error) judge {
	return func(_ context.Context, o *outcome) error {
		s, err := o.spread()
		if err != nil {
			return err
		}
		return f(o, s)
	}
}

// counts reads shards a node; a table says nothing of the nodes that it leaves out. A node that is gone has none.
func (p *parser) counts(path string, v any) judge {
	want, ok := p.world.countTable(path, v)
	if !ok {
		return nil
	}
	return about(func(o *outcome, s *spread) error {
		right, wrong := []string{}, []string{}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			right = append(right, fmt.Sprintf("%s %d", name, want[name]))
			if s.counts[name] != want[name] {
				wrong = append(wrong, fmt.Sprintf("%s %d", name, s.counts[name]))
			}
		}
		if len(wrong) == 0 {
			return nil
		}
		return o.fault(lab.CheckOwners, "shards a node: "+strings.Join(right, ", "), "%s these have other numbers of shards: %s", o.when(), strings.Join(wrong, ", "))
	})
}

// ownersAfter reads the owner of every shard.
func (p *parser) ownersAfter(path string, v any) judge {
	list, ok := p.list(path, v)
	if !ok {
		return nil
	}
	if len(list) != p.world.shards {
		p.fail(path, "%d owners for %d shards", len(list), p.world.shards)
		return nil
	}
	want := map[uint32]string{}
	for i, e := range list {
		name, ok := p.text(tomldoc.Index(path, i), e)
		if !ok || name != "" && !p.world.isNode(tomldoc.Index(path, i), name) {
			return nil
		}
		want[uint32(i)] = name
	}
	return owned(want)
}

// on reads which shards are on a node; nothing is said of others.
func (p *parser) on(path string, v any) judge {
	m, ok := v.(map[string]any)
	if !ok {
		p.fail(path, "want a table of shards by node, got %s", tomldoc.Describe(v))
		return nil
	}
	want := map[uint32]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		at := tomldoc.Join(path, name)
		if !p.world.isNode(at, name) {
			return nil
		}
		shards, ok := p.world.shardList(at, m[name])
		if !ok {
			return nil
		}
		for _, shard := range shards {
			if other, twice := want[shard]; twice {
				p.fail(at, "shard %d is on %s already", shard+p.world.first, other)
				return nil
			}
			want[shard] = name
		}
	}
	return owned(want)
}

func owned(want map[uint32]string) judge {
	return func(_ context.Context, o *outcome) error {
		var right, wrong []string
		for _, shard := range slices.Sorted(maps.Keys(want)) {
			if is := o.after.Owner(shard); is != want[shard] {
				right = append(right, lab.Home{Shard: shard, Node: want[shard]}.String())
				wrong = append(wrong, lab.Home{Shard: shard, Node: is}.String())
			}
		}
		if len(wrong) == 0 {
			return nil
		}
		return o.fault(lab.CheckOwners, few(right), "%s these are elsewhere: %s", o.when(), few(wrong))
	}
}

// few cuts a list that nobody would read to its end.
func few(list []string) string {
	const most = 20
	if more := len(list) - most; more > 0 {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return orNone(list)
}

// empty reads nodes that own no shard; one that is gone owns none.
func (p *parser) empty(path string, v any) judge {
	names, ok := p.world.nodeNames(path, v)
	if !ok {
		return nil
	}
	return about(func(o *outcome, s *spread) error {
		for _, name := range names {
			if n := s.counts[name]; n > 0 {
				return o.fault(lab.CheckOwners, "no shard on "+name, "%s %s has %d shards", o.when(), name, n)
			}
		}
		return nil
	})
}

// homeless reads how many shards need a home and have none.
func (p *parser) homeless(path string, v any) judge {
	want, ok := p.number(path, v, 0, math.MaxInt32)
	if !ok {
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		if got := o.after.Homeless(); len(got) != int(want) {
			return o.fault(lab.CheckHomes, fmt.Sprintf("%d shards without a home", want), "%s %d shards need a home and have none: %s", o.when(), len(got), few(texts(got)))
		}
		return nil
	}
}

func texts(shards []uint32) []string {
	out := make([]string, len(shards))
	for i, shard := range shards {
		out[i] = fmt.Sprint(shard)
	}
	return out
}

// difference is an expectation about the most less the least of something, each part of it by its name.
func (p *parser) difference(path string, v any, c lab.Check, noun, of string, parts func(*spread) map[string]int) judge {
	want, ok := p.number(path, v, 0, math.MaxInt32)
	if !ok {
		return nil
	}
	return about(func(o *outcome, s *spread) error {
		all := parts(s)
		most, least := "", ""
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if most == "" && least == "" || all[name] > all[most] {
				most = name
			}
			if least == "" && most == name || all[name] < all[least] {
				least = name
			}
		}
		if d := all[most] - all[least]; d > int(want) {
			return o.fault(c, fmt.Sprintf("a difference of at most %d %s", want, noun), "%s %s %s has %d %s and %s has %d", o.when(), of, most, all[most], noun, least, all[least])
		}
		return nil
	})
}

// imbalance reads by how many shards the fullest candidate may have more than the emptiest.
func (p *parser) imbalance(path string, v any) judge {
	return p.difference(path, v, lab.CheckEven, "shards", "candidate", func(s *spread) map[string]int {
		all := map[string]int{}
		for _, c := range s.s.Candidates {
			all[s.s.Nodes[c].Name] = s.counts[s.s.Nodes[c].Name]
		}
		return all
	})
}

// capacity reads by how many shards a candidate may miss its part of them by weight. Where all weights are 0, parts are equal.
func (p *parser) capacity(path string, v any) judge {
	want, ok := p.number(path, v, 0, math.MaxInt32)
	if !ok {
		return nil
	}
	return about(func(o *outcome, s *spread) error {
		total, weights := 0, 0.0
		for _, c := range s.s.Candidates {
			total += s.counts[s.s.Nodes[c].Name]
			weights += float64(s.s.Nodes[c].Weight)
		}
		for _, c := range s.s.Candidates {
			n := s.s.Nodes[c]
			part := float64(total) / float64(len(s.s.Candidates))
			if weights > 0 {
				part = float64(total) * float64(n.Weight) / weights
			}
			if got := s.counts[n.Name]; math.Abs(float64(got)-part) > float64(want) {
				return o.fault(lab.CheckEven, fmt.Sprintf("%.1f of the %d shards on %s by its weight of %d, give or take %d", part, total, n.Name, n.Weight, want),
					"%s %s has %d shards", o.when(), n.Name, got)
			}
		}
		return nil
	})
}

// zones reads by how many shards the fullest zone of candidates may have more than the emptiest.
func (p *parser) zones(path string, v any) judge {
	return p.difference(path, v, lab.CheckZones, "shards", "zone", func(s *spread) map[string]int {
		all := map[string]int{}
		for _, c := range s.s.Candidates {
			all[s.s.Nodes[c].Zone] += s.counts[s.s.Nodes[c].Name]
		}
		return all
	})
}

// rates reads by how many messages a second the busiest candidate may have more than the idlest: of its shards, as far as
// their rates are known.
func (p *parser) rates(path string, v any) judge {
	return p.difference(path, v, lab.CheckEven, "messages a second", "candidate", func(s *spread) map[string]int {
		all := map[string]int{}
		for _, c := range s.s.Candidates {
			all[s.s.Nodes[c].Name] = 0
		}
		for shard, rate := range s.s.Load.Rate {
			owner := s.s.OwnerOf(uint32(shard))
			if owner == pluginapi.NoTarget || rate == pluginapi.UnknownLoad {
				continue
			}
			if _, candidate := all[s.s.Nodes[owner].Name]; candidate {
				all[s.s.Nodes[owner].Name] += int(rate)
			}
		}
		return all
	})
}

// standby reads that no shard is in the zone of its standby, where there is another zone.
func (p *parser) standby(path string, v any) judge {
	if v != true {
		p.fail(path, "want true, got %s", tomldoc.Describe(v))
		return nil
	}
	return about(func(o *outcome, s *spread) error {
		for shard, standby := range s.s.Standby {
			owner := s.s.OwnerOf(uint32(shard))
			if owner == pluginapi.NoTarget || standby == pluginapi.NoOwner || s.s.Nodes[owner].Zone != s.s.Nodes[standby].Zone {
				continue
			}
			return o.fault(lab.CheckZones, fmt.Sprintf("shard %d in another zone than %q", shard, s.s.Nodes[owner].Zone),
				"%s shard %d is on %s, in the zone of its standby %s", o.when(), shard, s.s.Nodes[owner].Name, s.s.Nodes[standby].Name)
		}
		return nil
	})
}

// fuel reads the most fuel of a question, or of a round of a play, all its calls together. A native strategy has none.
func (p *parser) fuel(path string, v any) judge {
	want, ok := p.number(path, v, 0, math.MaxInt64)
	if !ok {
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		right := fmt.Sprintf("at most %d units", want)
		if o.run == nil && o.answer.Fuel > want {
			return o.fault(lab.CheckFuel, right, "%s took %d units of fuel", o.answer.Op, o.answer.Fuel)
		}
		if o.run != nil {
			for _, r := range o.run.Rounds {
				if r.Fuel > want {
					return o.fault(lab.CheckFuel, right, "round %d took %d units of fuel", r.Number, r.Fuel)
				}
			}
		}
		return nil
	}
}
