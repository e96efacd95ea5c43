package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/records"
	"github.com/droverhq/drover/pluginapi"
)

// backtestFinding is a record about which the candidate decides otherwise, or about which nothing can be said.
type backtestFinding struct {
	replayFinding                  // Outcome is a lab.Judgement's, or unreadable; Differences is empty
	Verdict       *host.Verdict    `json:"verdict"`         // the candidate's; null where it was not asked
	Recorded      *host.Verdict    `json:"recordedVerdict"` // of the recorded call; null as well
	Shards        []lab.Divergence `json:"shards"`          // those that go elsewhere
}

// decidedFigures sum up one side's decisions on the records that were compared.
type decidedFigures struct {
	Moves     int         `json:"moves"`
	Homes     int         `json:"homes"`
	Failures  int         `json:"failures"` // calls without a decision
	Fuel      *figurePair `json:"fuel"`     // units; null: never known
	TimeUs    *figurePair `json:"timeUs"`   // of the recorded side as that machine had it
	Imbalance *figurePair `json:"imbalance"`

	fuel, time, spread []int64
}

// figurePair is of many figures the middle one and one that few exceed.
type figurePair struct {
	Median int64 `json:"median"`
	P99    int64 `json:"p99"`
	Most   int64 `json:"most"`
}

// backtestResult is what backtest prints for machines.
type backtestResult struct {
	Strategy       string            `json:"strategy"`
	Digest         host.Digest       `json:"digest"`
	Total          int               `json:"total"`
	Same           int               `json:"same"`
	Otherwise      int               `json:"otherwise"`
	Failed         int               `json:"failed"`
	RecordedFailed int               `json:"recordedFailed"`
	BothFailed     int               `json:"bothFailed"`
	NotCompared    int               `json:"notCompared"`
	Unreadable     int               `json:"unreadable"`
	Recorded       decidedFigures    `json:"recorded"`
	Candidate      decidedFigures    `json:"candidate"`
	Findings       []backtestFinding `json:"findings"`

	path string
}

func newStrategyBacktestCommand() *cobra.Command {
	f, choice, config := callFlags{repeat: 1}, recordChoice{}, ""
	cmd := &cobra.Command{
		Use:   "backtest DATA_DIR|FILE FILE|builtin:NAME",
		Short: "Ask another strategy what was asked on record, and say where it decides otherwise",
		Long: `Ask a strategy every question on record, and report where it would have decided otherwise than what was in force: which shards
would go elsewhere, how many moves each makes, what they cost and how even they leave the cluster.

The records are those that a node keeps in its data_dir, while it runs too, or a file that 'drover strategy replay --export' wrote.
Every question is answered by itself, about the cluster as it was: what would have followed from other answers,
'drover strategy simulate' shows. The strategy has the configuration on record unless --strategy-config gives it its own.

Exit codes: 0 the strategy decides whatever it is asked, the same or otherwise, 2 usage, 3 the module is refused, 4 it gives no
decision where the recorded call gave one, 1 anything else: no record, or none that could be compared.`,
		Example: "  drover strategy backtest data mine.wasm --last 1000\n  drover strategy backtest calls.rec builtin:leastshard --strategy-config '{\"threshold\":3}'",
		Args:    wants("DATA_DIR|FILE", "STRATEGY"),
	}
	completeArgs(cmd, 0, nil, completeBuiltins)
	choice.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&config, "strategy-config", "", "configuration as a `JSON` object, as in [type.config]; without it that of each record")
	flags.StringVar(&f.engine, "engine", host.Compiler.String(), "compiler or interpreter")
	f.limits = limitFlags(cmd)
	flags.DurationVar(&f.budget, "budget", lab.Patience, "wall-clock time of one call; a verdict should not depend on how busy the machine is")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		engine, limits, err := f.check(cmd)
		if err == nil {
			err = choice.check(cmd, args[0])
		}
		var own pluginapi.Config
		if err == nil {
			own, err = strategyConfig(config)
		}
		if err != nil {
			return err
		}
		wasm, err := readModule(args[1])
		if err != nil {
			return err
		}
		s, err := labStrategy(cmd, args[1], wasm, engine, limits)
		if err != nil {
			return err
		}
		res := &backtestResult{Strategy: args[1], Digest: host.DigestOf(wasm), Findings: []backtestFinding{}, path: args[0]}
		if err := errors.Join(res.run(cmd, &choice, s, own), s.Close(context.WithoutCancel(cmd.Context()))); err != nil {
			return err
		}
		return tell(cmd, *asJSON, res, args[1])
	}
	return cmd
}

