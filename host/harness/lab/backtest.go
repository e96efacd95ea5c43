package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/placement"
)

// Judgement says how a strategy's answer stands to a recorded one.
type Judgement uint8

// The judgements.
const (
	Agrees      Judgement = iota // the same shards go to the same nodes
	Disagrees                    // they do not
	Fails                        // it gives no decision where the recorded call gave one
	Mends                        // it gives one where the recorded call gave none
	BothFail                     // neither gives one
	NotCompared                  // the record does not hold what is needed
)

var judgementNames = [...]string{"same", "otherwise", "failed", "recorded-failed", "both-failed", "not-compared"}

// String returns the name that the command line uses.
func (j Judgement) String() string {
	if int(j) < len(judgementNames) {
		return judgementNames[j]
	}
	return fmt.Sprintf("judgement(%d)", uint8(j))
}

// MarshalText implements encoding.TextMarshaler.
func (j Judgement) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// Target is where a decision sends a shard. Node is empty where allocate is to find a home once the shard is free, and
// where allocate leaves it without one.
type Target struct {
	Node string `json:"node"`
}

// Divergence is a shard that two decisions send to different places.
type Divergence struct {
	Shard     uint32  `json:"shard"`
	From      string  `json:"from"`      // its owner; empty: none
	Recorded  *Target `json:"recorded"`  // nil: it stays where it is
	Candidate *Target `json:"candidate"` // likewise
}

// Backtested is what came of one record.
type Backtested struct {
	Judgement   Judgement
	Reason      string  // of NotCompared
	Recorded    *Answer // nil for NotCompared; what had been decided, if anything
	Candidate   *Answer // likewise
	Divergences []Divergence
	// Imbalance is the shards of the fullest candidate less those of the emptiest once each decision is carried out, a
	// failed one too: of rebalance.
	RecordedImbalance, CandidateImbalance int
}

// Backtest asks what the record's call asked, and holds the answer against the recorded one (spec 1.3). Both are what the
// host would act on: the moves within the limit, in any order. The strategy gets config, or, where that is nil, the configuration
// that the record's input holds. How long the recorded call took, and whether a clock ended it, depended on the machine: a
// call that a clock ended counts as one without a decision. The error is the host's own trouble.
func (s *Strategy) Backtest(ctx context.Context, rec *host.Record, config pluginapi.Config) (Backtested, error) {
	not := func(format string, args ...any) (Backtested, error) {
		return Backtested{Judgement: NotCompared, Reason: fmt.Sprintf(format, args...)}, nil
	}
	if rec.Input == nil {
		return not("its input was too long to be kept")
	}
	in, err := pluginapi.DecodeInput(rec.Input)
	if err != nil {
		return not("its input cannot be read: %v", err)
	}
	if in.Op != rec.Op {
		return not("it is of %s, its input of %s", rec.Op, in.Op)
	}
	snap := &in.Snapshot
	b := Backtested{}
	if b.Recorded, err = recorded(rec, snap, in.Shards); err != nil {
		return not("its output cannot be read: %v", err)
	}
	if config != nil {
		snap.Config = config
	}
	h, err := s.ready(ctx, way{s.by.Engine, string(snap.Config)})
	if err == nil {
		b.Candidate = answer(h.Call(ctx, in.Op, snap, in.Shards, 0), in.Op, snap, in.Shards)
	} else if b.Candidate, err = refused(in.Op, err); err != nil {
		return b, err
	}
	if err := context.Cause(ctx); err != nil {
		return b, err
	}
	b.Divergences = diverge(snap, in.Shards, b.Recorded, b.Candidate)
	b.RecordedImbalance, b.CandidateImbalance = imbalanceAfter(snap, b.Recorded), imbalanceAfter(snap, b.Candidate)
	was, is := b.Recorded.Err == nil, b.Candidate.Err == nil
	switch {
	case !was && !is:
		b.Judgement = BothFail
	case !was:
		b.Judgement = Mends
	case !is:
		b.Judgement = Fails
	case len(b.Divergences) > 0:
		b.Judgement = Disagrees
	}
	return b, nil
}

// recorded gives the answer that a record holds, checked as the host checked it.
func recorded(rec *host.Record, snap *pluginapi.Snapshot, shards []uint32) (*Answer, error) {
	r := host.Result{Record: rec}
	if rec.Verdict != host.VerdictOK {
		r.Err = fmt.Errorf("%s: %s", rec.Verdict, rec.Error)
		return answer(r, rec.Op, snap, shards), nil
	}
	var err error
	if rec.Op == pluginapi.OpAllocate {
		if r.Homes, err = pluginapi.DecodeHomes(rec.Output, len(shards)); err == nil {
			err = placement.CheckHomes(snap, shards, r.Homes.Nodes)
		}
	} else if r.Plan, err = pluginapi.DecodePlan(rec.Output); err == nil {
		r.Plan.Moves, err = placement.CheckPlan(snap, r.Plan.Moves)
	}
	if err != nil {
		return nil, err
	}
	return answer(r, rec.Op, snap, shards), nil
}

// targets gives where an answer sends shards.
func (a *Answer) targets() map[uint32]Target {
	out := make(map[uint32]Target, len(a.Moves)+len(a.Homes))
	for _, m := range a.Moves {
		out[m.Shard] = Target{m.To}
	}
	for _, h := range a.Homes {
		out[h.Shard] = Target{h.Node}
	}
	return out
}

// diverge lists the shards that two answers send to different places, in the order of their numbers; of allocate in that
// in which they were asked for. An answer that failed sends none anywhere.
func diverge(snap *pluginapi.Snapshot, asked []uint32, a, b *Answer) (out []Divergence) {
	was, is := a.targets(), b.targets()
	of := func(m map[uint32]Target, shard uint32) *Target {
		if t, ok := m[shard]; ok {
			return &t
		}
		return nil
	}
	consider := func(shard uint32) {
		x, y := of(was, shard), of(is, shard)
		if x == nil && y == nil || x != nil && y != nil && *x == *y {
			return
		}
		from := ""
		if owner := snap.OwnerOf(shard); owner != pluginapi.NoTarget {
			from = snap.Nodes[owner].Name
		}
		out = append(out, Divergence{Shard: shard, From: from, Recorded: x, Candidate: y})
	}
	if a.Op == pluginapi.OpAllocate {
		for _, shard := range asked {
			consider(shard)
		}
		return out
	}
	either := maps.Clone(was)
	maps.Copy(either, is)
	for _, shard := range slices.Sorted(maps.Keys(either)) {
		consider(shard)
	}
	return out
}

// imbalanceAfter is the shards of the fullest candidate less those of the emptiest once an answer is carried out.
func imbalanceAfter(snap *pluginapi.Snapshot, a *Answer) int {
	p := snap.Placement()
	for _, m := range a.Moves {
		p.Take(snap.OwnerOf(m.Shard))
		p.Put(snap.NodeIndex(m.To)) // nowhere yet, where allocate is to find it a home
	}
	for _, h := range a.Homes {
		if to := snap.NodeIndex(h.Node); to != pluginapi.NoTarget {
			p.Take(snap.OwnerOf(h.Shard)) // of a node that it has to leave
			p.Put(to)
		}
	}
	return spread(p.Counts, snap.Candidates)
}

// spread is the most of some counts less the least.
func spread(counts, of []int) int {
	if len(of) == 0 {
		return 0
	}
	low, high := counts[of[0]], counts[of[0]]
	for _, n := range of[1:] {
		low, high = min(low, counts[n]), max(high, counts[n])
	}
	return high - low
}
