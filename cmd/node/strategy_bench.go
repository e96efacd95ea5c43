package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/sharding/coordinator"
)

// mostBenchNodes bounds --nodes, mostBenchSizes how many sizes of one kind there may be.
const (
	mostBenchNodes = 10_000
	mostBenchSizes = 12
)

// benchPatience is the least time that a measured call gets, or ten times its budget if that is more: a call that the clock ended would hide how
// long it takes, and one slow moment of the machine would decide on the exit code. Fuel ends what does not end by itself.
const benchPatience = 10 * time.Second

// benchOwners is how the shards of a measured cluster are spread.
type benchOwners uint8

const (
	ownersEven   benchOwners = iota // round the nodes
	ownersUneven                    // half of them on the first node, the others round the rest
	ownersNone                      // a new cluster: no shard has a home
)

// String returns the name that table, chart and JSON use.
func (o benchOwners) String() string {
	names := [...]string{"even", "uneven", "none"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("owners(%d)", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o benchOwners) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// benchCase is what is asked about a cluster.
type benchCase struct {
	op     pluginapi.Op
	owners benchOwners
}

var benchCases = []benchCase{
	{pluginapi.OpAllocate, ownersEven},
	{pluginapi.OpAllocate, ownersUneven},
	{pluginapi.OpAllocate, ownersNone},
	{pluginapi.OpRebalance, ownersEven},
	{pluginapi.OpRebalance, ownersUneven},
}

// benchPoint is what calls on one cluster took.
type benchPoint struct {
	Op      string       `json:"op"`
	Owners  benchOwners  `json:"owners"`
	Shards  int          `json:"shards"`
	Nodes   int          `json:"nodes"`
	Verdict host.Verdict `json:"verdict"` // the first that is not ok
	Error   *string      `json:"error"`
	Fuel    *int64       `json:"fuel"`
	// Shares are parts of one: of the fuel limit, and of the budget at the 99th percentile.
	FuelShare   *float64 `json:"fuelShare"`
	MedianUs    float64  `json:"medianUs"`
	P99Us       float64  `json:"p99Us"`
	BudgetShare float64  `json:"budgetShare"`
}

// benchResult is what bench prints for machines.
type benchResult struct {
	judged                 // the first point that is not ok
	Digest    host.Digest  `json:"digest"`
	CostModel int          `json:"costModel"`
	FuelLimit int64        `json:"fuelLimit"`
	BudgetUs  int64        `json:"budgetUs"`
	Repeat    int          `json:"repeat"`
	Points    []benchPoint `json:"points"`
}

type benchFlags struct {
	callFlags
	shards, nodes []int
	settings, out string
}

// benchRequest is a command line that made sense.
type benchRequest struct {
	name          string
	wasm          []byte
	shards, nodes []int
	repeat        int
	engine        host.Engine
	limits        host.Limits
	config        pluginapi.Config
	out           string // "" for no chart
}

func newStrategyBenchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench FILE|builtin:NAME",
		Short: "Measure fuel and time of a strategy against the size of the cluster",
		Long: `Measure fuel and time of a strategy against the size of the cluster: allocate and rebalance, for each number of
shards and of nodes. Fuel is exact and the same on every machine; time is that of this one.

Owners are
  even    round the nodes
  uneven  half of the shards on the first node, the others round the rest
  none    of a new cluster: allocate is asked for all shards
With owners even and uneven, allocate is asked for every tenth shard. It is asked for 1024 at once at most, as by a node.
Any number of moves is allowed. Fuel ends a call, the budget does not: a share of it above 100 % is a decision that a
node would not get.

--out writes the curves to a file, .svg or .html.

Exit codes: 0 ok, 2 usage, 3 the module is refused, 4 a call ended in any other verdict, 1 anything else.`,
		Args: oneStrategy,
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&f.shards, "shards", []int{100, 1000, 10_000, 100_000}, "`numbers` of shards")
	flags.IntSliceVar(&f.nodes, "nodes", []int{3, 10, 30, 100}, "`numbers` of nodes")
	flags.IntVar(&f.repeat, "repeat", 100, "calls of each kind, for the percentiles of time")
	flags.StringVar(&f.engine, "engine", host.Compiler.String(), "compiler or interpreter")
	flags.StringVar(&f.settings, "strategy-config", "", "configuration as a `JSON` object, as in [type.config]")
	flags.StringVar(&f.out, "out", "", "`file` for the curves, .svg or .html")
	f.limits = limitFlags(cmd)
	flags.DurationVar(&f.budget, "budget", host.DefaultBudget, "wall-clock time of one call, for the shares")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := f.request(cmd, args[0])
		if err != nil {
			return err
		}
		var res *benchResult
		err = withRuntime(cmd.Context(), req.engine, func(rt *host.Runtime) (err error) {
			res, err = req.run(cmd.Context(), rt, progressOf(cmd.ErrOrStderr()))
			return err
		})
		if err != nil {
			return err
		}
		if req.out != "" && res.Verdict != host.VerdictRefused {
			if err := writeFile("out", req.out, pictureFile(req.out, "drover strategy bench "+req.name, benchSVG(req.name, res))); err != nil {
				return err
			}
		}
		return tell(cmd, *asJSON, res, req.name)
	}
	return cmd
}

