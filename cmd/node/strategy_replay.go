package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/records"
	"github.com/droverhq/drover/strategies"
)

// replayFlags are the flags of strategy replay, beside those that choose records.
type replayFlags struct {
	export, engine string
	list, json     bool
}

// replayRequest is a command line that made sense.
type replayRequest struct {
	replayFlags
	recordChoice
	wasm   []byte // given by the user; nil if none
	engine host.Engine
}

// recordView is one record in the list, and what a finding tells of its record.
type recordView struct {
	Record      uint64       `json:"record"`
	Started     time.Time    `json:"started"`
	Type        string       `json:"type"`
	Op          string       `json:"op"`
	Strategy    string       `json:"strategy"`
	Digest      *host.Digest `json:"digest"` // null: native code, not a module
	CostModel   int          `json:"costModel"`
	InputDigest host.Digest  `json:"inputDigest"`
	InputBytes  *int         `json:"inputBytes"`  // null: not kept
	OutputBytes *int         `json:"outputBytes"` // null: none
	Fuel        *int64       `json:"fuel"`
	FuelLimit   int64        `json:"fuelLimit"`
	MemoryPages uint32       `json:"memoryPages"`
	TimeUs      int64        `json:"timeUs"`
	Verdict     host.Verdict `json:"verdict"`
	Error       *string      `json:"error"`
}

// replayFinding is a record that is not the same, or cannot be said to be.
type replayFinding struct {
	Record      uint64               `json:"record"`
	Started     *time.Time           `json:"started"` // null with all else if the record cannot be read
	Type        *string              `json:"type"`
	Op          *string              `json:"op"`
	Strategy    *string              `json:"strategy"`
	Digest      *host.Digest         `json:"digest"`
	Outcome     string               `json:"outcome"` // differs, not-comparable, not-replayed, unreadable
	Reason      *string              `json:"reason"`
	Differences []records.Difference `json:"differences"`
}

const unreadable = "unreadable"

// replayResult is what replay prints for machines.
type replayResult struct {
	Total         int             `json:"total"`
	Same          int             `json:"same"`
	Differs       int             `json:"differs"`
	NotComparable int             `json:"notComparable"`
	NotReplayed   int             `json:"notReplayed"`
	Unreadable    int             `json:"unreadable"`
	Findings      []replayFinding `json:"findings"`
}

type recordList struct {
	Records    []recordView    `json:"records"`
	Unreadable int             `json:"unreadable"`
	Findings   []replayFinding `json:"findings"`
}

func newStrategyReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay DATA_DIR|FILE [FILE|builtin:NAME]",
		Short: "Run recorded decisions again, bit for bit",
		Long: `Run the recorded calls of strategies again, each from the fresh image with its own configuration and limits, and report every
difference in verdict, fuel, memory or output.

The records are those that a node keeps in its data_dir, while it runs too, or a file that --export wrote. Modules are
taken from the data_dir and from this program; with a module given, its records alone are replayed. Calls that a clock
ended (verdict budget) cannot be compared.

Exit codes: 0 all the same, 2 usage, 4 a record differs, 1 anything else: no record, or one that could not be replayed.`,
		Example: "  drover strategy replay data --last 100\n  drover strategy replay data --list\n  drover strategy replay data --export calls.rec\n  drover strategy replay calls.rec mine.wasm",
		Args:    wants("DATA_DIR|FILE", "[STRATEGY]"),
	}
	completeArgs(cmd, 0, nil, completeBuiltins)
	flags := cmd.Flags()
	var choice recordChoice
	choice.flags(cmd)
	flags.BoolVar(&f.list, "list", false, "list the records and run nothing")
	flags.StringVar(&f.export, "export", "", "write the records to a new `file` and run nothing")
	flags.StringVar(&f.engine, "engine", host.Compiler.String(), "compiler or interpreter")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.json = *asJSON
		req, err := f.request(cmd, choice, args)
		if err != nil {
			return err
		}
		switch {
		case f.list:
			err = req.printList(cmd.OutOrStdout())
		case f.export != "":
			err = req.exportTo(cmd.OutOrStdout())
		default:
			err = req.replay(cmd)
		}
		return err
	}
	return cmd
}

func (f *replayFlags) request(cmd *cobra.Command, choice recordChoice, args []string) (*replayRequest, error) {
	req := &replayRequest{replayFlags: *f, recordChoice: choice}
	err := req.check(cmd, args[0])
	if err != nil {
		return nil, err
	}
	if req.engine, err = host.ParseEngine(f.engine); err != nil {
		return nil, usageOf(cmd)("--engine: %w", err)
	}
	if f.list && f.export != "" {
		return nil, usageOf(cmd)("--list and --export: one of them")
	}
	if len(args) == 2 {
		if req.wasm, err = readModule(args[1]); err != nil {
			return nil, err
		}
		req.module = host.DigestOf(req.wasm)
	}
	return req, nil
}

