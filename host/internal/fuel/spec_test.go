package fuel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// tally is how the commands of scripts went.
type tally struct {
	passed  int
	text    int                       // of the text format, which is none of our business
	refused map[string]map[string]int // by rule and file
	failed  []string
}

func (c *tally) add(d tally) {
	c.passed += d.passed
	c.text += d.text
	c.failed = append(c.failed, d.failed...)
	for rule, files := range d.refused {
		for file, n := range files {
			c.refuse(rule, file, n)
		}
	}
}

func (c *tally) refuse(rule, file string, n int) {
	if c.refused == nil {
		c.refused = map[string]map[string]int{}
	}
	if c.refused[rule] == nil {
		c.refused[rule] = map[string]int{}
	}
	c.refused[rule][file] += n
}

// String is what the test prints.
func (c *tally) String() string {
	var b strings.Builder
	refused := 0
	for _, rule := range slices.Sorted(maps.Keys(c.refused)) {
		for _, file := range slices.Sorted(maps.Keys(c.refused[rule])) {
			refused += c.refused[rule][file]
			fmt.Fprintf(&b, "\n  refused by %s: %s %d", rule, file, c.refused[rule][file])
		}
	}
	for _, f := range c.failed {
		fmt.Fprintf(&b, "\n  failed: %s", f)
	}
	return fmt.Sprintf("passed %d, refused %d, failed %d; %d are of the text format%s", c.passed, refused, len(c.failed), c.text, b.String())
}

// TestSpecSuites: every module of the suites that only uses admitted features
// holds all that is asserted of it, rewritten, in both engines; of the others,
// that they are refused is all there is to hold (spec 1.3, Admission).
func TestSpecSuites(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	require.NoError(t, err, "go list")
	root := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	for _, suite := range []struct {
		dir      string
		features api.CoreFeatures
		least    int // that pass in each engine; fewer mean that some were lost
	}{{"v1", api.CoreFeaturesV1, 18_800}, {"v2", api.CoreFeaturesV2, 28_200}} {
		t.Run(suite.dir, func(t *testing.T) {
			t.Parallel()
			files, err := filepath.Glob(filepath.Join(root, suite.dir, "testdata", "*.json"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for i := range engineConfigs {
				t.Run(engineConfigs[i].name, func(t *testing.T) {
					t.Parallel()
					var total tally
					for _, file := range files {
						s := &spec{
							root: root, file: file, modules: map[string]api.Module{}, refusals: map[string]error{},
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
						total.add(s.tally)
					}
					t.Logf("suite %s in the %s: %s", suite.dir, engineConfigs[i].name, total.String())
					require.Empty(t, total.failed)
					require.GreaterOrEqual(t, total.passed, suite.least)
					for rule, files := range total.refused {
						for file := range files {
							require.Equal(t, string(wasmbin.RuleSIMD), rule, "%s is refused", file)
							require.True(t, strings.HasPrefix(file, "simd_"), "%s is refused by %s", file, rule)
						}
					}
				})
			}
		})
	}
}

// spec runs one script.
type spec struct {
	root, file string
	engine     *engine
	validator  *engine
	modules    map[string]api.Module
	refusals   map[string]error // of named modules that were refused
	all        []api.Module
	last       api.Module
	refusal    error // of the last module
	tally      tally
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
		as := ""
		if i+1 < len(script.Commands) && script.Commands[i+1].Type == "register" {
			as = script.Commands[i+1].As
		}
		if c.ModuleType == "text" {
			s.tally.text++
			continue
		}
		err := s.command(t, c, as)
		if rule, refused := refusedBy(err); refused {
			s.tally.refuse(rule, filepath.Base(s.file), 1)
		} else if err != nil {
			s.tally.failed = append(s.tally.failed, fmt.Sprintf("%s:%d %s %s: %v", filepath.Base(s.file), c.Line, c.Type, c.Action.Field, err))
		} else {
			s.tally.passed++
		}
	}
}

// refusedBy returns the rule by which a module is not admitted, if that is what
// the error says. What is malformed is not among them.
func refusedBy(err error) (rule string, refused bool) {
	var e *wasmbin.Error
	if !errors.As(err, &e) || e.Rule == wasmbin.RuleMalformed {
		return "", false
	}
	return string(e.Rule), true
}

// command does one command. Its error is what does not hold.
func (s *spec) command(t *testing.T, c *specCommand, as string) error {
	switch c.Type {
	case "module":
		s.last, s.refusal = s.load(t, c.Filename, as)
		if c.Name != "" {
			s.modules[c.Name], s.refusals[c.Name] = s.last, s.refusal
		}
		return s.refusal
	case "register": // see module
		return s.refusal
	case "assert_return", "action":
		mod, err := s.target(c)
		if err != nil {
			return err
		}
		var results []uint64
		if c.Action.Type == "get" {
			results = []uint64{mod.ExportedGlobal(c.Action.Field).Get()}
		} else if results, err = s.invoke(t, mod, c); err != nil || c.Type == "action" {
			return err
		}
		if len(results) != len(c.Expected) {
			return fmt.Errorf("%d results, want %d", len(results), len(c.Expected))
		}
		for j, want := range c.Expected {
			if want.Type == "i32" || want.Type == "f32" {
				results[j] = uint64(uint32(results[j]))
			}
			if !want.matches(t, results[j]) {
				return fmt.Errorf("got %x, want %v", results[j], want)
			}
		}
		return nil
	case "assert_trap", "assert_exhaustion":
		mod, err := s.target(c)
		if err != nil {
			return err
		}
		_, err = s.invoke(t, mod, c)
		switch {
		case err == nil:
			return errors.New("did not trap")
		case c.Type == "assert_exhaustion" && !errors.Is(err, errDepth), c.Type == "assert_trap" && trapName(err) != specTrap(c.Text):
			return fmt.Errorf("trap %q, want %q", trapName(err), c.Text)
		}
		return nil
	case "assert_malformed", "assert_invalid", "assert_unlinkable":
		if _, err := s.load(t, c.Filename, ""); err == nil {
			return errors.New("was loaded")
		}
		if c.Type == "assert_malformed" && s.strict {
			wasm, err := os.ReadFile(filepath.Join(filepath.Dir(s.file), c.Filename))
			require.NoError(t, err)
			if _, err = wasmbin.Decode(wasm); err == nil {
				return errors.New("was decoded")
			}
		}
		return nil
	case "assert_uninstantiable":
		_, err := s.load(t, c.Filename, "")
		// wazero keeps instances that fail so, as the suite wants.
		if keeps := c.Text == "out of bounds table access"; keeps != (err == nil) {
			return fmt.Errorf("loading it gave %s", fmt.Sprint(err)) // it may be none
		}
		return nil
	}
	return errors.New("unknown command")
}

// target returns the module that an action is for, or why it was refused.
func (s *spec) target(c *specCommand) (api.Module, error) {
	if name := c.Action.Module; name != "" {
		return s.modules[name], s.refusals[name]
	}
	return s.last, s.refusal
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
