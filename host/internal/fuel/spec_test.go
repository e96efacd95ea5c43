package fuel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// The official test suites, as the pinned wazero's own module carries them. What
// they assert must hold for the rewritten modules, in both engines.

type specScript struct {
	Commands []specCommand `json:"commands"`
}

type specCommand struct {
	Type       string
	Line       int
	Name       string
	Filename   string
	As         string
	ModuleType string `json:"module_type"`
	Text       string
	Action     struct {
		Type   string
		Module string
		Field  string
		Args   []specValue
	}
	Expected []specValue
}

type specValue struct {
	Type  string
	Value any
}

// bits returns the value as wazero passes it; external references are numbered
// from one, since zero is null.
func (v specValue) bits(t *testing.T) uint64 {
	t.Helper()
	s, ok := v.Value.(string)
	if !ok || s == "null" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err)
	if v.Type == "externref" {
		n++
	}
	return n
}

func (v specValue) matches(t *testing.T, got uint64) bool {
	t.Helper()
	switch v.Value {
	case nil:
		return true // any reference
	case "nan:canonical", "nan:arithmetic":
		// Any arithmetic makes the canonical NaN; its sign is never set. What is
		// asserted to be arithmetic may also be one that was moved.
		quiet, sign := uint64(0x7FF8000000000000), uint64(1<<63)
		if v.Type == "f32" {
			quiet, sign = 0x7FC00000, 1<<31
		}
		if v.Value == "nan:canonical" {
			return got&^sign == quiet
		}
		return got&quiet == quiet
	}
	return v.bits(t) == got
}

