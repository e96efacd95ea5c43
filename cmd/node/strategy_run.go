package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/sharding/placement"
)

// maxInputBytes bounds an input file: some ten million shards.
const maxInputBytes = 256 << 20

// runFlags are the flags of strategy run.
type runFlags struct {
	callFlags
	op, input string
	shards    []uint
}

// bind adds the flags that name the question.
func (f *runFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.op, "op", "", "`operation`: allocate or rebalance (default: the input's own)")
	flags.StringVar(&f.input, "input", "", "`file` with the input, - for standard input")
	flags.UintSliceVar(&f.shards, "shards", nil, "`shards` that need a home, for allocate (default: the input's own, else all without one)")
	f.limits = limitFlags(cmd)
}

// runRequest is a command line that made sense.
type runRequest struct {
	name   string
	wasm   []byte
	file   *snapshotfile.File
	op     pluginapi.Op
	engine host.Engine
	limits host.Limits
	repeat int
}

// runResult is what run prints for machines (spec 1.6).
type runResult struct {
	judged
	Op          string      `json:"op"`
	Digest      host.Digest `json:"digest"`
	CostModel   int         `json:"costModel"`
	Fuel        *int64      `json:"fuel"`
	FuelLimit   int64       `json:"fuelLimit"`
	MemoryPages uint32      `json:"memoryPages"`
	TimeUs      int64       `json:"timeUs"` // median of the calls
	Repeat      int         `json:"repeat"`
	Identical   bool        `json:"identical"` // verdict, answer and fuel of every call
	Decision    *decision   `json:"decision"`

	log []host.LogLine // of the first call, for people
}

// decision holds moves or homes; the other list is nil and left out.
type decision struct {
	Moves  *[]decidedMove `json:"moves,omitempty"`
	Homes  *[]decidedHome `json:"homes,omitempty"`
	Reason *string        `json:"reason"`
}

type decidedMove struct {
	Shard  uint32  `json:"shard"`
	From   string  `json:"from"`
	To     *string `json:"to"`
	Reason *string `json:"reason"`
}

type decidedHome struct {
	Shard  uint32  `json:"shard"`
	Node   *string `json:"node"`
	Reason *string `json:"reason"`
}

func newStrategyRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE|builtin:NAME --op allocate|rebalance --input FILE",
		Short: "Ask a strategy for one decision, from an input in a file",
		Long: `Ask a strategy for one decision, or the same one several times, each from the fresh image.

The input is CBOR as the contract says, or JSON of the same shape, in which nodes may be plain names and what is left
out has a default:
  {"nodes":["a","b","c"],"owners":["a","a",null,"b"],"limits":{"moves":3},"config":{"threshold":1}}

Exit codes: 0 ok, 2 usage, 3 the module is refused, 4 any other verdict, 1 anything else.`,
		Args: oneStrategy,
	}
	f.bind(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.repeat, "repeat", 1, "number of calls")
	flags.StringVar(&f.engine, "engine", host.Compiler.String(), "compiler or interpreter")
	flags.DurationVar(&f.budget, "budget", host.DefaultBudget, "wall-clock time of one call")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := f.request(cmd, args[0])
		if err != nil {
			return err
		}
		var res *runResult
		err = withRuntime(cmd.Context(), req.engine, func(rt *host.Runtime) (err error) {
			res, err = req.run(cmd.Context(), rt)
			return err
		})
		if err != nil {
			return err
		}
		return tell(cmd, *asJSON, res, req.name)
	}
	return cmd
}

