// Command attacks holds the real host against guests that do not want to stop:
// by how much each overruns the budget of a call, and for how long a goroutine
// that has nothing to do with it stands still meanwhile. It needs no cgo.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// What spec 1.3 and the issue of the host ask for.
const (
	targetOverrun = 2 * time.Millisecond // at the 99th percentile
	tick          = 100 * time.Microsecond
)

// An attack is one shape, a module of host/testdata/attack.
type attack struct {
	name, does string
	op         pluginapi.Op
	nodes      int // of the cluster that it is asked about
	shards     int
}

var attacks = []attack{
	{"loop", "a loop of nothing", pluginapi.OpAllocate, 8, 16},
	{"call-tree", "2^60 calls that are never deep", pluginapi.OpAllocate, 8, 16},
	{"recursion", "a function that calls itself", pluginapi.OpAllocate, 8, 16},
	{"mutual-recursion", "two functions that call each other", pluginapi.OpAllocate, 8, 16},
	{"indirect-recursion", "through a table", pluginapi.OpAllocate, 8, 16},
	{"big-frames", "recursion with 500 values a frame", pluginapi.OpAllocate, 8, 16},
	{"unwind", "deep recursion, the work on the way back", pluginapi.OpAllocate, 8, 16},
	{"indirect-storm", "nothing but call_indirect", pluginapi.OpAllocate, 8, 16},
	{"memory-fill", "memory.fill of 16 MiB", pluginapi.OpAllocate, 8, 16},
	{"memory-copy", "memory.copy of 16 MiB", pluginapi.OpAllocate, 8, 16},
	{"grow", "memory.grow by a page, to 64 MiB", pluginapi.OpAllocate, 8, 16},
	{"grow-nothing", "memory.grow by nothing", pluginapi.OpAllocate, 8, 16},
	{"grow-all", "16 MiB at once, and memory.fill of it", pluginapi.OpAllocate, 8, 16},
	{"table-grow", "table.grow", pluginapi.OpAllocate, 8, 16},
	{"table-fill", "table.fill of 65536 elements", pluginapi.OpAllocate, 8, 16},
	{"table-copy", "table.copy of 65535 elements", pluginapi.OpAllocate, 8, 16},
	{"long-start", "a start section at each call", pluginapi.OpAllocate, 8, 16},
	{"nesting", "out of 3900 blocks", pluginapi.OpAllocate, 8, 16},
	{"nan-floats", "floats that are NaNs", pluginapi.OpAllocate, 8, 16},
	{"chase", "pointers all over 16 MiB", pluginapi.OpAllocate, 8, 16},
	{"chase-late", "quick, then slow, in turns", pluginapi.OpAllocate, 8, 16},
	{"chase-deep", "pointers before each of 1400 calls", pluginapi.OpAllocate, 8, 16},
	{"log-flood", "drover.log, line upon line", pluginapi.OpAllocate, 8, 16},
	{"log-long", "drover.log of all the memory", pluginapi.OpAllocate, 8, 16},
	{"line-ends", "fd_write of line ends", pluginapi.OpAllocate, 8, 16},
	{"random-flood", "random_get", pluginapi.OpAllocate, 8, 16},
	{"yield-flood", "sched_yield", pluginapi.OpAllocate, 8, 16},
	{"poll-flood", "poll_oneoff", pluginapi.OpAllocate, 8, 16},
	{"bad-pointer", "an answer outside the memory", pluginapi.OpAllocate, 8, 16},
	{"bad-length", "an answer of 4 GiB", pluginapi.OpAllocate, 8, 16},
	{"bad-cbor", "an answer that is no CBOR", pluginapi.OpAllocate, 8, 16},
	{"million-moves", "10^6 moves of 16 shards", pluginapi.OpRebalance, 8, 16},
	{"million-moves", "10^6 moves of 100 000 shards", pluginapi.OpRebalance, 100, 100_000},
	{"long-answer", "5·10^4 moves of 100 000 shards, 7.5 MB", pluginapi.OpRebalance, 100, 100_000},
}