func TestSpecSuites(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	require.NoError(t, err, "go list")
	root := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	for _, suite := range []struct {
		dir      string
		features api.CoreFeatures
		least    int // assertions; fewer mean that some were lost
	}{{"v1", api.CoreFeaturesV1, 18_000}, {"v2", api.CoreFeaturesV2, 27_000}} {
		t.Run(suite.dir, func(t *testing.T) {
			t.Parallel()
			files, err := filepath.Glob(filepath.Join(root, suite.dir, "testdata", "*.json"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			total := 0
			var mu sync.Mutex
			for i := range engineConfigs {
				t.Run(engineConfigs[i].name, func(t *testing.T) {
					t.Parallel()
					for _, file := range files {
						if strings.HasPrefix(filepath.Base(file), "simd_") {
							continue // not admitted
						}
						s := &spec{
							root: root, file: file, modules: map[string]api.Module{},
							// What the first version of the format forbade, the
							// second has uses for.
							strict: suite.dir == "v2",
							engine: newEngine(t, i, suite.features, 65536),
							// Compiles nothing and so validates faster.
							validator: newEngine(t, 1, suite.features, 65536),
						}
						s.run(t)
						require.NoError(t, s.engine.rt.Close(context.Background()))
						require.NoError(t, s.validator.rt.Close(context.Background()))
						mu.Lock()
						total += s.assertions
						mu.Unlock()
					}
				})
			}
			t.Cleanup(func() {
				t.Logf("%s: %d assertions", suite.dir, total)
				require.GreaterOrEqual(t, total, 2*suite.least)
			})
		})
	}
}

// spec runs one script.
type spec struct {
	root, file string
	engine     *engine
	validator  *engine
	modules    map[string]api.Module
	all        []api.Module
	last       api.Module
	assertions int
	strict     bool // what is malformed must not decode
}

func (s *spec) run(t *testing.T) {
	ctx := context.Background()
	raw, err := os.ReadFile(s.file)
	require.NoError(t, err)
	var script specScript
	require.NoError(t, json.Unmarshal(raw, &script))
	host, err := os.ReadFile(filepath.Join(s.root, "testdata", "spectest.wasm"))
	require.NoError(t, err)
	_, err = s.engine.rt.InstantiateWithConfig(ctx, host, wazero.NewModuleConfig())
	require.NoError(t, err)
	s.engine.limit, s.engine.slice = 1<<60, 1<<40

	for i := range script.Commands {
		c := &script.Commands[i]
		at := fmt.Sprintf("%s:%d %s %s", filepath.Base(s.file), c.Line, c.Type, c.Action.Field)
		s.assertions++
		switch c.Type {
		case "module":
			as := ""
			if i+1 < len(script.Commands) && script.Commands[i+1].Type == "register" {
				as = script.Commands[i+1].As
			}
			mod, err := s.load(t, c.Filename, as)
			require.NoError(t, err, at)
			s.last = mod
			if c.Name != "" {
				s.modules[c.Name] = mod
			}
		case "register": // see module
		case "assert_return", "action":
			mod := s.target(c)
			if c.Action.Type == "get" {
				require.True(t, c.Expected[0].matches(t, mod.ExportedGlobal(c.Action.Field).Get()), at)
				continue
			}
			results, err := s.invoke(t, mod, c)
			require.NoError(t, err, at)
			if c.Type == "action" {
				continue
			}
			require.Len(t, results, len(c.Expected), at)
			for j, want := range c.Expected {
				if want.Type == "i32" || want.Type == "f32" {
					results[j] = uint64(uint32(results[j]))
				}
				require.True(t, want.matches(t, results[j]), "%s: %v, got %x", at, want, results[j])
			}
		case "assert_trap":
			_, err := s.invoke(t, s.target(c), c)
			require.Error(t, err, at)
			require.Equal(t, specTrap(c.Text), trapName(err), at)
		case "assert_exhaustion":
			_, err := s.invoke(t, s.target(c), c)
			require.ErrorIs(t, err, errDepth, at)
		case "assert_malformed", "assert_invalid", "assert_unlinkable":
			if c.ModuleType != "text" {
				_, err := s.load(t, c.Filename, "")
				require.Error(t, err, at)
			}
			if c.Type == "assert_malformed" && c.ModuleType != "text" && s.strict {
				wasm, err := os.ReadFile(filepath.Join(filepath.Dir(s.file), c.Filename))
				require.NoError(t, err)
				_, err = wasmbin.Decode(wasm)
				require.Error(t, err, "%s: decoded", at)
			}
		case "assert_uninstantiable":
			_, err := s.load(t, c.Filename, "")
			if c.Text == "out of bounds table access" {
				// wazero keeps such instances, as the suite wants.
				require.NoError(t, err, at)
			} else {
				require.Error(t, err, at)
			}
		default:
			t.Fatalf("%s: unknown command", at)
		}
	}
}

func (s *spec) target(c *specCommand) api.Module {
	if c.Action.Module != "" {
		return s.modules[c.Action.Module]
	}
	return s.last
}

// load does what the host does: wazero validates the original, then the
// rewritten module is instantiated and its start function called.
func (s *spec) load(t *testing.T, file, as string) (api.Module, error) {
	t.Helper()
	ctx := context.Background()
	wasm, err := os.ReadFile(filepath.Join(filepath.Dir(s.file), file))
	require.NoError(t, err)
	plain, err := s.validator.rt.CompileModule(ctx, wasm)
	if err != nil {
		return nil, err
	}
	require.NoError(t, plain.Close(ctx))
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		return nil, err
	}
	again, err := wasmbin.Decode(wasmbin.Encode(m))
	require.NoError(t, err)
	require.Equal(t, m, again)
	if plain, err = s.validator.rt.CompileModule(ctx, wasmbin.Encode(m)); err != nil {
		return nil, fmt.Errorf("encoded again: %w", err)
	}
	require.NoError(t, plain.Close(ctx))
	res, err := fuel.Rewrite(m, fuel.Options{})
	if err != nil {
		return nil, err
	}
	c, err := s.engine.rt.CompileModule(ctx, res.Wasm)
	if err != nil {
		return nil, err
	}
	mod, err := s.engine.rt.InstantiateModule(ctx, c, wazero.NewModuleConfig().WithName(as).WithStartFunctions())
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, mod)
	if res.Start {
		s.ready()
		if _, err := mod.ExportedFunction(fuel.Namespace + ".start").Call(ctx); err != nil {
			return nil, err
		}
	}
	return mod, nil
}

// ready gives fuel to all modules, since they call each other.
func (s *spec) ready() {
	s.engine.granted = 1 << 40
	for _, mod := range s.all {
		mod.ExportedGlobal(fuel.Namespace + ".left").(api.MutableGlobal).Set(1 << 40)
		mod.ExportedGlobal(fuel.Namespace + ".depth").(api.MutableGlobal).Set(fuel.DefaultDepthLimit)
	}
}

func (s *spec) invoke(t *testing.T, mod api.Module, c *specCommand) ([]uint64, error) {
	t.Helper()
	s.ready()
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits(t))
	}
	return mod.ExportedFunction(c.Action.Field).Call(context.Background(), args...)
}

// specTrap returns wazero's text for the suite's.
func specTrap(text string) string {
	switch {
	case text == "undefined element", text == "undefined", text == "out of bounds table access", strings.HasPrefix(text, "uninitialized"):
		return "invalid table access"
	case text == "indirect call":
		return "indirect call type mismatch"
	}
	return text
}
