package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// A function that is several times on a stack has the fuel of that stack once.
func TestSumFunctions(t *testing.T) {
	a, b := host.Function{Index: 1, Name: "a"}, host.Function{Index: 2, Name: "b"}
	got := sumFunctions([]host.Sample{
		{Stack: []host.Function{a}, Fuel: 1},
		{Stack: []host.Function{b, a}, Fuel: 10},
		{Stack: []host.Function{a, b, a}, Fuel: 100},
	})
	assert.Equal(t, []profileFunction{{Index: 1, Name: "a", Flat: 101, Cum: 111}, {Index: 2, Name: "b", Flat: 10, Cum: 110}}, got)
}

// Spec 1.5: the file is a profile that go tool pprof reads, whose samples sum to the fuel that strategy run tells.
func TestProfileFile(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	input, file := filepath.Join(dir, "in.json"), filepath.Join(dir, "fuel.pb.gz")
	require.NoError(t, os.WriteFile(input, []byte(`{"nodes":["a","b","c"],"owners":["a","a","a","a",null,"b"]}`), 0o600))
	guest := filepath.Join("..", "..", "host", "testdata", "guests", "leastshard.wasm")
	ask := func(into any, command string, more ...string) {
		var out, errs bytes.Buffer
		args := append([]string{"strategy", command, guest, "--op", "rebalance", "--input", input, "--json"}, more...)
		require.Zero(t, run(args, nil, &out, &errs), errs.String())
		require.NoError(t, json.Unmarshal(out.Bytes(), into))
	}
	var ran struct{ Fuel int64 }
	ask(&ran, "run", "--budget", "1m")
	var told struct {
		Fuel      int64
		Functions []profileFunction
	}
	ask(&told, "profile", "--out", file)
	require.Equal(t, ran.Fuel, told.Fuel)
	flat := int64(0)
	for _, f := range told.Functions {
		flat += f.Flat
	}
	require.Equal(t, ran.Fuel, flat)

	data, err := os.ReadFile(file)
	require.NoError(t, err)
	p, err := profile.ParseData(data)
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	sum := int64(0)
	for _, s := range p.Sample {
		sum += s.Value[0]
	}
	require.Equal(t, ran.Fuel, sum)
	require.Len(t, p.Function, len(told.Functions))

	shown, err := exec.Command("go", "tool", "pprof", "-top", "-nodefraction=0", file).CombinedOutput()
	require.NoError(t, err, "%s", shown)
	assert.Contains(t, string(shown), told.Functions[0].Name)
	assert.Regexp(t, `flat +flat% +sum% +cum +cum%`, string(shown))
}

// The flame graph is well-formed whatever the functions are called, and a box for each that can be seen.
func TestFlameGraph(t *testing.T) {
	a, b := host.Function{Index: 1, Name: "<&\x1b\">"}, host.Function{Index: 2, Name: "b"}
	picture := flameSVG("<title>", []host.Sample{
		{Stack: []host.Function{a}, Fuel: 300},
		{Stack: []host.Function{b, a}, Fuel: 700},
		{Stack: []host.Function{b}, Fuel: 0},
	})
	d := xml.NewDecoder(strings.NewReader(picture))
	var widths []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			for _, attr := range start.Attr {
				if attr.Name.Local == "width" {
					widths = append(widths, attr.Value)
				}
			}
		}
	}
	assert.Equal(t, []string{"100%", "1200.00", "840.00"}, widths)
	assert.Contains(t, picture, "b: 700 units, 70.00 %")
}
