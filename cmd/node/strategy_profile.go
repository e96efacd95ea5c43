package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
)

// profileBudget is the time of a profiled call, which takes several times as long as another: fuel is what ends it.
const profileBudget = time.Minute

// profileTop is how many functions people are shown.
const profileTop = 20

// profileResult is what profile prints for machines.
type profileResult struct {
	judged
	Op        string            `json:"op"`
	Digest    host.Digest       `json:"digest"`
	CostModel int               `json:"costModel"`
	Fuel      *int64            `json:"fuel"`
	FuelLimit int64             `json:"fuelLimit"`
	Functions []profileFunction `json:"functions"` // most flat fuel first

	samples []host.Sample
}

// profileFunction is the fuel of one function: its own, and with all that it called.
type profileFunction struct {
	Index uint32 `json:"index"`
	Name  string `json:"name"`
	Flat  int64  `json:"flat"`
	Cum   int64  `json:"cum"`
}

func newStrategyProfileCommand() *cobra.Command {
	f := runFlags{callFlags: callFlags{engine: host.Compiler.String(), repeat: 1, budget: profileBudget}}
	var out, flame string
	cmd := &cobra.Command{
		Use:   "profile FILE|builtin:NAME --op allocate|rebalance --input FILE",
		Short: "Say which functions of a strategy the fuel of a call goes to",
		Long: `Say which functions of a strategy the fuel of a call goes to. Fuel is exact: the figures sum to what the call
costs, and are the same each time and on every machine. flat is a function's own, cum with all that it called. What a
call of the host costs is its caller's.

--out writes a profile for 'go tool pprof', --flame a flame graph (.svg or .html). Names are those of the module's name
section, else func[N]. The input is that of 'drover strategy run'.

Exit codes: 0 ok, 2 usage, 3 the module is refused, 4 any other verdict, 1 anything else.`,
		Args: oneStrategy,
	}
	flags := cmd.Flags()
	f.bind(cmd)
	flags.StringVar(&out, "out", "", "`file` for the profile, in pprof format")
	flags.StringVar(&flame, "flame", "", "`file` for the flame graph, .svg or .html")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkPicture(cmd, "flame", flame); err != nil {
			return err
		}
		req, err := f.request(cmd, args[0])
		if err != nil {
			return err
		}
		res, err := req.profile(cmd.Context())
		if err != nil {
			return err
		}
		if len(res.samples) > 0 {
			if err := res.write(req.name, out, flame); err != nil {
				return err
			}
		}
		return tell(cmd, *asJSON, res, req.name)
	}
	return cmd
}

// profile makes the call. A refused module is a result, not an error.
func (r *runRequest) profile(ctx context.Context) (*profileResult, error) {
	res := &profileResult{Op: r.op.String(), Digest: host.DigestOf(r.wasm), CostModel: host.CostModel, FuelLimit: r.limits.Fuel, Functions: []profileFunction{}}
	call, samples, err := host.Profile(ctx, r.wasm, r.limits, r.op, &r.file.Snapshot, r.file.Shards)
	if res.refused(err) {
		return res, nil
	} else if err != nil {
		return nil, err
	}
	verdict, ok := host.VerdictOf(call.Err)
	if !ok {
		return nil, call.Err
	}
	if call.Err != nil {
		text := call.Err.Error()
		res.Error = &text
	}
	res.Verdict, res.Fuel, res.samples, res.Functions = verdict, call.Record.Fuel, samples, sumFunctions(samples)
	return res, nil
}

// sumFunctions adds up the samples, a function that is several times on a stack once.
func sumFunctions(samples []host.Sample) []profileFunction {
	all := map[uint32]*profileFunction{}
	for _, s := range samples {
		counted := map[uint32]bool{}
		for i, f := range s.Stack {
			if all[f.Index] == nil {
				all[f.Index] = &profileFunction{Index: f.Index, Name: f.Name}
			}
			if i == 0 {
				all[f.Index].Flat += s.Fuel
			}
			if !counted[f.Index] {
				counted[f.Index] = true
				all[f.Index].Cum += s.Fuel
			}
		}
	}
	out := make([]profileFunction, 0, len(all))
	for _, f := range all {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b profileFunction) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.Cum, a.Cum), cmp.Compare(a.Index, b.Index))
	})
	return out
}

// write writes the files that are asked for.
func (r *profileResult) write(name, out, flame string) error {
	if out != "" {
		var b bytes.Buffer
		if err := pprofOf(r.samples).Write(&b); err != nil {
			return fmt.Errorf("profile %s: %w", out, err)
		}
		if err := writeFile("out", out, b.Bytes()); err != nil {
			return err
		}
	}
	if flame != "" {
		title := fmt.Sprintf("%s, %s: %s units of fuel", name, r.Op, thousands(*r.Fuel))
		return writeFile("flame", flame, pictureFile(flame, title, flameSVG(title, r.samples)))
	}
	return nil
}

// pprofOf returns the samples in the format of go tool pprof.
func pprofOf(samples []host.Sample) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "fuel", Unit: "units"}}, DefaultSampleType: "fuel",
		PeriodType: &profile.ValueType{Type: "fuel", Unit: "units"}, Period: 1}
	locations := map[uint32]*profile.Location{}
	for _, s := range samples {
		sample := &profile.Sample{Value: []int64{s.Fuel}}
		for _, f := range s.Stack {
			l := locations[f.Index]
			if l == nil {
				id := uint64(len(locations) + 1)
				fn := &profile.Function{ID: id, Name: f.Name, SystemName: fmt.Sprintf("func[%d]", f.Index)}
				l = &profile.Location{ID: id, Line: []profile.Line{{Function: fn}}}
				locations[f.Index] = l
				p.Function, p.Location = append(p.Function, fn), append(p.Location, l)
			}
			sample.Location = append(sample.Location, l)
		}
		p.Sample = append(p.Sample, sample)
	}
	return p
}

// print writes the result for people.
func (r *profileResult) print(w io.Writer, name string) error {
	var b strings.Builder
	line := func(key, format string, args ...any) { fmt.Fprintf(&b, "%-9s %s\n", key, fmt.Sprintf(format, args...)) }
	r.head(line, name, r.Digest)
	if r.Fuel != nil {
		line("fuel", "%s of %s (%s)", thousands(*r.Fuel), thousands(r.FuelLimit), percent(float64(*r.Fuel)/float64(r.FuelLimit)))
	}
	if len(r.Functions) > 0 {
		fmt.Fprintf(&b, "\n%13s %9s %13s %9s  function\n", "flat", "", "cum", "")
	}
	for _, f := range r.Functions[:min(len(r.Functions), profileTop)] {
		share := func(v int64) string { return percent(float64(v) / float64(*r.Fuel)) }
		fmt.Fprintf(&b, "%13s %9s %13s %9s  %s\n", thousands(f.Flat), share(f.Flat), thousands(f.Cum), share(f.Cum), printable(f.Name))
	}
	if more := len(r.Functions) - profileTop; more > 0 {
		fmt.Fprintf(&b, "and %s more; --json lists all\n", counted(more, "function"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable returns a name from a module without what a terminal could obey.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, name)
}
