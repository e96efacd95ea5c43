package wasmbin_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// section returns a section with its size.
func section(id byte, content ...byte) []byte {
	return append(wasmbin.AppendU32([]byte{id}, uint32(len(content))), content...)
}

// module returns a module of the sections.
func module(sections ...[]byte) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00"), bytes.Join(sections, nil)...)
}

// code returns a module with one function of type () → () and the given body,
// locals included.
func code(body ...byte) []byte {
	sized := append(wasmbin.AppendU32([]byte{1}, uint32(len(body))), body...)
	return module(section(1, 1, 0x60, 0, 0), section(3, 1, 0), section(10, sized...))
}

func ops(in ...byte) []byte { return code(append(append([]byte{0}, in...), 0x0B)...) }

func rule(err error) wasmbin.Rule {
	var e *wasmbin.Error
	if errors.As(err, &e) {
		return e.Rule
	}
	return ""
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		m := reference.Generate(seed)
		if seed%3 == 0 {
			m.Customs = []wasmbin.Custom{{Name: "a", Data: []byte{1, 2}}, {Name: "", Data: []byte{}}}
		}
		wasm := wasmbin.Encode(m)
		got, err := wasmbin.Decode(wasm)
		require.NoError(t, err, seed)
		again := wasmbin.Encode(got)
		require.Equal(t, wasm, again, seed)
		got2, err := wasmbin.Decode(again)
		require.NoError(t, err)
		require.Equal(t, got, got2)
	}
}