func viewOf(e records.Entry) recordView {
	r := e.Record
	v := recordView{Record: e.Number, Started: r.Started.UTC(), Type: r.Type, Op: r.Op.String(), Strategy: r.Strategy, Digest: digestOrNull(r.Digest), CostModel: r.CostModel,
		InputDigest: r.InputDigest, Fuel: r.Fuel, FuelLimit: r.FuelLimit, MemoryPages: r.Pages, TimeUs: r.Elapsed.Microseconds(), Verdict: r.Verdict, Error: orNull(r.Error)}
	if r.Input != nil {
		n := len(r.Input)
		v.InputBytes = &n
	}
	if r.Output != nil {
		n := len(r.Output)
		v.OutputBytes = &n
	}
	return v
}

func digestOrNull(d host.Digest) *host.Digest {
	if d == (host.Digest{}) {
		return nil
	}
	return &d
}

func findingOf(e records.Entry, outcome, reason string, differences []records.Difference) replayFinding {
	f := replayFinding{Record: e.Number, Outcome: outcome, Reason: orNull(reason), Differences: differences}
	if f.Differences == nil {
		f.Differences = []records.Difference{}
	}
	if r := e.Record; r != nil {
		at, op := r.Started.UTC(), r.Op.String()
		f.Started, f.Type, f.Op, f.Strategy, f.Digest = &at, &r.Type, &op, &r.Strategy, digestOrNull(r.Digest)
	}
	return f
}

func (r *replayRequest) printList(w io.Writer) error {
	list := recordList{Records: []recordView{}, Findings: []replayFinding{}}
	err := r.each(func(e records.Entry, _, _ int) error {
		if e.Err != nil {
			list.Unreadable++
			list.Findings = append(list.Findings, findingOf(e, unreadable, e.Err.Error(), nil))
			return nil
		}
		list.Records = append(list.Records, viewOf(e))
		return nil
	})
	if err != nil {
		return err
	}
	if r.json {
		return writeJSON(w, list)
	}
	err = table(w, func(row func(...string)) {
		row("RECORD", "STARTED", "TYPE", "OPERATION", "STRATEGY", "VERDICT", "FUEL", "TIME", "INPUT", "DIGEST")
		for _, v := range list.Records {
			digest, fuel, us := "native", (*uint64)(nil), uint64(v.TimeUs)
			if v.Digest != nil {
				digest = short(v.Digest.String())
			}
			if v.Fuel != nil {
				f := uint64(*v.Fuel)
				fuel = &f
			}
			row(fmt.Sprint(v.Record), v.Started.Format(time.RFC3339), v.Type, v.Op, v.Strategy, v.Verdict.String(), units(fuel), micros(&us), short(v.InputDigest.String()), digest)
		}
	})
	return errors.Join(err, printFindings(w, list.Findings))
}

func (r *replayRequest) exportTo(w io.Writer) (err error) {
	file, err := os.OpenFile(r.export, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			return withHint(err, "name a file that there is not, or remove this one")
		}
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(r.export))
		}
	}()
	out, err := records.NewWriter(file)
	if err != nil {
		return err
	}
	var res struct {
		Exported   int `json:"exported"`
		Unreadable int `json:"unreadable"`
	}
	if err := r.each(func(e records.Entry, _, _ int) error {
		if e.Err != nil {
			res.Unreadable++
			return nil
		}
		res.Exported++
		return out.Write(e.Record)
	}); err != nil {
		return err
	}
	if r.json {
		return writeJSON(w, res)
	}
	lost := ""
	if res.Unreadable > 0 {
		lost = fmt.Sprintf("; %d could not be read", res.Unreadable)
	}
	_, err = fmt.Fprintf(w, "%s: %d records%s\n", client.Printable(r.export), res.Exported, lost)
	return err
}

