// Command bench compares metered code with plain code, and with wasmtime's own
// metering, in one run. It is a module of its own, because wasmtime needs cgo;
// without a C compiler the rest is measured.
//
// Every way to run a kernel takes its turn in each round, and a figure is the
// median of the ratios of one round, so that whatever else the machine does
// meets all of them alike.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A target is what a figure is held against; see the issue of the host.
type target struct {
	name  string
	most  float64
	floor float64
}

var targets = struct{ mean, worst, goWorst, nan target }{
	mean:    target{"geometric mean", 1.12, 1.20},
	worst:   target{"worst", 1.70, 0},
	goWorst: target{"standard Go, worst", 1.18, 0},
	nan:     target{"canonical NaN on float kernels, geometric mean", 1.15, 0},
}

func main() {
	rounds := flag.Int("rounds", 31, "how often each kernel runs")
	kernels := flag.String("kernels", "../internal/fuel/testdata/kernels/kernels.wasm", "the C kernels")
	only := flag.String("only", "", "regular expression of the kernels to run")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err == nil {
		err = run(*kernels, match, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runner is one way to run the kernels of one module.
type runner struct {
	name string
	call func(kernel string) (uint32, error)
}

func run(file string, only *regexp.Regexp, rounds int) error {
	ctx := context.Background()
	c, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	guest, err := buildGo()
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "kernel\tplain ms\tmetered\twithout NaNs\twasmtime fuel\twasmtime epochs\twazero / wasmtime\t")
	var cKernels, goKernels []figures
	for _, m := range []struct {
		wasm []byte
		into *[]figures
	}{{c, &cKernels}, {guest, &goKernels}} {
		rs, names, err := runners(ctx, m.wasm)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !only.MatchString(name) {
				continue
			}
			f, err := measure(rs, name, rounds)
			if err != nil {
				return err
			}
			*m.into = append(*m.into, f)
			fmt.Fprintf(out, "%s\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\t\n", f.name, f.plain, f.metered, f.raw, known(f.wasmtimeFuel), known(f.wasmtimeEpochs), known(f.engines))
			fmt.Fprint(os.Stderr, ".")
		}
	}
	fmt.Fprintln(os.Stderr)
	if err := out.Flush(); err != nil {
		return err
	}
	summary(cKernels, goKernels)
	return nil
}

// figures are the ratios of one kernel: each metered way by its own plain one.
type figures struct {
	name                         string
	plain                        float64 // milliseconds
	metered, raw                 float64
	wasmtimeFuel, wasmtimeEpochs float64
	engines                      float64
}

// measure runs a kernel in turns and returns its ratios. All must agree on the
// result.
func measure(rs []runner, kernel string, rounds int) (figures, error) {
	times := make([][]float64, len(rs))
	var want uint32
	for round := range rounds + 1 {
		for i := range rs {
			// The order changes from round to round.
			i := (i + round) % len(rs)
			if rs[i].call == nil {
				continue
			}
			started := time.Now()
			got, err := rs[i].call(kernel)
			spent := time.Since(started)
			if err != nil {
				return figures{}, fmt.Errorf("%s, %s: %w", kernel, rs[i].name, err)
			}
			if round == 0 && i == plain {
				want = got
			}
			if got != want {
				return figures{}, fmt.Errorf("%s, %s: got %d, want %d", kernel, rs[i].name, got, want)
			}
			if round > 0 { // the first one warms up
				times[i] = append(times[i], spent.Seconds()*1e3)
			}
		}
	}
	ratio := func(a, b int) float64 {
		if len(times[a]) == 0 || len(times[b]) == 0 {
			return math.NaN()
		}
		var r []float64
		for i := range times[a] {
			r = append(r, times[a][i]/times[b][i])
		}
		return median(r)
	}
	return figures{
		name: kernel, plain: median(slices.Clone(times[plain])),
		metered: ratio(metered, plain), raw: ratio(meteredRaw, plain),
		wasmtimeFuel: ratio(wtFuel, wtPlain), wasmtimeEpochs: ratio(wtEpochs, wtPlain),
		engines: ratio(plain, wtPlain),
	}, nil
}

// known shows a ratio, or that there is none.
func known(ratio float64) string {
	if math.IsNaN(ratio) {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

func geomean(fs []figures, of func(figures) float64) float64 {
	sum := 0.0
	for _, f := range fs {
		sum += math.Log(of(f))
	}
	return math.Exp(sum / float64(len(fs)))
}

func worst(fs []figures, of func(figures) float64) float64 {
	w := 0.0
	for _, f := range fs {
		w = max(w, of(f))
	}
	return w
}

// floatKernels spend their time on floats.
var floatKernels = []string{"matmul_f64", "matmul_f32", "mandelbrot", "nbody", "spectral"}

func summary(c, goes []figures) {
	all := slices.Concat(c, goes)
	var floats []figures
	for _, f := range c {
		if slices.Contains(floatKernels, f.name) {
			floats = append(floats, f)
		}
	}
	raw := func(f figures) float64 { return f.raw }
	line := func(t target, got float64) {
		verdict := "holds"
		if math.IsNaN(got) || got == 0 {
			verdict = "not measured"
		} else if got > t.most {
			verdict = fmt.Sprintf("missed by %.2f", got-t.most)
			if t.floor > 0 && got > t.floor {
				verdict += fmt.Sprintf(", and the floor of %.2f by %.2f", t.floor, got-t.floor)
			}
		}
		fmt.Printf("  %-50s %.2f  target %.2f: %s\n", t.name, got, t.most, verdict)
	}
	fmt.Printf("\nfuel, depth and slices, metered / plain, of %d kernels (NaNs as the engine makes them):\n", len(all))
	line(targets.mean, geomean(all, raw))
	line(targets.worst, worst(all, raw))
	line(targets.goWorst, worst(goes, raw))
	wt := func(f figures) float64 { return f.wasmtimeFuel }
	ep := func(f figures) float64 { return f.wasmtimeEpochs }
	if of := geomean(c, wt); math.IsNaN(of) {
		fmt.Println("  wasmtime's own fuel: not measured, for want of cgo. Install a C compiler (gcc), set CGO_ENABLED=1 and run it again.")
	} else {
		line(target{"overhead / half of wasmtime fuel's (C kernels)", 1, 0}, (geomean(c, raw)-1)/((of-1)/2))
		fmt.Printf("  %-50s %.2f, worst %.2f\n", "wasmtime fuel / its own plain, C kernels", of, worst(c, wt))
		fmt.Printf("  %-50s %.2f, worst %.2f\n", "wasmtime epochs / its own plain, C kernels", geomean(c, ep), worst(c, ep))
	}
	line(targets.nan, geomean(floats, func(f figures) float64 { return f.metered / f.raw }))
	fmt.Printf("  %-50s %.2f, worst %.2f\n", "all of it, canonical NaNs included", geomean(all, func(f figures) float64 { return f.metered }), worst(all, func(f figures) float64 { return f.metered }))
}

// buildGo compiles the Go kernels.
func buildGo() ([]byte, error) {
	dir, err := os.MkdirTemp("", "drover-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "go.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-buildmode=c-shared", "-o", file, "./gokernels")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the Go kernels: %w\n%s", err, strings.TrimSpace(string(b)))
	}
	return os.ReadFile(file)
}

// slice is the host's largest, see host/meter.go.
const slice = 40_000