// request checks the command line and reads what it names.
func (f *benchFlags) request(cmd *cobra.Command, arg string) (*benchRequest, error) {
	usage := usageOf(cmd)
	req := &benchRequest{name: arg, repeat: f.repeat, out: f.out}
	var err error
	if req.engine, req.limits, err = f.check(cmd); err != nil {
		return nil, err
	}
	if err := checkPicture(cmd, "out", f.out); err != nil {
		return nil, err
	}
	if req.shards, err = benchSizes(f.shards, snapshotfile.MostShards); err != nil {
		return nil, usage("--shards: %w", err)
	}
	if req.nodes, err = benchSizes(f.nodes, mostBenchNodes); err != nil {
		return nil, usage("--nodes: %w", err)
	}
	if req.wasm, err = readModule(arg); err != nil {
		return nil, err
	}
	req.config, err = strategyConfig(f.settings)
	return req, err
}

// benchSizes returns the numbers, ascending, each once.
func benchSizes(given []int, most int) ([]int, error) {
	sizes := slices.Compact(slices.Sorted(slices.Values(given)))
	if len(sizes) == 0 || len(sizes) > mostBenchSizes {
		return nil, fmt.Errorf("%d numbers: between 1 and %d", len(sizes), mostBenchSizes)
	}
	if sizes[0] < 1 {
		return nil, fmt.Errorf("%d: between 1 and %d", sizes[0], most)
	}
	if last := sizes[len(sizes)-1]; last > most {
		return nil, fmt.Errorf("%d: between 1 and %d", last, most)
	}
	return sizes, nil
}

// run measures. A refused module is a result, not an error.
func (r *benchRequest) run(ctx context.Context, rt *host.Runtime, p *progress) (*benchResult, error) {
	defer p.end()
	res := &benchResult{
		Digest: host.DigestOf(r.wasm), CostModel: host.CostModel, FuelLimit: r.limits.Fuel,
		BudgetUs: r.limits.Budget.Microseconds(), Repeat: r.repeat, Points: []benchPoint{},
	}
	s, err := rt.Load(ctx, r.wasm, r.limits, r.config, host.WithName(r.name))
	if res.refused(err) {
		return res, nil
	} else if err != nil {
		return nil, err
	}
	all := len(benchCases) * len(r.nodes) * len(r.shards)
	for _, c := range benchCases {
		for _, nodes := range r.nodes {
			for _, shards := range r.shards {
				p.at(len(res.Points), all, fmt.Sprintf("clusters: %s, owners %s, %d shards, %d nodes", c.op, c.owners, shards, nodes))
				point, err := r.measure(ctx, s, c, shards, nodes)
				if err != nil {
					return nil, errors.Join(err, s.Close(ctx))
				}
				if res.Verdict == host.VerdictOK && point.Verdict != host.VerdictOK {
					res.Verdict, res.Error = point.Verdict, point.Error
				}
				res.Points = append(res.Points, point)
			}
		}
	}
	return res, s.Close(ctx)
}