// TestToolsModules decodes what other tools made: wat2wasm's fixtures come out
// byte for byte.
func TestToolsModules(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../fuel/testdata/*/*.wasm")
	require.NoError(t, err)
	require.Greater(t, len(files), 8)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		m, err := wasmbin.Decode(b)
		require.NoError(t, err, f)
		require.Equal(t, b, wasmbin.Encode(m), f)
	}
}

// TestNonMinimalNumbers: numbers may be padded, up to the bytes of their width,
// and mean the same.
func TestNonMinimalNumbers(t *testing.T) {
	t.Parallel()
	plain, err := wasmbin.Decode(ops(0x41, 0x7F, 0x1A))
	require.NoError(t, err)
	padded, err := wasmbin.Decode(ops(0x41, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0x1A))
	require.NoError(t, err)
	require.Equal(t, plain, padded)
	for _, c := range []struct {
		in   []byte
		want uint64
	}{
		{[]byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x78}, 0x80000000},
		{[]byte{0x41, 0xFF, 0xFF, 0xFF, 0xFF, 0x07}, 0x7FFFFFFF},
		{[]byte{0x41, 0x40}, 0xFFFFFFC0},
		{[]byte{0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7F}, 1 << 63},
		{[]byte{0x42, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x00}, 1<<63 - 1},
		{[]byte{0x42, 0xC0, 0x00}, 64},
		{[]byte{0x42, 0xBF, 0x7F}, 0xFFFFFFFFFFFFFFBF},
	} {
		m, err := wasmbin.Decode(ops(append(c.in, 0x1A)...))
		require.NoError(t, err, "% x", c.in)
		require.Equal(t, c.want, m.Code[0].Body[0].B, "% x", c.in)
	}
	for _, in := range [][]byte{
		{0x41, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F}, // 2³²−1 as a signed number
		{0x41, 0x80, 0x80, 0x80, 0x80, 0x70}, // −2³²
		{0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
		{0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
		{0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
		{0x0C, 0x80, 0x80, 0x80, 0x80, 0x10}, // 2³² as an unsigned number
		{0x0C, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
		{0x41, 0x80},
	} {
		_, err := wasmbin.Decode(ops(in...))
		require.Equal(t, wasmbin.RuleMalformed, rule(err), "% x: %v", in, err)
	}
}

// TestUnadmittedFeatures: each is refused under its own rule, with the offset of
// the offending byte (spec 1.3, Admission).
func TestUnadmittedFeatures(t *testing.T) {
	t.Parallel()
	body := len(ops()) - 1 // offset of the first instruction
	types := func(b ...byte) []byte { return module(section(1, append([]byte{1}, b...)...)) }
	for _, c := range []struct {
		name   string
		wasm   []byte
		rule   wasmbin.Rule
		offset int
	}{
		{"v128.const", ops(0xFD, 12), wasmbin.RuleSIMD, body},
		{"v128 parameter", types(0x60, 1, 0x7B, 0), wasmbin.RuleSIMD, 13},
		{"v128 local", code(1, 1, 0x7B, 0x0B), wasmbin.RuleSIMD, body + 1},
		{"atomic.fence", ops(0xFE, 3, 0), wasmbin.RuleThreads, body},
		{"shared memory", module(section(5, 1, 3, 1, 1)), wasmbin.RuleThreads, 11},
		{"return_call", ops(0x12, 0), wasmbin.RuleTailCall, body},
		{"return_call_indirect", ops(0x13, 0, 0), wasmbin.RuleTailCall, body},
		{"return_call_ref", ops(0x15, 0), wasmbin.RuleTailCall, body},
		{"try", ops(0x06, 0x40), wasmbin.RuleExceptions, body},
		{"throw", ops(0x08, 0), wasmbin.RuleExceptions, body},
		{"try_table", ops(0x1F, 0x40, 0), wasmbin.RuleExceptions, body},
		{"tag section", module(section(13, 0)), wasmbin.RuleExceptions, 8},
		{"tag import", module(section(2, 1, 0, 0, 4, 0, 0)), wasmbin.RuleExceptions, 13},
		{"exnref", types(0x60, 1, 0x69, 0), wasmbin.RuleExceptions, 13},
		{"struct.new", ops(0xFB, 0, 0), wasmbin.RuleGC, body},
		{"ref.eq", ops(0xD3), wasmbin.RuleGC, body},
		{"struct type", types(0x5F, 0, 0), wasmbin.RuleGC, 11},
		{"rec group", types(0x4E, 0, 0), wasmbin.RuleGC, 11},
		{"anyref", types(0x60, 1, 0x6E, 0), wasmbin.RuleGC, 13},
		{"two memories", module(section(5, 2, 0, 1, 0, 1)), wasmbin.RuleMultiMemory, 13},
		{"load of memory 1", ops(0x28, 0x42, 1, 0), wasmbin.RuleMultiMemory, body + 1},
		{"memory.size of 1", ops(0x3F, 1), wasmbin.RuleMultiMemory, body + 1},
		{"memory64", module(section(5, 1, 4, 1)), wasmbin.RuleMemory64, 11},
		{"table64", module(section(4, 1, 0x70, 5, 1, 1)), wasmbin.RuleMemory64, 12},
		{"call_ref", ops(0x14, 0), wasmbin.RuleTypedFuncRef, body},
		{"ref.as_non_null", ops(0xD4), wasmbin.RuleTypedFuncRef, body},
		{"(ref 0)", types(0x60, 1, 0x64, 0), wasmbin.RuleTypedFuncRef, 13},
		{"ref.null 0", ops(0xD0, 0), wasmbin.RuleTypedFuncRef, body + 1},
		{"table initialiser", module(section(4, 1, 0x40, 0, 0x70, 0, 1, 0xD0, 0x70, 0x0B)), wasmbin.RuleTypedFuncRef, 11},
		{"extended const", module(section(6, 1, 0x7F, 0, 0x41, 1, 0x41, 1, 0x6A, 0x0B)), wasmbin.RuleExtendedCons, 15},
		{"page size", module(section(5, 1, 8, 1, 0)), wasmbin.RulePageSizes, 11},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), wasmbin.RuleComponent, 4},
		{"i64.add128", ops(0xFC, 19), wasmbin.RuleWideArith, body},
		{"resume", ops(0xE3, 0), wasmbin.RuleStackSwitch, body},
		{"unknown", ops(0xFF), wasmbin.RuleUnknownOp, body},
		{"unknown 0xFC", ops(0xFC, 99), wasmbin.RuleUnknownOp, body},
		{"too many locals", code(1, 0xD1, 0x86, 0x03, 0x7F, 0x0B), wasmbin.RuleLimit, body},
		{"too many instructions", ops(bytes.Repeat([]byte{0x01}, wasmbin.MaxInstructions)...), wasmbin.RuleBodySize, body + wasmbin.MaxInstructions + 4},
		{"2³²−1 locals, twice", code(2, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x7F, 0x0B), wasmbin.RuleLimit, body},
	} {
		_, err := wasmbin.Decode(c.wasm)
		var e *wasmbin.Error
		require.ErrorAs(t, err, &e, c.name)
		require.Equal(t, c.rule, e.Rule, "%s: %v", c.name, err)
		require.Equal(t, c.offset, e.Offset, "%s: %v", c.name, err)
		require.Contains(t, err.Error(), fmt.Sprintf("offset %d: ", c.offset))
	}
	_, err := wasmbin.Decode(code(1, 0xD0, 0x86, 0x03, 0x7F, 0x0B))
	require.NoError(t, err, "50 000 locals")

	for functions, want := range map[byte]wasmbin.Rule{40: "", 41: wasmbin.RuleLimit} {
		bodies := bytes.Repeat([]byte{6, 1, 0xD0, 0x86, 0x03, 0x7F, 0x0B}, int(functions))
		_, err := wasmbin.Decode(module(section(1, 1, 0x60, 0, 0),
			section(3, append([]byte{functions}, make([]byte, functions)...)...), section(10, append([]byte{functions}, bodies...)...)))
		require.Equal(t, want, rule(err), "%d functions of 50 000 locals", functions)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	for name, wasm := range map[string][]byte{
		"empty":                       {},
		"magic":                       []byte("\x00asn\x01\x00\x00\x00"),
		"version":                     []byte("\x00asm\x02\x00\x00\x00"),
		"half a version":              []byte("\x00asm\x01\x00"),
		"section past the end":        append(module(), 1, 5, 0),
		"unknown section":             module(section(14)),
		"section twice":               module(section(1, 0), section(1, 0)),
		"sections out of order":       module(section(3, 0), section(1, 0)),
		"data count behind code":      module(section(10, 0), section(12, 0)),
		"section longer than content": module(section(1, 0, 0)),
		"section shorter":             module(section(1, 1, 0x60, 0)),
		"count past the end":          module(section(1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F)),
		"unknown type form":           module(section(1, 1, 0x61, 0, 0)),
		"unknown value type":          module(section(1, 1, 0x60, 1, 0x01, 0)),
		"import kind":                 module(section(2, 1, 0, 0, 9, 0)),
		"import name not UTF-8":       module(section(2, 1, 1, 0xFF, 0, 0, 0)),
		"export name not UTF-8":       module(section(7, 1, 2, 0xC3, 0x28, 0, 0)),
		"custom name not UTF-8":       module(section(0, 1, 0x80)),
		"custom without a name":       module(section(0)),
		"export kind":                 module(section(7, 1, 0, 5, 0)),
		"mutability":                  module(section(6, 1, 0x7F, 9, 0x41, 0, 0x0B)),
		"limits":                      module(section(5, 1, 16, 1)),
		"table of i32":                module(section(4, 1, 0x7F, 0, 1)),
		"empty constant":              module(section(6, 1, 0x7F, 0, 0x0B)),
		"instruction in a constant":   module(section(6, 1, 0x7F, 0, 0x01, 0x0B)),
		"two constants, one dropped":  module(section(6, 1, 0x7F, 0, 0x41, 0, 0x1A, 0x0B)),
		"element flags":               module(section(9, 1, 8, 0)),
		"element kind":                module(section(9, 1, 1, 1, 0)),
		"data flags":                  module(section(11, 1, 3, 0)),
		"bodies missing":              module(section(1, 1, 0x60, 0, 0), section(3, 1, 0)),
		"functions missing":           module(section(10, 1, 2, 0, 0x0B)),
		"data count":                  module(section(12, 1)),
		"memory.init, no data count":  ops(0x41, 0, 0x41, 0, 0x41, 0, 0xFC, 8, 0, 0),
		"data.drop, no data count":    ops(0xFC, 9, 0),
		"body without end":            code(0, 0x01),
		"body behind its end":         code(0, 0x0B, 0x0B),
		"body past the end":           module(section(1, 1, 0x60, 0, 0), section(3, 1, 0), section(10, 1, 9, 0, 0x0B)),
		"block without end":           ops(0x02, 0x40),
		"else without if":             ops(0x05),
		"else in a block":             ops(0x02, 0x40, 0x05, 0x0B),
		"two elses":                   ops(0x41, 0, 0x04, 0x40, 0x05, 0x05, 0x0B),
		"block type":                  ops(0x02, 0x41, 0x0B),
		"negative block type":         ops(0x02, 0xC0, 0x7F, 0x0B),
		"br_table past the end":       ops(0x0E, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F),
		"select of two":               ops(0x1C, 2, 0x7F, 0x7F),
		"alignment":                   ops(0x28, 0x20, 0),
		"half a float":                code(0, 0x44, 0, 0, 0x0B),
	} {
		_, err := wasmbin.Decode(wasm)
		require.Equal(t, wasmbin.RuleMalformed, rule(err), "%s: %v", name, err)
	}
}

// TestNames: the parts of the name section that are kept, and what is malformed
// in it is no error.
func TestNames(t *testing.T) {
	t.Parallel()
	names := func(content ...byte) []byte {
		return module(section(0, append([]byte{4, 'n', 'a', 'm', 'e'}, content...)...))
	}
	m, err := wasmbin.Decode(names(0, 2, 1, 'm', 1, 7, 2, 0, 1, 'a', 3, 1, 'b', 2, 1, 0))
	require.NoError(t, err)
	require.Equal(t, &wasmbin.Names{Module: "m", HasModule: true, Funcs: []wasmbin.NameAssoc{{Index: 0, Name: "a"}, {Index: 3, Name: "b"}}}, m.Names)
	for name, content := range map[string][]byte{
		"order":        {1, 1, 0, 0, 2, 1, 'm'},
		"past the end": {0, 9, 1, 'm'},
		"descending":   {1, 7, 2, 3, 1, 'a', 0, 1, 'b'},
		"too long":     {0, 3, 1, 'm', 0},
		"not UTF-8":    {0, 2, 1, 0xFF},
		"huge count":   {1, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F},
	} {
		m, err := wasmbin.Decode(names(content...))
		require.NoError(t, err, name)
		require.Nil(t, m.Names, name)
		require.Len(t, m.Customs, 1, name)
	}
}

// TestAllocationIsBounded: small modules that announce much do not cost much.
func TestAllocationIsBounded(t *testing.T) {
	manyRuns := append([]byte{0xE8, 0x07}, bytes.Repeat([]byte{50, 0x7F}, 1000)...)
	for name, wasm := range map[string][]byte{
		"types":    module(section(1, append([]byte{0x80, 0x80, 0x40}, bytes.Repeat([]byte{0x60}, 4<<20)...)...)),
		"targets":  ops(append([]byte{0x0E, 0xFF, 0xFF, 0x3F}, make([]byte, 1<<20)...)...),
		"locals":   code(append(manyRuns, 0x0B)...),
		"elements": module(section(9, 1, 1, 0, 0x80, 0x80, 0x80, 0x01)),
		"nops":     ops(bytes.Repeat([]byte{0x01}, 8<<20)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := wasmbin.Decode(wasm)
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		require.LessOrEqual(t, used, uint64(64*len(wasm)+1<<20), "%s: %d bytes of input, %v", name, len(wasm), err)
	}
}

// TestDeepNesting: nesting costs no native stack.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	const n = wasmbin.MaxInstructions/2 - 1
	m, err := wasmbin.Decode(ops(append(bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0B}, n)...)...))
	require.NoError(t, err)
	require.Len(t, m.Code[0].Body, 2*n+1)
}

func TestStrings(t *testing.T) {
	t.Parallel()
	require.Equal(t, "i32 i64 f32 f64 funcref externref unknown", strings.Trim(fmt.Sprint(
		[]wasmbin.ValType{wasmbin.I32, wasmbin.I64, wasmbin.F32, wasmbin.F64, wasmbin.FuncRef, wasmbin.ExternRef, 0}), "[]"))
	require.Equal(t, "func table memory global unknown", strings.Trim(fmt.Sprint(
		[]wasmbin.ExternKind{wasmbin.KindFunc, wasmbin.KindTable, wasmbin.KindMemory, wasmbin.KindGlobal, 4}), "[]"))
	require.Equal(t, "active passive declarative unknown", strings.Trim(fmt.Sprint(
		[]wasmbin.SegmentMode{wasmbin.Active, wasmbin.Passive, wasmbin.Declarative, 3}), "[]"))
	require.Equal(t, "i32.extend8_s memory.fill unknown unknown", strings.Trim(fmt.Sprint(
		[]wasmbin.Op{wasmbin.OpI32Extend8S, wasmbin.OpMemoryFill, 0xFD, 0xFCFF}), "[]"))
	require.True(t, wasmbin.OpTableFill.Known())
	require.False(t, wasmbin.Op(0xFC12).Known())
}

// FuzzDecode: nothing makes Decode panic, and what it decodes survives encoding.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(wasmbin.Encode(reference.Generate(seed)))
	}
	f.Add(ops(0x41, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0x1A))
	f.Add(module(section(0, 4, 'n', 'a', 'm', 'e', 0, 2, 1, 'm')))
	f.Add(ops(0xFD, 12))
	files, err := filepath.Glob("../fuel/testdata/*/*.wasm")
	require.NoError(f, err)
	for _, name := range files {
		wasm, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(wasm)
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			var e *wasmbin.Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(wasm) || e.Rule == "" {
				t.Fatalf("error %#v", err)
			}
			return
		}
		encoded := wasmbin.Encode(m)
		again, err := wasmbin.Decode(encoded)
		require.NoError(t, err)
		require.Equal(t, m, again)
		require.Equal(t, encoded, wasmbin.Encode(again))
	})
}
