package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/placement"
)

// Accept returns nil for a decision, and the fault of an answer that is a failure. The shards are those of an allocate.
func (s *Strategy) Accept(c *Cluster, shards []uint32, a *Answer) error {
	if a.Verdict == host.VerdictOK {
		return nil
	}
	f := &Fault{Check: CheckValid, Strategy: s.name, What: fmt.Sprintf("%s failed: %v", a.Op, a.Err),
		Right: rights[a.Verdict], Cluster: c, Shards: shards, Answer: a}
	if a.Verdict == host.VerdictRefused {
		f.Check, f.Answer = CheckAdmitted, nil
	}
	var p *placement.Error
	var failure *pluginapi.Failure
	switch {
	case errors.As(a.Err, &p):
		f.What = fmt.Sprintf("%s broke the rule %s: %v", a.Op, p.Rule, p)
		f.Right = allowed(p, c)
	case errors.As(a.Err, &failure):
		f.Right = "a decision: a snapshot as the contract has it is no reason to fail"
	}
	return f
}

var rights = map[host.Verdict]string{
	host.VerdictRefused: "a module and a configuration that pass `drover strategy check`",
	host.VerdictTrap:    "an answer, whatever is missing from the snapshot: nodes, candidates, shards, loads",
	host.VerdictFuel:    "an answer for less fuel",
	host.VerdictDepth:   "an answer without such deep recursion",
	host.VerdictBudget:  "an answer within the budget",
	host.VerdictOutput:  "an answer as pluginapi/strategy.cddl has it",
}

// allowed says what would have been right in the place of a move or a home that was refused.
func allowed(p *placement.Error, c *Cluster) string {
	switch p.Rule {
	case placement.UnknownShard:
		return fmt.Sprintf("a shard that is there: there are %d, from 0 on", len(c.s.Owners))
	case placement.UnknownNode, placement.NotCandidate:
		var candidates []string
		for i, is := range c.candidate {
			if is {
				candidates = append(candidates, fmt.Sprintf("%d (%s)", i, c.name(i)))
			}
		}
		return fmt.Sprintf("for shard %d a candidate, by its index into nodes, or none; the candidates are: %s", p.Shard, listText(candidates))
	case placement.Busy:
		return fmt.Sprintf("to leave shard %d alone while it is busy, and to count it at its target", p.Shard)
	case placement.Waiting:
		return fmt.Sprintf("to leave shard %d alone while it waits", p.Shard)
	case placement.Pinned:
		return fmt.Sprintf("to leave shard %d on %s, where it is pinned", p.Shard, c.name(c.s.PinnedTo(p.Shard)))
	case placement.Homeless:
		return fmt.Sprintf("to leave shard %d to allocate: it has no owner", p.Shard)
	case placement.PresentOwner:
		return fmt.Sprintf("no move of shard %d: it is on %s already", p.Shard, c.Owner(p.Shard))
	case placement.Duplicate:
		return fmt.Sprintf("one move of shard %d", p.Shard)
	}
	return "one home for each shard asked for, in the same order; null for none"
}

