package scenario

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/internal/tomldoc"
)

// outcome is a step that was made.
type outcome struct {
	strategy *lab.Strategy
	step     *Step
	before   *lab.Cluster // with the events of a question
	asked    []uint32     // of an allocate
	answer   *lab.Answer  // of a question
	run      *lab.Run     // of a play
	after    *lab.Cluster
}

// judge returns a *lab.Fault where an expectation does not hold; any other error is about the host.
type judge func(context.Context, *outcome) error

// fault is what an expectation found.
func (o *outcome) fault(check lab.Check, right, format string, args ...any) error {
	f := &lab.Fault{Check: check, Strategy: o.strategy.Name(), What: fmt.Sprintf(format, args...), Right: right, Cluster: o.before, Shards: o.asked, Answer: o.answer}
	if o.run != nil {
		f.Trail = o.run.Trail()
	}
	return f
}

// when says which moment an expectation about the cluster is of.
func (o *outcome) when() string {
	if o.run != nil {
		return fmt.Sprintf("after %d rounds", len(o.run.Rounds))
	}
	return "afterwards"
}

// expectation describes a key of the table expect.
type expectation struct {
	key  string
	ops  []Op
	read func(p *parser, path string, v any) judge // nil for a value that is wrong, which is reported
}

var (
	anyOp     = []Op{Rebalance, Allocate, Play}
	questions = []Op{Rebalance, Allocate}
)

// expectations are all keys of the table expect.
var expectations = []expectation{
	{"moves", []Op{Rebalance}, (*parser).moves},
	{"moved", []Op{Rebalance}, (*parser).moved},
	{"homes", []Op{Allocate}, (*parser).homes},
	{"moves_at_most", []Op{Rebalance, Play}, bound(lab.CheckMostMoves, "move", 1, movesOf)},
	{"moves_at_least", []Op{Rebalance, Play}, bound(lab.CheckLeastMoves, "move", -1, movesOf)},
	{"homes_at_most", []Op{Play}, bound(lab.CheckHomes, "home", 1, homesOf)},
	{"homes_at_least", []Op{Play}, bound(lab.CheckHomes, "home", -1, homesOf)},
	{"verdict", questions, (*parser).verdict},
	{"error", questions, (*parser).failure},
	{"reason", questions, (*parser).reason},
	{"settles_within", []Op{Play}, (*parser).settles},
	{"cycles", []Op{Play}, (*parser).cycles},
	{"failures_at_most", []Op{Play}, (*parser).failures},
	{"counts", anyOp, (*parser).counts},
	{"owners", anyOp, (*parser).ownersAfter},
	{"on", anyOp, (*parser).on},
	{"empty", anyOp, (*parser).empty},
	{"homeless", anyOp, (*parser).homeless},
	{"imbalance_at_most", anyOp, (*parser).imbalance},
	{"capacity_error_at_most", anyOp, (*parser).capacity},
	{"zone_imbalance_at_most", anyOp, (*parser).zones},
	{"rate_imbalance_at_most", anyOp, (*parser).rates},
	{"standby_apart", anyOp, (*parser).standby},
	{"keeps_pins", anyOp, check((*lab.Strategy).KeepsPins)},
	{"deterministic", anyOp, check((*lab.Strategy).Deterministic)},
	{"fuel_at_most", anyOp, (*parser).fuel},
}

// Expectations returns the keys that the table expect of a step may have.
func Expectations(op Op) []string {
	var keys []string
	for _, e := range expectations {
		if slices.Contains(e.ops, op) {
			keys = append(keys, e.key)
		}
	}
	return keys
}

