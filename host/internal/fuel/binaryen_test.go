package fuel_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// binaryenModules are modules that binaryen's fuzzer has made, see
// testdata/binaryen/regenerate.sh: it writes code that our generator does not
// think of, but no br_table.
func binaryenModules(t *testing.T) map[string]*wasmbin.Module {
	t.Helper()
	f, err := os.Open("testdata/binaryen/modules.tar.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	out := map[string]*wasmbin.Module{}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if !strings.HasSuffix(h.Name, ".wasm") {
			continue
		}
		wasm, err := io.ReadAll(files)
		require.NoError(t, err)
		m, err := wasmbin.Decode(wasm)
		require.NoError(t, err, h.Name)
		again, err := wasmbin.Decode(wasmbin.Encode(m))
		require.NoError(t, err, h.Name)
		require.Equal(t, m, again, h.Name)
		out[h.Name] = m
	}
	require.GreaterOrEqual(t, len(out), 100)
	return out
}

// TestBinaryen runs binaryen's modules like those of our own generator.
func TestBinaryen(t *testing.T) {
	t.Parallel()
	d, all := newDifferential(t), binaryenModules(t)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { d.check(t, all[name], uint64(i)) })
	}
	t.Log(d.seen)
	require.Greater(t, d.seen["ok"], 1000)
	for _, kind := range []string{"fuel", "budget below", "budget enough", "plain", "plain, raw NaNs"} {
		require.NotZero(t, d.seen[kind], kind)
	}
}