func (res *backtestResult) run(cmd *cobra.Command, choice *recordChoice, s *lab.Strategy, config pluginapi.Config) error {
	show := progressOf(cmd.ErrOrStderr())
	defer show.end()
	err := choice.each(func(e records.Entry, n, all int) error {
		if n%max(1, all/200) == 0 { // some 200 times in all
			show.at(n, all, "recorded calls asked again")
		}
		return res.take(cmd.Context(), s, e, config)
	})
	res.Recorded.sum()
	res.Candidate.sum()
	return err
}

// take asks what one record asked, and counts what came of it.
func (res *backtestResult) take(ctx context.Context, s *lab.Strategy, e records.Entry, config pluginapi.Config) error {
	res.Total++
	if e.Err != nil {
		res.Unreadable++
		res.Findings = append(res.Findings, backtestFinding{replayFinding: findingOf(e, unreadable, e.Err.Error(), nil), Shards: []lab.Divergence{}})
		return nil
	}
	got, err := s.Backtest(ctx, e.Record, config)
	if err != nil {
		return err
	}
	counts := map[lab.Judgement]*int{lab.Agrees: &res.Same, lab.Disagrees: &res.Otherwise, lab.Fails: &res.Failed, lab.Mends: &res.RecordedFailed,
		lab.BothFail: &res.BothFailed, lab.NotCompared: &res.NotCompared}
	*counts[got.Judgement]++
	f := backtestFinding{replayFinding: findingOf(e, got.Judgement.String(), got.Reason, nil), Shards: got.Divergences}
	if f.Shards == nil {
		f.Shards = []lab.Divergence{}
	}
	if got.Judgement != lab.NotCompared {
		f.Verdict, f.Recorded = &got.Candidate.Verdict, &got.Recorded.Verdict
		res.Recorded.take(got.Recorded, got.RecordedImbalance)
		res.Candidate.take(got.Candidate, got.CandidateImbalance)
		if got.Candidate.Err != nil {
			f.Reason = orNull(got.Candidate.Err.Error())
		} else if got.Recorded.Err != nil {
			f.Reason = orNull(got.Recorded.Err.Error())
		}
	}
	if got.Judgement != lab.Agrees {
		res.Findings = append(res.Findings, f)
	}
	return nil
}

func (d *decidedFigures) take(a *lab.Answer, imbalance int) {
	d.Moves += len(a.Moves)
	for _, h := range a.Homes {
		if h.Node != "" {
			d.Homes++
		}
	}
	if a.Err != nil {
		d.Failures++
	}
	if a.Fuel >= 0 {
		d.fuel = append(d.fuel, a.Fuel)
	}
	if a.Elapsed > 0 { // of a module that was refused nobody has measured any
		d.time = append(d.time, a.Elapsed.Microseconds())
	}
	if a.Op == pluginapi.OpRebalance {
		d.spread = append(d.spread, int64(imbalance))
	}
}

func (d *decidedFigures) sum() {
	pair := func(of []int64) *figurePair {
		if len(of) == 0 {
			return nil
		}
		slices.Sort(of)
		return &figurePair{percentile(of, 0.5), percentile(of, 0.99), of[len(of)-1]}
	}
	d.Fuel, d.TimeUs, d.Imbalance = pair(d.fuel), pair(d.time), pair(d.spread)
}

