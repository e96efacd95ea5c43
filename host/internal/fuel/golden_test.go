package fuel_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

type golden struct{ file, export, want string }

func goldens(t testing.TB) []golden {
	t.Helper()
	f, err := os.Open("testdata/goldens/expected.txt")
	require.NoError(t, err)
	defer f.Close()
	var out []golden
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.SplitN(line, " ", 3)
		require.Len(t, parts, 3, line)
		out = append(out, golden{parts[0], parts[1], parts[2]})
	}
	return out
}

// golden formats a verdict as expected.txt does.
func (v verdict) golden() string {
	if v.kind != "ok" {
		return "trap:" + v.kind
	}
	s := fmt.Sprint(v.used)
	for _, r := range v.results {
		s += fmt.Sprintf(" %x", r)
	}
	return s
}

// TestGoldens holds both engines and the reference against frozen, hand-counted
// units: every rule of cost model 1 (spec 1.3).
func TestGoldens(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 1, fuel.CostModel, "the goldens are of cost model 1")
	engines := newEngines(t)
	named := map[string]bool{}
	var file string
	var run []func(export string) verdict
	for _, g := range goldens(t) {
		if g.file != file {
			file = g.file
			run = goldenRunners(t, engines, file)
		}
		named[g.file+" "+g.export] = true
		for i, f := range run {
			got := f(g.export).golden()
			assert.Equal(t, g.want, got, "%s %s, runner %d (0 reference, 1 compiler, 2 interpreter)", g.file, g.export, i)
		}
	}
	// Every export has its line.
	files, err := filepath.Glob("testdata/goldens/*.wasm")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		for _, e := range readModule(t, f).Exports {
			if e.Kind == wasmbin.KindFunc {
				name := strings.TrimSuffix(filepath.Base(f), ".wasm") + " " + e.Name
				require.True(t, named[name], "expected.txt lacks %q", name)
			}
		}
	}
}

func readModule(t testing.TB, file string) *wasmbin.Module {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	m, err := wasmbin.Decode(b)
	require.NoError(t, err, file)
	return m
}

// goldenRunners returns ways to call exports of a golden module: the reference
// and the engines, each with an instance of its own.
func goldenRunners(t *testing.T, engines []*engine, file string) []func(export string) verdict {
	t.Helper()
	const limit = 1 << 40
	m := readModule(t, "testdata/goldens/"+file+".wasm")
	ref, err := reference.New(m, reference.Options{DepthLimit: fuel.DefaultDepthLimit, MaxPages: maxPages, Host: reference.Host})
	require.NoError(t, err)
	out := []func(string) verdict{func(export string) verdict {
		index := m.Start
		if export != "*.start" {
			index = ref.Export(export)
		}
		results, trap := ref.Call(index, limit)
		if trap != nil {
			return verdict{kind: trap.Error()}
		}
		return verdict{kind: "ok", used: ref.Used, results: results}
	}}
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	for _, e := range engines {
		in := e.instantiate(t, e.compile(t, res), res)
		out = append(out, func(export string) verdict {
			if export == "*.start" {
				export = fuel.Namespace + ".start"
			}
			return in.call(export, limit, 1000)
		})
	}
	return out
}
