package fuel_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// TestBinaryen runs what binaryen's fuzzer has made, see
// testdata/binaryen/regenerate.sh, like the modules of our own generator: it
// writes code that ours does not think of, but no br_table.
func TestBinaryen(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/binaryen/modules.tar.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	d := newDifferential(t)
	modules := 0
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
		modules++
		t.Run(h.Name, func(t *testing.T) { d.check(t, m, uint64(modules)) })
	}
	t.Logf("%d modules: %v", modules, d.seen)
	require.GreaterOrEqual(t, modules, 100)
	require.Greater(t, d.seen["ok"], 1000)
	for _, kind := range []string{"fuel", "budget below", "budget enough", "plain", "plain, raw NaNs"} {
		require.NotZero(t, d.seen[kind], kind)
	}
}