func (p *parser) expects(t *table, s *Step) {
	keys := Expectations(s.Op)
	for _, e := range expectations {
		v, given := t.m[e.key]
		switch {
		case !given:
		case !slices.Contains(e.ops, s.Op):
			p.fail(t.child(e.key), "of op = %q it cannot be expected, only of %s", s.Op, joined(e.ops))
			keys = append(keys, e.key)
		default:
			path := t.child(e.key)
			if j := e.read(p, path, v); j != nil {
				at := p.spots[path].Value
				s.Expects = append(s.Expects, Expectation{Key: e.key, Line: at.Line, Col: at.Col, judge: j})
			}
		}
	}
	p.unknownKeys(t, keys)
}

func joined[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = v.String()
	}
	return strings.Join(texts, ", ")
}

// check is an expectation that is true where a check of package lab finds nothing about the cluster as it was before.
func check(f func(*lab.Strategy, context.Context, *lab.Cluster) error) func(*parser, string, any) judge {
	return func(p *parser, path string, v any) judge {
		if v != true {
			p.fail(path, "want true, got %s", tomldoc.Describe(v))
			return nil
		}
		return func(ctx context.Context, o *outcome) error { return f(o.strategy, ctx, o.before) }
	}
}

// bound is an expectation about a number: at most (sign 1) or at least (-1) so many.
func bound(c lab.Check, noun string, sign int, of func(*outcome) int) func(*parser, string, any) judge {
	return func(p *parser, path string, v any) judge {
		want, ok := p.number(path, v, 0, math.MaxInt32)
		if !ok {
			return nil
		}
		return func(_ context.Context, o *outcome) error {
			n := of(o)
			if (n-int(want))*sign <= 0 {
				return nil
			}
			return o.fault(c, fmt.Sprintf("at %s %d", map[int]string{1: "most", -1: "least"}[sign], want), "there were %d %ss", n, noun)
		}
	}
}

func movesOf(o *outcome) int {
	if o.run != nil {
		return o.run.Moves
	}
	return o.answer.Planned
}

func homesOf(o *outcome) int { return o.run.Homes }

