package host_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

func check(t *testing.T, wasm []byte) host.Report {
	t.Helper()
	rep, err := runtimeFor(t, host.Compiler).Check(context.Background(), wasm, host.Limits{InitFuel: 20_000_000}, nil)
	require.NoError(t, err)
	require.Equal(t, host.DigestOf(wasm), rep.Digest)
	require.Equal(t, 1, rep.ABI)
	require.NotNil(t, rep.Findings)
	return rep
}

// errorRules are the distinct rules that refuse.
func errorRules(rep host.Report) []host.Rule {
	var out []host.Rule
	for _, f := range rep.Findings {
		if f.Severity == host.SeverityError && (len(out) == 0 || out[len(out)-1] != f.Rule) {
			out = append(out, f.Rule)
		}
	}
	return out
}

// header is a module of the given sections.
func header(sections ...[]byte) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00"), bytes.Join(sections, nil)...)
}

// oneFunc is a module whose only function has the given code.
func oneFunc(code ...byte) []byte {
	f := body(0, code)
	return header(section(1, []byte{1, 0x60, 0, 0}), section(3, []byte{1, 0}), section(10, cat(1, uleb(len(f)), f)))
}

// byHand are modules that wat2wasm does not make.
var byHand = []struct {
	name string
	wasm []byte
	rule host.Rule
	says string
}{
	{"empty file", nil, host.RuleNotWasm, "empty"},
	{"text", []byte("  (module (memory 1))"), host.RuleNotWasm, "text format"},
	{"text after a comment", []byte(";; a strategy\n(module)"), host.RuleNotWasm, "text format"},
	{"an ELF file", []byte("\x7fELF\x02\x01\x01"), host.RuleNotWasm, "7f 45 4c 46"},
	{"a component", []byte("\x00asm\x0d\x00\x01\x00"), host.RuleComponent, "component"},
	{"another version", []byte("\x00asm\x02\x00\x00\x00"), host.RuleMalformed, "version"},
	{"a section past the end", header([]byte{1, 100, 0}), host.RuleMalformed, "past the end"},
	{"9 MiB", append(header(), make([]byte, 9<<20)...), host.RuleModuleSize, "at most 8388608"},
	{"garbage collection", header(section(1, []byte{1, 0x5f, 1, 0x7f, 0})), host.RuleGC, ""},
	{"typed references", oneFunc(0x14, 0), host.RuleTypedFuncRef, ""},
	{"wide arithmetic", oneFunc(0xfc, 19), host.RuleWideArithmetic, ""},
	{"stack switching", oneFunc(0xe0, 0), host.RuleStackSwitching, ""},
	{"no instruction at all", oneFunc(0xff), host.RuleUnknownOpcode, "0xFF"},
	{"pages of one byte", header(section(5, []byte{1, 8, 1, 0})), host.RuleCustomPageSizes, ""},
	{"8 000 000 instructions", oneFunc(bytes.Repeat([]byte{1}, 8_000_000)...), host.RuleFunctionSize, "at most 1000000 instructions"},
	{"a memory beyond 4 GiB", header(section(5, cat(1, 1, 1, uleb(65_537)))), host.RuleInvalid, "65537 pages"},
	{"5 000 types", header(section(1, cat(uleb(5000), bytes.Repeat([]byte{0x60, 0, 0}, 5000)))), host.RuleTypeCount, "5000 types"},
	{"5 000 globals", header(section(6, cat(uleb(5000), bytes.Repeat([]byte{0x7f, 0, 0x41, 0, 0x0b}, 5000)))), host.RuleGlobalCount, "5000 globals"},
	{"20 000 exports", header(section(5, []byte{1, 0, 1}), section(7, cat(uleb(20_000), times(20_000, func(i int) []byte { return cat(5, fmt.Sprintf("%05d", i), 2, 0) })))), host.RuleExportCount, "20000 exports"},
	{"300 000 segments", header(section(11, cat(uleb(300_000), bytes.Repeat([]byte{1, 0}, 300_000)))), host.RuleSegmentCount, "300000"},
	{"17 MiB of elements", header(section(9, cat(uleb(1), 1, 0, uleb(100_000), make([]byte, 100_000)))), host.RuleTableSize, "100000 entries"},
}