func (r *replayRequest) replay(cmd *cobra.Command) error {
	res := replayResult{Findings: []replayFinding{}}
	show := progressOf(cmd.ErrOrStderr())
	err := withRuntime(cmd.Context(), r.engine, func(rt *host.Runtime) (err error) {
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		p := records.NewReplayer(rt, r.find)
		defer func() { err = errors.Join(err, p.Close(ctx)) }()
		defer show.end()
		return r.each(func(e records.Entry, n, all int) error {
			if n%max(1, all/200) == 0 { // some 200 times in all
				show.at(n, all, "records replayed")
			}
			return res.take(ctx, p, e)
		})
	})
	if err != nil {
		return err
	}
	if r.json {
		err = writeJSON(cmd.OutOrStdout(), res)
	} else {
		err = res.print(cmd.OutOrStdout(), r.path)
	}
	switch {
	case err != nil:
		return err
	case res.Differs > 0:
		return exitWith(exitVerdict)
	case res.NotReplayed > 0 || res.Unreadable > 0:
		return exitWith(exitFailure)
	}
	return nil
}

// take replays one record and counts what came of it.
func (res *replayResult) take(ctx context.Context, p *records.Replayer, e records.Entry) error {
	res.Total++
	if e.Err != nil {
		res.Unreadable++
		res.Findings = append(res.Findings, findingOf(e, unreadable, e.Err.Error(), nil))
		return nil
	}
	got, err := p.Replay(ctx, e.Record)
	if err != nil {
		return err
	}
	switch got.Outcome {
	case records.Same:
		res.Same++
		return nil
	case records.Differs:
		res.Differs++
	case records.NotComparable:
		res.NotComparable++
	case records.NotReplayed:
		res.NotReplayed++
	}
	res.Findings = append(res.Findings, findingOf(e, got.Outcome.String(), got.Reason, got.Differences))
	return nil
}

// find gives a module: the one given, one of this program's, one in the data_dir.
func (r *replayRequest) find(d host.Digest) ([]byte, error) {
	if r.wasm != nil && r.module == d {
		return r.wasm, nil
	}
	for _, name := range strategies.Names() {
		if wasm, _, _ := strategies.Builtin(name); host.DigestOf(wasm) == d {
			return wasm, nil
		}
	}
	for _, dir := range []string{filepath.Join(r.path, "modules"), filepath.Join(filepath.Dir(filepath.Clean(r.path)), "modules")} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		store, err := modules.Open(dir)
		if err != nil {
			return nil, err
		}
		if wasm, err := store.Get(modules.Digest(d)); !errors.Is(err, modules.ErrNotHere) {
			return wasm, err
		}
	}
	return nil, fmt.Errorf("its module %s is not here: give its .wasm file as the second argument", d)
}

// mostFindings is how many findings are shown to people.
const mostFindings = 20

func (res *replayResult) print(w io.Writer, path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d records replayed: %d the same, %d differ", client.Printable(path), res.Total, res.Same, res.Differs)
	for _, more := range []struct {
		n    int
		what string
	}{{res.NotComparable, "not comparable, a clock ended them"}, {res.NotReplayed, "not replayed"}, {res.Unreadable, "unreadable"}} {
		if more.n > 0 {
			fmt.Fprintf(&b, ", %d %s", more.n, more.what)
		}
	}
	b.WriteString("\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	// What differs first; what a clock ended is nobody's fault.
	shown := slices.DeleteFunc(slices.Clone(res.Findings), func(f replayFinding) bool { return f.Outcome == records.NotComparable.String() })
	rank := func(f replayFinding) int {
		if f.Outcome == records.Differs.String() {
			return 0
		}
		return math.MaxInt
	}
	slices.SortStableFunc(shown, func(a, b replayFinding) int { return cmp.Compare(rank(a), rank(b)) })
	return printFindings(w, shown)
}

func printFindings(w io.Writer, list []replayFinding) error {
	var b strings.Builder
	for _, f := range list[:min(len(list), mostFindings)] {
		b.WriteString(f.head())
		for _, d := range f.Differences {
			fmt.Fprintf(&b, "  %s: recorded %s, replayed %s\n", d.Of, d.Recorded, d.Replayed)
		}
	}
	if n := len(list) - mostFindings; n > 0 {
		fmt.Fprintf(&b, "\nand %d more: --json shows all\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// head says for people which record it is about, and why it is told.
func (f *replayFinding) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nrecord %d: %s", f.Record, f.Outcome)
	if f.Started != nil {
		digest := "native code"
		if f.Digest != nil {
			digest = short(f.Digest.String())
		}
		fmt.Fprintf(&b, " (%s of %s by %s, %s, at %s)", *f.Op, client.Printable(*f.Type), client.Printable(*f.Strategy), digest, f.Started.Format(time.RFC3339))
	}
	b.WriteString("\n")
	if f.Reason != nil {
		fmt.Fprintf(&b, "  %s\n", client.Printable(*f.Reason))
	}
	return b.String()
}