// request checks the command line and reads what it names.
func (f *runFlags) request(cmd *cobra.Command, arg string) (*runRequest, error) {
	usage := usageOf(cmd)
	req := &runRequest{name: arg, repeat: f.repeat}
	var err error
	if req.engine, req.limits, err = f.check(cmd); err != nil {
		return nil, err
	}
	if f.input == "" {
		return nil, usage("--input is missing: name a file with the snapshot")
	}
	switch f.op {
	case "":
	case pluginapi.OpAllocate.String():
		req.op = pluginapi.OpAllocate
	case pluginapi.OpRebalance.String():
		req.op = pluginapi.OpRebalance
	default:
		return nil, usage("--op %q: want allocate or rebalance", f.op)
	}
	var shards []uint32
	for _, s := range f.shards {
		if s >= snapshotfile.MostShards {
			return nil, usage("--shards %d: shards are below %d", s, snapshotfile.MostShards)
		}
		shards = append(shards, uint32(s))
	}
	if req.wasm, err = readModule(arg); err != nil {
		return nil, err
	}
	if req.file, err = f.readInput(cmd.InOrStdin()); err != nil {
		return nil, err
	}
	if req.op == 0 {
		if req.op = req.file.Op; req.op == 0 {
			return nil, usage("--op is missing, and the input does not say: allocate or rebalance")
		}
	}
	if req.op == pluginapi.OpRebalance {
		if shards != nil {
			return nil, usage("--shards is for --op allocate")
		}
		return req, nil
	}
	if shards == nil && req.file.Shards == nil {
		shards = req.file.Homeless()
	}
	if shards != nil {
		if err := req.file.SetShards(shards); err != nil {
			return nil, usage("--shards: %w", err)
		}
	}
	return req, nil
}

func (f *runFlags) readInput(stdin io.Reader) (*snapshotfile.File, error) {
	var data []byte
	var err error
	if f.input == "-" {
		data, err = readUpTo(stdin, "standard input", maxInputBytes)
	} else {
		data, err = readFile(f.input, maxInputBytes)
	}
	if err != nil {
		return nil, withHint(err, "--input names a file with a snapshot, or - for standard input; 'drover strategy run --help' shows one")
	}
	file, err := snapshotfile.Parse(data)
	if err != nil {
		return nil, withHint(fmt.Errorf("input %s: %w", f.input, err), "'drover strategy run --help' shows an input")
	}
	return file, nil
}

// run makes the calls. A refused module is a result, not an error.
func (r *runRequest) run(ctx context.Context, rt *host.Runtime) (*runResult, error) {
	snap := &r.file.Snapshot
	res := &runResult{
		Op: r.op.String(), Digest: host.DigestOf(r.wasm), CostModel: host.CostModel,
		FuelLimit: r.limits.Fuel, Repeat: r.repeat, Identical: true,
	}
	s, err := rt.Load(ctx, r.wasm, r.limits, snap.Config, host.WithName(r.name))
	if res.refused(err) {
		return res, nil
	} else if err != nil {
		return nil, err
	}
	var first host.Result
	var times []time.Duration
	for i := range r.repeat {
		call := s.Call(ctx, r.op, snap, r.file.Shards, 0)
		if _, ok := host.VerdictOf(call.Err); !ok {
			return nil, errors.Join(call.Err, s.Close(ctx))
		}
		if i == 0 {
			first = call
		}
		times = append(times, call.Record.Elapsed)
		res.Identical = res.Identical && sameCall(first.Record, call.Record)
	}
	if err := s.Close(ctx); err != nil {
		return nil, err
	}
	slices.Sort(times)
	res.Repeat = len(times) // not what was asked for, should the two ever differ
	rec := first.Record
	res.log = rec.Log
	res.Verdict, res.Fuel, res.MemoryPages, res.TimeUs = rec.Verdict, rec.Fuel, rec.Pages, times[len(times)/2].Microseconds()
	if first.Err != nil {
		text := first.Err.Error()
		res.Error = &text
		var bad *placement.Error
		if errors.As(first.Err, &bad) {
			rule := bad.Rule.String()
			res.Rule = &rule
		}
		return res, nil
	}
	if r.op == pluginapi.OpAllocate {
		res.Decision = decideHomes(snap, r.file.Shards, first.Homes)
	} else {
		res.Decision = decideMoves(snap, first.Plan)
	}
	return res, nil
}

