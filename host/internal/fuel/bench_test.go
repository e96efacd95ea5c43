package fuel_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// BenchmarkRewrite measures decoding, rewriting and encoding, in bytes of the
// original a second: random modules, and the built-in strategies.
func BenchmarkRewrite(b *testing.B) {
	inputs := map[string][][]byte{}
	for seed := range uint64(200) {
		m := reference.Generate(seed)
		m.Data = m.Data[:2] // large segments are not what is measured
		inputs["generated"] = append(inputs["generated"], wasmbin.Encode(m))
	}
	files, err := filepath.Glob("../../../strategies/*/*.wasm")
	require.NoError(b, err)
	for _, f := range files {
		wasm, err := os.ReadFile(f)
		require.NoError(b, err)
		inputs[filepath.Base(f)] = [][]byte{wasm}
	}
	for name, modules := range inputs {
		b.Run(name, func(b *testing.B) {
			before, after := 0, 0
			for _, wasm := range modules {
				before += len(wasm)
			}
			b.SetBytes(int64(before))
			for b.Loop() {
				after = 0
				for _, wasm := range modules {
					m, err := wasmbin.Decode(wasm)
					require.NoError(b, err)
					res, err := fuel.Rewrite(m, fuel.Options{})
					require.NoError(b, err)
					after += len(res.Wasm)
				}
			}
			b.ReportMetric(float64(after)/float64(before), "size-ratio")
		})
	}
}

// BenchmarkMetered runs the kernels plain and metered by turns in wazero's
// compiler, with slices of the host's size, and reports the median of the
// ratios; last come their geometric mean and the worst.
func BenchmarkMetered(b *testing.B) {
	const file = "testdata/kernels/kernels.wasm"
	ctx := context.Background()
	e := newEngines(b)[0]
	m := readModule(b, file)
	res, err := fuel.Rewrite(m, fuel.Options{RawNaNs: os.Getenv("RAW") != ""})
	require.NoError(b, err)
	metered := e.instantiate(b, e.compile(b, res), res)
	wasm, err := os.ReadFile(file)
	require.NoError(b, err)
	plain, err := e.rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(""))
	require.NoError(b, err)
	logs, worst, kernels := 0.0, 0.0, 0
	for _, x := range m.Exports {
		if x.Kind != wasmbin.KindFunc {
			continue
		}
		b.Run(x.Name, func(b *testing.B) {
			var ratios []float64
			var spent time.Duration
			var used int64
			f := plain.ExportedFunction(x.Name)
			for b.Loop() {
				started := time.Now()
				want, err := f.Call(ctx)
				one := time.Since(started)
				require.NoError(b, err)
				started = time.Now()
				got := metered.call(x.Name, 1<<40, 200_000)
				two := time.Since(started)
				require.Equal(b, verdict{kind: "ok", used: got.used, results: want}, got)
				used = got.used
				spent += two
				ratios = append(ratios, float64(two)/float64(one))
			}
			slices.Sort(ratios)
			ratio := ratios[len(ratios)/2]
			b.ReportMetric(ratio, "metered/plain")
			b.ReportMetric(float64(used)*float64(b.N)/spent.Seconds()/1e6, "Munits/s")
			b.ReportMetric(0, "ns/op")
			logs += math.Log(ratio)
			worst = max(worst, ratio)
			kernels++
		})
	}
	b.Run("all", func(b *testing.B) {
		b.ReportMetric(math.Exp(logs/float64(kernels)), "geomean")
		b.ReportMetric(worst, "worst")
		b.ReportMetric(0, "ns/op")
	})
}