// measure makes the calls on one cluster.
func (r *benchRequest) measure(ctx context.Context, s *host.Strategy, c benchCase, shards, nodes int) (benchPoint, error) {
	snap, homeless := c.cluster(shards, nodes)
	p := benchPoint{Op: c.op.String(), Owners: c.owners, Shards: shards, Nodes: nodes}
	times := make([]time.Duration, 0, r.repeat)
	for range r.repeat {
		call := s.Call(ctx, c.op, snap, homeless, max(benchPatience, 10*r.limits.Budget))
		if ctx.Err() != nil { // the verdict would be on whoever pressed ^C
			return p, context.Cause(ctx)
		}
		verdict, ok := host.VerdictOf(call.Err)
		if !ok {
			return p, call.Err
		}
		if call.Err != nil && p.Verdict == host.VerdictOK {
			text := call.Err.Error()
			p.Verdict, p.Error = verdict, &text
		}
		if p.Fuel == nil && call.Record.Fuel != nil {
			share := float64(*call.Record.Fuel) / float64(r.limits.Fuel)
			p.Fuel, p.FuelShare = call.Record.Fuel, &share
		}
		times = append(times, call.Record.Elapsed)
	}
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	p99 := percentile(times, 0.99)
	p.MedianUs, p.P99Us, p.BudgetShare = us(percentile(times, 0.5)), us(p99), float64(p99)/float64(r.limits.Budget)
	return p, nil
}

// percentile returns the least of sorted values that a part of them does not exceed.
func percentile[T int64 | time.Duration](sorted []T, part float64) T {
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// cluster makes the cluster, and the shards that allocate is asked for.
func (c benchCase) cluster(shards, nodes int) (*pluginapi.Snapshot, []uint32) {
	snap := &pluginapi.Snapshot{Type: "bench", Revision: 1, Owners: make([]uint32, shards), MaxMoves: uint64(shards)}
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i+1)
		snap.Nodes = append(snap.Nodes, pluginapi.Node{
			Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100,
			Zone: fmt.Sprintf("zone-%d", i%3+1),
		})
		snap.Candidates = append(snap.Candidates, i)
	}
	var homeless []uint32
	for i := range shards {
		free := c.owners == ownersNone || c.op == pluginapi.OpAllocate && i%10 == 0
		if free && len(homeless) < coordinator.HomesPerQuestion {
			homeless = append(homeless, uint32(i))
		}
		switch {
		case free:
			snap.Owners[i] = pluginapi.NoOwner
		case c.owners == ownersUneven && (nodes == 1 || i%2 == 1):
			snap.Owners[i] = 0
		case c.owners == ownersUneven:
			snap.Owners[i] = uint32(1 + i/2%(nodes-1))
		default:
			snap.Owners[i] = uint32(i % nodes)
		}
	}
	return snap, homeless
}

// print writes the result for people.
func (r *benchResult) print(w io.Writer, name string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "strategy  %s, %s\n", name, r.Digest)
	if r.Verdict == host.VerdictRefused {
		fmt.Fprintf(&b, "verdict   %s\nerror     %s\n", r.Verdict, *r.Error)
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "limits    %s units of fuel, %s a call; %s each\n", thousands(r.FuelLimit), time.Duration(r.BudgetUs)*time.Microsecond, counted(r.Repeat, "call"))
	last := ""
	for _, p := range r.Points {
		if title := p.title(); title != last {
			last = title
			fmt.Fprintf(&b, "\n%s\n%8s %7s %13s %9s %10s %10s %10s\n", title, "shards", "nodes", "fuel", "of limit", "median", "p99", "of budget")
		}
		fuel, share := "-", "-"
		if p.Fuel != nil {
			fuel, share = thousands(*p.Fuel), percent(*p.FuelShare)
		}
		fmt.Fprintf(&b, "%8d %7d %13s %9s %10s %10s %10s", p.Shards, p.Nodes, fuel, share, benchTime(p.MedianUs), benchTime(p.P99Us), percent(p.BudgetShare))
		if p.Error != nil {
			fmt.Fprintf(&b, "  %s: %s", p.Verdict, *p.Error)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// title names the case of a point.
func (p *benchPoint) title() string {
	switch {
	case p.Owners == ownersNone:
		return p.Op + ", all shards of a new cluster"
	case p.Op == pluginapi.OpAllocate.String():
		return fmt.Sprintf("%s, a tenth of the shards, owners %s", p.Op, p.Owners)
	}
	return fmt.Sprintf("%s, owners %s", p.Op, p.Owners)
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// benchTime writes a time of so many microseconds.
func benchTime(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.2g µs", us)
	case us < 10_000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 10_000_000:
		return fmt.Sprintf("%.1f ms", us/1e3)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}