// both asks for moves and for homes: of the shards that need one, and of all that may have to leave their node. A node asks
// for no homes of no shards.
func (s *Strategy) both(c *Cluster, f func(op pluginapi.Op, shards []uint32) error) error {
	if err := f(pluginapi.OpRebalance, nil); err != nil {
		return err
	}
	if homeless := c.Homeless(); len(homeless) > 0 {
		if err := f(pluginapi.OpAllocate, homeless); err != nil {
			return err
		}
	}
	p := c.s.Placement()
	var all []uint32
	for shard := range c.s.Owners {
		if p.Movable(uint32(shard)) {
			all = append(all, uint32(shard))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return f(pluginapi.OpAllocate, all)
}

// Valid checks that the host can act on what the strategy answers about the cluster: the right shape, shards and nodes that
// are there, targets that are candidates, no busy, waiting or pinned shard, none twice, none that is there already.
func (s *Strategy) Valid(ctx context.Context, c *Cluster) error {
	return s.both(c, func(op pluginapi.Op, shards []uint32) error {
		a, err := s.ask(ctx, host.Compiler, op, c, shards, 0)
		if err != nil {
			return err
		}
		return s.Accept(c, shards, a)
	})
}

// How often Repeatable asks again. What depends on the order of a map comes out otherwise in one of several; a module has
// no source of chance, and starts from the same image.
const (
	repeatsNative = 8
	repeatsModule = 2
)

// Repeatable checks that the same input gives the same bytes for the same fuel and memory, asked again and again, and about
// something else in between. A native strategy has no fuel; it must leave the snapshot as it is.
func (s *Strategy) Repeatable(ctx context.Context, c *Cluster) error {
	decoy := NewCluster(2, 4).AllOn("a")
	decoy.s.Config = c.s.Config
	return s.both(c, func(op pluginapi.Op, shards []uint32) error {
		first, err := s.ask(ctx, host.Compiler, op, c, shards, 0)
		if err != nil {
			return err
		}
		repeats := repeatsModule
		if s.native != nil {
			repeats = repeatsNative
		}
		for range repeats {
			again, err := s.ask(ctx, host.Compiler, op, c, shards, 0)
			if err == nil {
				err = s.same(c, shards, first, again, "asked again")
			}
			if err == nil {
				_, err = s.Rebalance(ctx, decoy)
			}
			if err != nil {
				return err
			}
		}
		if s.native != nil {
			return s.pure(c, op, shards)
		}
		return nil
	})
}

// Deterministic is Repeatable, and the same by an instance that is made anew and in the other engine. A native strategy has
// but one value.
func (s *Strategy) Deterministic(ctx context.Context, c *Cluster) error {
	if err := s.Repeatable(ctx, c); err != nil || s.native != nil {
		return err
	}
	snap, err := c.Snapshot()
	if err != nil {
		return err
	}
	config := string(snap.Config)
	fresh, err := s.fresh(ctx, way{host.Compiler, config})
	if _, refused := host.VerdictOf(err); err != nil && refused {
		return nil // Valid tells
	}
	if err != nil {
		return err
	}
	err = s.both(c, func(op pluginapi.Op, shards []uint32) error {
		first, err := s.ask(ctx, host.Compiler, op, c, shards, 0)
		if err != nil {
			return err
		}
		again := answer(fresh.Call(ctx, op, snap, shards, 0), op, snap, shards)
		if err := s.same(c, shards, first, again, "asked in an instance made anew"); err != nil {
			return err
		}
		again, err = s.ask(ctx, host.Interpreter, op, c, shards, 0)
		if err == nil {
			err = s.same(c, shards, first, again, "asked in the interpreter")
		}
		return err
	})
	return errors.Join(err, fresh.Close(ctx))
}

func (s *Strategy) same(c *Cluster, shards []uint32, first, again *Answer, how string) error {
	diff := differ(first, again)
	if diff == "" {
		return nil
	}
	return &Fault{Check: CheckDeterministic, Strategy: s.name, Cluster: c, Shards: shards, Answer: first,
		What:  fmt.Sprintf("%s, %s: %s", how, diff, again),
		Right: "the same bytes, for the same fuel and memory, each time: a strategy is a function of its input alone, without state, clock, chance or the order of a map"}
}

// pure checks that a native strategy leaves the snapshot alone: a module gets bytes of its own.
func (s *Strategy) pure(c *Cluster, op pluginapi.Op, shards []uint32) (err error) {
	snap, err := c.Snapshot()
	if err != nil {
		return err
	}
	asked := slices.Clone(shards)
	before := pluginapi.AppendInput(nil, op, snap, asked)
	defer func() {
		_ = recover() // a panic is Valid's to tell
		if err == nil && !bytes.Equal(before, pluginapi.AppendInput(nil, op, snap, asked)) {
			err = s.fault(CheckPure, c, nil, "to copy what it wants to sort or change", "%s changed the snapshot that it was given", op)
		}
	}()
	if op == pluginapi.OpAllocate {
		_, _ = s.native.Allocate(snap, asked)
	} else {
		_, _ = s.native.Rebalance(snap)
	}
	return nil
}

// differ says how two answers to the same input differ; "" where they do not.
func differ(a, b *Answer) string {
	switch {
	case a.Verdict != b.Verdict:
		return fmt.Sprintf("another verdict, %s", b.Verdict)
	case !bytes.Equal(a.Output, b.Output):
		return "another answer"
	case fmt.Sprint(a.Err) != fmt.Sprint(b.Err):
		return "another error"
	case a.Fuel != b.Fuel:
		return fmt.Sprintf("%d units of fuel", b.Fuel)
	case a.Pages != b.Pages:
		return fmt.Sprintf("%d pages of memory", b.Pages)
	}
	return ""
}

// OrderFree checks that the decision does not depend on the order of lists that mean sets: busy, waiting and pinned
// shards, and the roles of a node.
func (s *Strategy) OrderFree(ctx context.Context, c *Cluster) error {
	other := c.Clone()
	slices.Reverse(other.s.Busy)
	slices.Reverse(other.s.Waiting)
	slices.Reverse(other.s.Pinned)
	for i := range other.s.Nodes {
		roles := slices.Clone(other.s.Nodes[i].Roles)
		slices.Reverse(roles)
		other.s.Nodes[i].Roles = roles
	}
	return s.both(c, func(op pluginapi.Op, shards []uint32) error {
		a, err := s.ask(ctx, host.Compiler, op, c, shards, 0)
		if err != nil {
			return err
		}
		b, err := s.ask(ctx, host.Compiler, op, other, shards, 0)
		if err != nil {
			return err
		}
		if a.Verdict != b.Verdict || !sameMoves(a.Moves, b.Moves) || !slices.Equal(a.Homes, b.Homes) {
			return s.fault(CheckOrder, c, a, "the same decision: the order of these lists means nothing",
				"with its lists of busy, waiting and pinned shards and of roles turned round it decides otherwise: %s", b)
		}
		return nil
	})
}

// sameMoves compares without reasons, which are for people.
func sameMoves(a, b []Move) bool {
	return slices.EqualFunc(a, b, func(a, b Move) bool { return a.Shard == b.Shard && a.From == b.From && a.To == b.To })
}

// Forward checks that a module passes over keys that a later version of the contract may add, and takes keys in any order.
// A native strategy never sees them.
func (s *Strategy) Forward(ctx context.Context, c *Cluster) error {
	if s.native != nil {
		return nil
	}
	return s.both(c, func(op pluginapi.Op, shards []uint32) error {
		a, err := s.ask(ctx, host.Compiler, op, c, shards, 0)
		if err != nil {
			return err
		}
		snap, err := c.Snapshot()
		if err != nil {
			return err
		}
		later, err := laterInput(pluginapi.AppendInput(nil, op, snap, shards))
		if err != nil {
			return err
		}
		h, err := s.ready(ctx, way{host.Compiler, string(snap.Config)})
		if err != nil {
			return err
		}
		r, err := h.Replay(ctx, later, 0)
		if err != nil {
			return err
		}
		if b := answer(r, op, snap, shards); a.Verdict != b.Verdict || !bytes.Equal(a.Output, b.Output) {
			return s.fault(CheckForward, c, a, "the same answer: keys come in any order, and unknown ones are skipped, whatever their values",
				"with keys that are not known yet, and the others in another order, it answers otherwise: %s", b)
		}
		return nil
	})
}

// rounds plays the strategy on the cluster as it stands, and returns what went wrong besides moves.
func (s *Strategy) rounds(ctx context.Context, c *Cluster, n int) (*Run, error) {
	run, err := Simulate(ctx, s, c, Options{Rounds: n})
	if err == nil {
		err = s.Failure(run)
	}
	return run, err
}

// Failure returns the fault of the first call of a run that failed, nil where none did.
func (s *Strategy) Failure(r *Run) error {
	if r.failed == nil {
		return nil
	}
	return s.Accept(r.failedAt, nil, r.failed)
}

// Trail is the last rounds of a run that changed anything, a line each; of one that oscillates the first cycle.
func (r *Run) Trail() []string {
	const most = 8
	var lines []string
	for _, round := range r.Rounds {
		if len(round.Moves)+len(round.Homes) == 0 || r.Cycle != nil && (round.Number <= r.Cycle.From || round.Number > r.Cycle.From+r.Cycle.Length) {
			continue
		}
		line := fmt.Sprintf("round %d: moves: %s", round.Number, listText(texts(round.Moves)))
		if len(round.Homes) > 0 {
			line += "; homes: " + listText(texts(round.Homes))
		}
		shares := make([]string, len(round.Nodes))
		for i, n := range round.Nodes {
			shares[i] = fmt.Sprintf("%s %d", n.Node, n.Shards)
		}
		lines = append(lines, line+" → "+strings.Join(shares, ", "))
	}
	if more := len(lines) - most; more > 0 {
		lines = append([]string{fmt.Sprintf("(%d rounds before)", more)}, lines[more:]...)
	}
	return lines
}

func (s *Strategy) runFault(check Check, c *Cluster, r *Run, right, format string, args ...any) error {
	return &Fault{Check: check, Strategy: s.name, What: fmt.Sprintf(format, args...), Right: right, Cluster: c, Trail: r.Trail()}
}

// Settles checks that after at most n rounds of homes and moves, each made before the next, nothing changes any more for
// three rounds. Time, revision and seed go on as they do in a node.
func (s *Strategy) Settles(ctx context.Context, c *Cluster, n int) error {
	run, err := s.rounds(ctx, c, n+3)
	if err != nil {
		return err
	}
	if run.Cycle != nil {
		return s.oscillates(c, run)
	}
	if run.Settled < 0 || run.Settled > n {
		return s.runFault(CheckSettles, c, run, fmt.Sprintf("no move in round %d and after", n+1), "it still changes something after %d rounds", n)
	}
	return nil
}

func (s *Strategy) oscillates(c *Cluster, run *Run) error {
	return s.runFault(CheckOscillates, c, run, fmt.Sprintf("no move after round %d, or only moves that make the arrangement better by some measure, so that none comes back", run.Cycle.From),
		"the shards are at the end of round %d where they were at the end of round %d, and nothing has happened to the cluster in between", run.Cycle.From+run.Cycle.Length, run.Cycle.From)
}

// NeverOscillates checks that in so many rounds as the cluster has shards, four times over, and some more, no arrangement
// comes twice: a strategy that comes back to where it was moves shards for ever. It need not settle.
func (s *Strategy) NeverOscillates(ctx context.Context, c *Cluster) error {
	run, err := s.rounds(ctx, c, enough(c))
	if err == nil && run.Cycle != nil {
		err = s.oscillates(c, run)
	}
	return err
}

// enough is how many rounds a strategy that moves a shard a round needs to bring each to its place, several times over.
func enough(c *Cluster) int { return 4*len(c.s.Owners) + 16 }

// SettlesAtAll is Settles for as many rounds as any strategy may need: see NeverOscillates.
func (s *Strategy) SettlesAtAll(ctx context.Context, c *Cluster) error {
	return s.Settles(ctx, c, enough(c))
}

// EvensOut checks that after at most n rounds the fullest candidate has at most spread shards more than the emptiest, and
// from then on too.
func (s *Strategy) EvensOut(ctx context.Context, c *Cluster, n, spread int) error {
	run, err := s.rounds(ctx, c, n+3)
	if err != nil {
		return err
	}
	for _, r := range run.Rounds {
		if r.Imbalance > spread && (r.Number >= n || r.Number == len(run.Rounds)) {
			return s.runFault(CheckEven, c, run, fmt.Sprintf("a difference of at most %d shards from round %d on", spread, n),
				"after round %d the fullest candidate has %d shards more than the emptiest", r.Number, r.Imbalance)
		}
	}
	return nil
}

// DecidesMoves checks that a rebalance answers these moves, in this order, which is that of their weight. Reasons are not
// compared, nor From where it is empty.
func (s *Strategy) DecidesMoves(ctx context.Context, c *Cluster, want ...Move) error {
	a, err := s.Rebalance(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Accept(c, nil, a); err != nil {
		return err
	}
	for i, w := range want {
		if w.From == "" && uint64(w.Shard) < uint64(len(c.s.Owners)) {
			want[i].From = c.Owner(w.Shard)
		}
	}
	if !sameMoves(a.Moves, want) {
		return s.fault(CheckMoves, c, a, "moves: "+listText(texts(want)), "other moves than wanted")
	}
	return nil
}

// DecidesHomes checks that an allocate of the shards that need a home answers these, in the order of the shards.
func (s *Strategy) DecidesHomes(ctx context.Context, c *Cluster, want ...Home) error {
	shards := make([]uint32, len(want))
	for i, h := range want {
		shards[i] = h.Shard
	}
	a, err := s.Allocate(ctx, c, shards)
	if err != nil {
		return err
	}
	if err := s.Accept(c, shards, a); err != nil {
		return err
	}
	if !slices.Equal(a.Homes, want) {
		return s.fault(CheckHomes, c, a, "homes: "+listText(texts(want)), "other homes than wanted")
	}
	return nil
}

// MovesAtMost checks that a rebalance plans at most so many moves. More than the limit of the host are no fault by
// themselves: the host takes the first ones.
func (s *Strategy) MovesAtMost(ctx context.Context, c *Cluster, most int) error {
	a, err := s.Rebalance(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Accept(c, nil, a); err != nil {
		return err
	}
	if a.Planned > most {
		return s.fault(CheckMostMoves, c, a, fmt.Sprintf("at most %d moves", most), "it plans %d moves", a.Planned)
	}
	return nil
}

// WithinFuel checks that neither operation takes more fuel than this. A native strategy has no fuel: that is an error.
func (s *Strategy) WithinFuel(ctx context.Context, c *Cluster, most int64) error {
	if s.native != nil {
		return fmt.Errorf("%s is native and takes no fuel: ask its module", s.name)
	}
	return s.each(ctx, c, 0, func(a *Answer) error {
		if a.Fuel > most {
			return s.fault(CheckFuel, c, a, fmt.Sprintf("at most %d units", most), "%s took %d units of fuel", a.Op, a.Fuel)
		}
		return nil
	})
}

// WithinBudget checks that neither operation takes longer than this. Of a module the host ends the call as a node does.
// It depends on the machine, and on what else that does: see WithinFuel.
func (s *Strategy) WithinBudget(ctx context.Context, c *Cluster, most time.Duration) error {
	return s.each(ctx, c, most, func(a *Answer) error {
		if a.Elapsed > most || errors.Is(a.Err, host.ErrBudget) {
			return s.fault(CheckBudget, c, a, fmt.Sprintf("at most %s", most), "%s took %s", a.Op, a.Elapsed)
		}
		return nil
	})
}

func (s *Strategy) each(ctx context.Context, c *Cluster, budget time.Duration, f func(*Answer) error) error {
	return s.both(c, func(op pluginapi.Op, shards []uint32) error {
		a, err := s.ask(ctx, host.Compiler, op, c, shards, budget)
		if err != nil {
			return err
		}
		if err := f(a); err != nil {
			return err
		}
		return s.Accept(c, shards, a)
	})
}

// KeepsPins checks that no pinned shard is moved, and that one that is pinned to a candidate gets its home there. A node
// keeps pins whatever the strategy says, but counts are right only where the strategy knows.
func (s *Strategy) KeepsPins(ctx context.Context, c *Cluster) error {
	a, err := s.Rebalance(ctx, c)
	if err == nil {
		err = s.Accept(c, nil, a) // a move of a pinned shard is no valid answer
	}
	if err != nil {
		return err
	}
	var want []Home
	for _, p := range c.s.Pinned {
		if c.candidate[p.Node] && !c.s.IsWaiting(p.Shard) && !c.s.IsBusy(p.Shard) {
			want = append(want, Home{Shard: p.Shard, Node: c.name(p.Node)})
		}
	}
	if len(want) == 0 {
		return nil
	}
	slices.SortFunc(want, func(a, b Home) int { return int(int64(a.Shard) - int64(b.Shard)) })
	err = s.DecidesHomes(ctx, c, want...)
	if f := IsFault(err); f != nil && f.Check == CheckHomes {
		f.Check, f.What = CheckPins, "shards get another home than the one that they are pinned to"
	}
	return err
}

// SpreadsZones checks that once the strategy has settled, at the latest after n rounds, the zone of the candidates with the
// most shards has at most spread more than the one with the fewest; and that no shard is in the zone of its standby, where
// one is told and there is another zone.
func (s *Strategy) SpreadsZones(ctx context.Context, c *Cluster, n, spread int) error {
	run, err := s.rounds(ctx, c, n)
	if err != nil {
		return err
	}
	end := run.End
	zones := map[string]int{}
	for i, node := range end.s.Nodes {
		if end.candidate[i] {
			zones[node.Zone] += 0
		}
	}
	p := end.s.Placement()
	for i, count := range p.Counts {
		if end.candidate[i] {
			zones[end.s.Nodes[i].Zone] += count
		}
	}
	most, least := "", ""
	var names, shares []string
	total := 0
	for zone := range zones {
		names = append(names, zone)
	}
	slices.Sort(names)
	for i, zone := range names {
		if i == 0 || zones[zone] > zones[most] {
			most = zone
		}
		if i == 0 || zones[zone] < zones[least] {
			least = zone
		}
		total += zones[zone]
		shares = append(shares, fmt.Sprintf("%q has %d", zone, zones[zone]))
	}
	if len(names) > 0 && zones[most]-zones[least] > spread {
		return s.runFault(CheckZones, c, run, fmt.Sprintf("about %d shards a zone, and at most %d more in one than in another", total/len(names), spread),
			"after %d rounds zone %s", len(run.Rounds), strings.Join(shares, ", "))
	}
	if len(names) > 1 && end.s.Standby != nil {
		for shard, standby := range end.s.Standby {
			owner := end.s.OwnerOf(uint32(shard))
			if owner != pluginapi.NoTarget && standby != pluginapi.NoOwner && end.s.Nodes[owner].Zone == end.s.Nodes[standby].Zone {
				return s.runFault(CheckZones, c, run, fmt.Sprintf("shard %d in another zone than %q", shard, end.s.Nodes[owner].Zone),
					"shard %d is on %s, in the zone of its standby %s", shard, end.s.Nodes[owner].Name, end.s.Nodes[standby].Name)
			}
		}
	}
	return nil
}