// exit gives the exit code.
func (res *backtestResult) exit() error {
	switch {
	case res.Failed > 0:
		return exitWith(exitVerdict)
	case res.NotCompared+res.Unreadable == res.Total:
		return exitWith(exitFailure)
	}
	return nil
}

func (res *backtestResult) print(w io.Writer, name string) error {
	name = client.Printable(filepath.Base(name))
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s asked again of %s: %d the same, %d otherwise", client.Printable(res.path), counted(res.Total, "recorded call"), name, res.Same, res.Otherwise)
	for _, more := range []struct {
		n    int
		what string
	}{{res.Failed, "without a decision of " + name}, {res.RecordedFailed, "decided that had no decision on record"}, {res.BothFailed, "with no decision of either"},
		{res.NotCompared, "not compared"}, {res.Unreadable, "unreadable"}} {
		if more.n > 0 {
			fmt.Fprintf(&b, ", %d %s", more.n, more.what)
		}
	}
	b.WriteString("\n\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	err := table(w, func(row func(...string)) {
		row("", "ON RECORD", name)
		a, c := &res.Recorded, &res.Candidate
		row("moves", fmt.Sprint(a.Moves), fmt.Sprint(c.Moves))
		row("homes given", fmt.Sprint(a.Homes), fmt.Sprint(c.Homes))
		row("calls without a decision", fmt.Sprint(a.Failures), fmt.Sprint(c.Failures))
		row("fuel, median and p99", a.Fuel.text(units), c.Fuel.text(units))
		row("time, median and p99", a.TimeUs.text(micros), c.TimeUs.text(micros))
		plain := func(n *uint64) string { return fmt.Sprint(*n) }
		row("imbalance left, median and p99", a.Imbalance.text(plain), c.Imbalance.text(plain))
	})
	if err != nil {
		return err
	}
	return res.printFindings(w, name)
}

func (p *figurePair) text(of func(*uint64) string) string {
	if p == nil {
		return "-"
	}
	a, b := uint64(p.Median), uint64(p.P99)
	return of(&a) + ", " + of(&b)
}

const (
	mostBacktested = 10 // findings that are shown to people
	mostShards     = 8  // shards of each
)

func (res *backtestResult) printFindings(w io.Writer, name string) error {
	// What the candidate fails at comes first, then what it decides otherwise.
	rank := func(f backtestFinding) int {
		order := []string{lab.Fails.String(), lab.Disagrees.String(), lab.Mends.String()}
		if i := slices.Index(order, f.Outcome); i >= 0 {
			return i
		}
		return len(order)
	}
	shown := slices.Clone(res.Findings)
	slices.SortStableFunc(shown, func(a, b backtestFinding) int { return cmp.Compare(rank(a), rank(b)) })
	var b strings.Builder
	for _, f := range shown[:min(len(shown), mostBacktested)] {
		b.WriteString(f.head())
		for _, s := range f.Shards[:min(len(f.Shards), mostShards)] {
			from := ""
			if s.From != "" {
				from = " of " + client.Printable(s.From)
			}
			fmt.Fprintf(&b, "  shard %d%s: on record %s, %s %s\n", s.Shard, from, where(s.Recorded, f.Op), name, where(s.Candidate, f.Op))
		}
		if n := len(f.Shards) - mostShards; n > 0 {
			fmt.Fprintf(&b, "  and %s more\n", counted(n, "shard"))
		}
	}
	if n := len(shown) - mostBacktested; n > 0 {
		fmt.Fprintf(&b, "\nand %d more: --json shows all\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// where says in words where a decision sends a shard.
func where(t *lab.Target, op *string) string {
	allocate := op != nil && *op == pluginapi.OpAllocate.String()
	switch {
	case t == nil && allocate:
		return "nothing"
	case t == nil:
		return "stays"
	case t.Node == "" && allocate:
		return "no home"
	case t.Node == "":
		return "to where allocate says"
	}
	return "to " + client.Printable(t.Node)
}