func main() {
	runs := flag.Int("runs", 20, "calls of each shape that are timed; a 99th percentile wants 100")
	pauses := flag.Int("pauses", 5, "for how many budgets each shape is called while the collector runs and a goroutine ticks")
	dir := flag.String("modules", "../testdata/attack", "where the modules are")
	only := flag.String("only", "", "regular expression of the shapes to run")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err == nil {
		err = run(*dir, match, *runs, *pauses)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

func run(dir string, only *regexp.Regexp, runs, pauses int) error {
	runtime.GOMAXPROCS(2)
	ctx := context.Background()
	rt, err := host.NewRuntime(ctx, host.Options{})
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	fmt.Printf(`budget %s, %d calls a shape, fuel without end. Times are milliseconds.
overrun   of the budget, by the clock on the wall: what others take of the machine is in it
own       the same, had nobody taken the processor away since the last look at the clock in time; n calls can tell;
          target: at most %s at the 99th percentile
unlooked  the longest time of the thread between two looks at the clock: nobody can stop a guest there
tail      the longest time of the thread after the last look: what reading the answer takes
pause     the longest stop of a goroutine that ticks every %s while another runs the collector in a loop, over %s

`, host.DefaultBudget, runs, targetOverrun, tick, time.Duration(pauses)*host.DefaultBudget)
	out := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', 0)
	fmt.Fprintf(out, "shape\twhat it does\tverdict\ttook p50\toverrun p50\tp99\tworst\town n\tp50\tp99\tworst\t≤ %.0f\tunlooked\ttail\tpause\t\n", ms(targetOverrun))
	spin, err := measure(spinning, runs, pauses)
	if err != nil {
		return err
	}
	print(out, attack{name: "(none)", does: "Go code that always looks at the clock"}, spin)
	missed := 0
	for _, a := range attacks {
		if !only.MatchString(a.name) {
			continue
		}
		f, err := strategy(ctx, rt, dir, a, runs, pauses)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if !print(out, a, f) {
			missed++
		}
		fmt.Fprint(os.Stderr, ".")
	}
	fmt.Fprintln(os.Stderr)
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Printf("\n%d shapes miss the target.\n", missed)
	return nil
}

// figures are what the calls of one shape took, and what they did to others.
type figures struct {
	verdict string
	calls   []timing
	pause   time.Duration
}

// quantile returns what so large a part of the times stay within, in
// milliseconds; 1 is the worst.
func quantile(q float64, times []time.Duration) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return ms(times[min(int(q*float64(len(times))), len(times)-1)])
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// print writes one line, and tells whether the target holds.
func print(w io.Writer, a attack, f figures) bool {
	var took, overrun, own []time.Duration
	var unlooked, tail time.Duration
	for _, t := range f.calls {
		took, overrun = append(took, t.took), append(overrun, t.overrun)
		if t.counts {
			own = append(own, t.own)
		}
		unlooked, tail = max(unlooked, t.unlooked), max(tail, t.tail)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t", a.name, a.does, f.verdict, quantile(0.5, took))
	holds := true
	if f.verdict == host.VerdictBudget.String() {
		holds = quantile(0.99, own) <= ms(targetOverrun)
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%d\t%.2f\t%.2f\t%.2f\t%s\t", quantile(0.5, overrun), quantile(0.99, overrun), quantile(1, overrun),
			len(own), quantile(0.5, own), quantile(0.99, own), quantile(1, own), map[bool]string{true: "holds", false: "missed"}[holds])
	} else {
		fmt.Fprint(w, "\t\t\t\t\t\t\tends by itself\t")
	}
	fmt.Fprintf(w, "%.2f\t%.2f\t%.1f\t\n", ms(unlooked), ms(tail), ms(f.pause))
	return holds
}

// strategy measures the calls of one shape.
func strategy(ctx context.Context, rt *host.Runtime, dir string, a attack, runs, pauses int) (figures, error) {
	wasm, err := os.ReadFile(filepath.Join(dir, a.name+".wasm"))
	if err != nil {
		return figures{}, err
	}
	s, err := rt.Load(ctx, wasm, host.Limits{Fuel: host.MaxFuel, InitFuel: host.MaxFuel, MemoryPages: host.MaxMemoryPages}, nil)
	if err != nil {
		return figures{}, err
	}
	snap := cluster(a.nodes, a.shards)
	f, err := measure(func(ctx context.Context) string {
		return s.Call(ctx, a.op, snap, []uint32{0}, 0).Record.Verdict.String()
	}, runs, pauses)
	return f, errors.Join(err, s.Close(ctx))
}

// spinning is what the machine does to whoever looks at the clock all the time.
func spinning(ctx context.Context) string {
	for started := time.Now(); time.Since(started) < host.DefaultBudget; {
		if ctx.Err() != nil {
			break
		}
	}
	return "budget"
}

// measure times calls alone, and then beside the collector.
func measure(call func(context.Context) string, runs, pauses int) (f figures, err error) {
	runtime.LockOSThread() // so that its time is the call's
	defer runtime.UnlockOSThread()
	for i := range runs {
		w := newWatch(context.Background(), host.DefaultBudget)
		verdict := call(w)
		f.calls = append(f.calls, w.end())
		if i > 0 && verdict != f.verdict {
			return f, fmt.Errorf("verdict %s, then %s", f.verdict, verdict)
		}
		f.verdict = verdict
	}
	f.pause = longestPause(func() {
		for started := time.Now(); time.Since(started) < time.Duration(pauses)*host.DefaultBudget; {
			call(context.Background())
		}
	})
	return f, nil
}

// longestPause tells for how long a goroutine that should wake at each tick did
// not, while f runs, beside the collector.
func longestPause(f func()) time.Duration {
	var stop atomic.Bool
	collected, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		defer close(collected)
		for !stop.Load() {
			runtime.GC()
		}
	}()
	go func() {
		var most time.Duration
		for last := time.Now(); !stop.Load(); {
			time.Sleep(tick)
			now := time.Now()
			most = max(most, now.Sub(last)-tick)
			last = now
		}
		longest <- most
	}()
	f()
	stop.Store(true)
	<-collected
	return <-longest
}

// cluster is a snapshot of nodes that are up, with the shards dealt in turn.
func cluster(nodes, shards int) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{Type: "counter", MaxMoves: uint64(shards)}
	for i := range nodes {
		name := fmt.Sprintf("node-%03d", i)
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100})
		s.Candidates = append(s.Candidates, i)
	}
	for i := range shards {
		s.Owners = append(s.Owners, uint32(i%nodes))
	}
	return s
}