// sameCall tells whether two calls ended alike: a blown budget aside, which depends on the machine, they must.
func sameCall(a, b *host.Record) bool {
	sameFuel := a.Fuel == nil && b.Fuel == nil || a.Fuel != nil && b.Fuel != nil && *a.Fuel == *b.Fuel
	return a.Verdict == b.Verdict && sameFuel && bytes.Equal(a.Output, b.Output) && a.Pages == b.Pages
}

func decideMoves(snap *pluginapi.Snapshot, plan pluginapi.Plan) *decision {
	moves := make([]decidedMove, len(plan.Moves))
	for i, m := range plan.Moves {
		moves[i] = decidedMove{m.Shard, snap.Nodes[snap.OwnerOf(m.Shard)].Name, nodeName(snap, m.Target), orNull(m.Reason)}
	}
	return &decision{Moves: &moves, Reason: orNull(plan.Reason)}
}

func decideHomes(snap *pluginapi.Snapshot, shards []uint32, h pluginapi.Homes) *decision {
	homes := make([]decidedHome, len(h.Nodes))
	for i, node := range h.Nodes {
		homes[i] = decidedHome{Shard: shards[i], Node: nodeName(snap, node)}
		if i < len(h.Reasons) {
			homes[i].Reason = orNull(h.Reasons[i])
		}
	}
	return &decision{Homes: &homes, Reason: orNull(h.Reason)}
}

func nodeName(snap *pluginapi.Snapshot, node int) *string {
	if node == pluginapi.NoTarget {
		return nil
	}
	return &snap.Nodes[node].Name
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// print writes the result for people.
func (r *runResult) print(w io.Writer, name string) error {
	var b strings.Builder
	line := func(key, format string, args ...any) { fmt.Fprintf(&b, "%-9s %s\n", key, fmt.Sprintf(format, args...)) }
	r.head(line, name, r.Digest)
	if r.Verdict != host.VerdictRefused {
		fuel := "not known after this verdict"
		if r.Fuel != nil {
			fuel = fmt.Sprintf("%s of %s (%.2f %%)", thousands(*r.Fuel), thousands(r.FuelLimit), 100*float64(*r.Fuel)/float64(r.FuelLimit))
		}
		line("fuel", "%s", fuel)
		line("memory", "%d pages (%.1f MiB)", r.MemoryPages, float64(r.MemoryPages)/16)
		times := ""
		if r.Repeat > 1 {
			times = fmt.Sprintf(", median of %d calls that were identical", r.Repeat)
			if !r.Identical {
				times = fmt.Sprintf(", median of %d calls that DIFFERED", r.Repeat)
			}
		}
		line("time", "%s%s", time.Duration(r.TimeUs)*time.Microsecond, times)
	}
	if r.Decision != nil {
		r.Decision.print(&b)
	}
	if len(r.log) > 0 {
		b.WriteString("\nthe strategy logged\n")
	}
	for _, l := range r.log {
		fmt.Fprintf(&b, "  %-5s %s\n", l.Level, l.Message)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *decision) print(b *strings.Builder) {
	because := func(reason *string) string {
		if reason == nil {
			return ""
		}
		return ": " + *reason
	}
	or := func(name *string, none string) string {
		if name == nil {
			return none
		}
		return *name
	}
	if d.Moves != nil {
		fmt.Fprintf(b, "\n%s%s\n", counted(len(*d.Moves), "move"), because(d.Reason))
		for _, m := range *d.Moves {
			fmt.Fprintf(b, "  shard %d  %s → %s%s\n", m.Shard, m.From, or(m.To, "(to be allocated)"), because(m.Reason))
		}
	}
	if d.Homes != nil {
		fmt.Fprintf(b, "\n%s%s\n", counted(len(*d.Homes), "home"), because(d.Reason))
		for _, h := range *d.Homes {
			fmt.Fprintf(b, "  shard %d  %s%s\n", h.Shard, or(h.Node, "(none)"), because(h.Reason))
		}
	}
}

// counted puts a number before its noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// thousands writes a number with a separator, for people.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	return s
}