// Spec 1.3, admission: each rule refuses what it is for, with a message that names it and a fix.
func TestAdmissionRules(t *testing.T) {
	seen := map[host.Rule]bool{
		// TestBombsAreRefused has these.
		host.RuleSignature: true, host.RuleFunctionCount: true, host.RuleLocals: true, host.RuleFunctionSize: true, host.RuleNesting: true,
		host.RuleBlocks: true, host.RuleBrTable: true, host.RuleStack: true, host.RuleCompileCost: true,
		// TestDataSize and TestCompileTimeout in package host.
		host.RuleDataSize: true, host.RuleCompile: true,
		// TestFuelOfACall has this.
		host.RuleCallFuel: true,
		// TestUnknownKeys has this.
		host.RuleConfigKey: true,
	}
	files, err := filepath.Glob("testdata/admission/*.wasm")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 45)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".wasm")
		t.Run(name, func(t *testing.T) {
			require.FileExists(t, strings.TrimSuffix(file, ".wasm")+".wat")
			rep := check(t, fixture(t, "admission/"+name))
			kind, rest, _ := strings.Cut(name, ".")
			switch kind {
			case "ok":
				require.True(t, rep.OK, "%v", rep.Findings)
				require.Empty(t, rep.Findings)
			case "warn":
				require.True(t, rep.OK, "%v", rep.Findings)
				require.Len(t, rep.Findings, 1)
				require.Equal(t, host.Rule(rest), rep.Findings[0].Rule)
				require.Equal(t, host.SeverityWarning, rep.Findings[0].Severity)
				seen[host.Rule(rest)] = true
			default:
				require.False(t, rep.OK)
				require.Equal(t, []host.Rule{host.Rule(kind)}, errorRules(rep), "%v", rep.Findings)
				require.NotEmpty(t, rep.Findings[0].Fix)
				seen[host.Rule(kind)] = true
			}
		})
	}
	for _, c := range byHand {
		t.Run(c.name, func(t *testing.T) {
			rep := check(t, c.wasm)
			require.False(t, rep.OK)
			require.Equal(t, c.rule, rep.Findings[0].Rule, "%v", rep.Findings)
			require.Contains(t, rep.Findings[0].Message, c.says)
			require.NotEmpty(t, rep.Findings[0].Fix)
			seen[c.rule] = true
		})
	}
	for _, r := range host.Rules() {
		require.True(t, seen[r.Rule], "no test for the rule %s", r.Rule)
	}
}

// A truncated file is refused at whatever byte it ends, and never panics.
func TestTruncated(t *testing.T) {
	wasm := fixture(t, "admission/ok")
	for n := range wasm {
		rep := check(t, wasm[:n])
		require.False(t, rep.OK, "%d bytes", n)
		if rule := rep.Findings[0].Rule; rule == host.RuleMalformed {
			require.NotNil(t, rep.Findings[0].Offset)
		}
	}
}

// Every single wrong byte is survived, whatever it does to the module.
func TestFlippedBytes(t *testing.T) {
	wasm := fixture(t, "attack/log-some")
	for i := range wasm {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			bad := bytes.Clone(wasm)
			bad[i] ^= flip
			check(t, bad)
		}
	}
}

func TestUnknownImportIsNamed(t *testing.T) {
	rep := check(t, fixture(t, "admission/import-unknown.func"))
	require.Equal(t, "import env.abort (func) does not exist", rep.Findings[0].Message)
	rep = check(t, fixture(t, "admission/import-type"))
	require.Equal(t, "import drover.log is (i32, i32), the host has (i32, i32, i32)", rep.Findings[0].Message)
}

func TestEveryMissingExportIsNamedAtOnce(t *testing.T) {
	rep := check(t, header())
	require.Equal(t, []host.Rule{host.RuleExportMemory, host.RuleExportABI, host.RuleExportBuffer, host.RuleExportAllocate, host.RuleExportRebalance}, errorRules(rep))
}

func TestStrategysOwnWordsReachTheFinding(t *testing.T) {
	rep := check(t, fixture(t, "admission/configure-failed.refuses"))
	require.Contains(t, rep.Findings[0].Message, "too cold")
}

// A key that a strategy does not describe is most likely misspelt: a warning that names those that there are.
func TestUnknownKeys(t *testing.T) {
	wasm, _, ok := strategies.Builtin("leastshard")
	require.True(t, ok)
	config, err := pluginapi.NewConfig(map[string]any{"treshold": int64(2), "max_moves": int64(1)})
	require.NoError(t, err)
	rep, err := runtimeFor(t, host.Compiler).Check(context.Background(), wasm, host.Limits{}, config)
	require.NoError(t, err)
	require.True(t, rep.OK)
	require.Len(t, rep.Findings, 1)
	require.Equal(t, host.RuleConfigKey, rep.Findings[0].Rule)
	require.Equal(t, host.SeverityWarning, rep.Findings[0].Severity)
	require.Contains(t, rep.Findings[0].Message, `"treshold": there is `)
	require.Contains(t, rep.Findings[0].Message, "threshold")
	require.Empty(t, host.UnknownKeys(pluginapi.Description{}, nil))
	require.Len(t, host.UnknownKeys(pluginapi.Description{}, pluginapi.Config{0xff}), 1, "no configuration at all")
}