// moves reads the moves of a plan in their order, each a shard, or a shard and where it goes.
func (p *parser) moves(path string, v any) judge {
	list, ok := p.list(path, v)
	if !ok {
		return nil
	}
	type wanted struct {
		shard uint32
		to    *string // nil: anywhere
	}
	var want []wanted
	for i, e := range list {
		at := tomldoc.Index(path, i)
		pair, isPair := e.([]any)
		if isPair && len(pair) != 2 {
			p.fail(at, "want a shard, or a pair [SHARD, NODE], got a list of %d", len(pair))
			return nil
		}
		if !isPair {
			shard, ok := p.world.shard(at, e)
			if !ok {
				return nil
			}
			want = append(want, wanted{shard: shard})
			continue
		}
		shard, ok := p.world.shard(tomldoc.Index(at, 0), pair[0])
		if !ok {
			return nil
		}
		to, ok := p.text(tomldoc.Index(at, 1), pair[1])
		if !ok || to != "" && !p.world.isNode(tomldoc.Index(at, 1), to) {
			return nil
		}
		want = append(want, wanted{shard, &to})
	}
	return func(_ context.Context, o *outcome) error {
		same := len(want) == len(o.answer.Moves)
		right := make([]string, len(want))
		for i, w := range want {
			to := "anywhere"
			if w.to != nil {
				to = lab.Move{To: *w.to}.String()
				to = to[strings.Index(to, "→")+len("→"):]
			}
			right[i] = fmt.Sprintf("%d %s→%s", w.shard, o.before.Owner(w.shard), to)
			if same {
				m := o.answer.Moves[i]
				same = m.Shard == w.shard && (w.to == nil || m.To == *w.to)
			}
		}
		if same {
			return nil
		}
		return o.fault(lab.CheckMoves, "moves: "+orNone(right), "other moves than wanted")
	}
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// moved reads the shards that move, in any order, wherever they go.
func (p *parser) moved(path string, v any) judge {
	want, ok := p.world.shardList(path, v)
	if !ok {
		return nil
	}
	want = slices.Sorted(slices.Values(want))
	return func(_ context.Context, o *outcome) error {
		var got []uint32
		for _, m := range o.answer.Moves {
			got = append(got, m.Shard)
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return nil
		}
		return o.fault(lab.CheckMoves, "to move these shards: "+few(texts(want)), "it moves these shards: %s", few(texts(got)))
	}
}

// homes reads a node for each shard that is asked for, in order, or pairs of a shard and its node.
func (p *parser) homes(path string, v any) judge {
	list, ok := p.list(path, v)
	if !ok {
		return nil
	}
	var names []string
	var pairs []lab.Home
	for i, e := range list {
		at := tomldoc.Index(path, i)
		if pair, isPair := e.([]any); isPair && len(pair) == 2 {
			shard, ok := p.world.shard(tomldoc.Index(at, 0), pair[0])
			if !ok {
				return nil
			}
			name, ok := p.text(tomldoc.Index(at, 1), pair[1])
			if !ok || name != "" && !p.world.isNode(tomldoc.Index(at, 1), name) {
				return nil
			}
			pairs = append(pairs, lab.Home{Shard: shard, Node: name})
			continue
		}
		name, ok := e.(string)
		if !ok {
			p.fail(at, "want a node, or a pair [SHARD, NODE], got %s", tomldoc.Describe(e))
			return nil
		}
		if name != "" && !p.world.isNode(at, name) {
			return nil
		}
		names = append(names, name)
	}
	if len(names) > 0 && len(pairs) > 0 {
		p.fail(path, "want a node for each shard that is asked for, or pairs [SHARD, NODE], not both")
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		want := pairs
		same := len(pairs) > 0 || len(names) == len(o.answer.Homes)
		got := map[uint32]string{}
		for i, h := range o.answer.Homes {
			got[h.Shard] = h.Node
			if len(pairs) == 0 && i < len(names) {
				want = append(want[:len(want):len(want)], lab.Home{Shard: h.Shard, Node: names[i]})
			}
		}
		texts := make([]string, len(want))
		for i, h := range want {
			texts[i] = h.String()
			node, asked := got[h.Shard]
			same = same && asked && node == h.Node
		}
		if same {
			return nil
		}
		if len(pairs) == 0 && len(names) != len(o.answer.Homes) {
			return o.fault(lab.CheckHomes, fmt.Sprintf("%d homes: %s", len(names), orNone(names)), "%d homes were asked for", len(o.answer.Homes))
		}
		return o.fault(lab.CheckHomes, "homes: "+orNone(texts), "other homes than wanted")
	}
}

// verdict reads how the call ends.
func (p *parser) verdict(path string, v any) judge {
	text, ok := p.text(path, v)
	if !ok {
		return nil
	}
	var want host.Verdict
	if err := want.UnmarshalText([]byte(text)); err != nil {
		p.fail(path, "want ok, refused, trap, fuel, depth, budget or output, got %s", tomldoc.QuoteText(text))
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		if o.answer.Verdict == want {
			return nil
		}
		return o.fault(lab.CheckVerdict, "the verdict "+want.String(), "the verdict is %s", o.answer.Verdict)
	}
}

// failure reads a part of the error of a call that fails.
func (p *parser) failure(path string, v any) judge {
	want, ok := p.text(path, v)
	if !ok {
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		if o.answer.Err != nil && strings.Contains(o.answer.Err.Error(), want) {
			return nil
		}
		return o.fault(lab.CheckVerdict, fmt.Sprintf("an error with %q", want), "the call ends otherwise")
	}
}

// reason reads a part of the reason of a decision.
func (p *parser) reason(path string, v any) judge {
	want, ok := p.text(path, v)
	if !ok {
		return nil
	}
	return func(_ context.Context, o *outcome) error {
		if strings.Contains(o.answer.Reason, want) {
			return nil
		}
		return o.fault(lab.CheckReason, fmt.Sprintf("a reason with %q", want), "the reason is %q", o.answer.Reason)
	}
}
