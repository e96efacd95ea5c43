package host

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// Data counts against the memory limit, which may be below what fits into a module.
func TestDataSize(t *testing.T) {
	m := &wasmbin.Module{Data: []wasmbin.Data{{Mode: wasmbin.Passive, Init: make([]byte, 2*PageBytes)}}}
	encoded := wasmbin.Encode(m)
	_, findings := admit(encoded, Limits{MemoryPages: 2}.WithDefaults())
	require.NotContains(t, rulesOf(findings), RuleDataSize)
	_, findings = admit(encoded, Limits{MemoryPages: 1}.WithDefaults())
	require.Contains(t, rulesOf(findings), RuleDataSize)
}

// A compilation that takes too long is given up between functions, and is the module's fault.
func TestCompileTimeout(t *testing.T) {
	ctx := context.Background()
	rt, err := NewRuntime(ctx, Options{})
	require.NoError(t, err)
	defer rt.Close(ctx)
	decoded, err := wasmbin.Decode([]byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x04\x01\x02\x00\x0b"))
	require.NoError(t, err)
	err = rt.compile(ctx, &code{}, decoded, DefaultDepth, 0)
	require.ErrorIs(t, err, ErrRefused)
	require.Equal(t, RuleCompile, RuleOf(err))
	require.NoError(t, rt.compile(ctx, &code{}, decoded, DefaultDepth, compileTimeout))
}

// The maxima of memory and tables are lowered to the limits, so that growing ends there.
func TestMaximaAreLowered(t *testing.T) {
	m := &wasmbin.Module{
		Mems:   []wasmbin.Limits{{Min: 1, Max: 1000, HasMax: true}},
		Tables: []wasmbin.TableType{{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}, {Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1, Max: 5, HasMax: true}}},
	}
	got, _ := admit(wasmbin.Encode(m), Limits{MemoryPages: 7}.WithDefaults())
	require.Equal(t, wasmbin.Limits{Min: 1, Max: 7, HasMax: true}, got.Mems[0])
	require.Equal(t, wasmbin.Limits{Min: 1, Max: maxTableSize, HasMax: true}, got.Tables[0].Limits)
	require.Equal(t, wasmbin.Limits{Min: 1, Max: 5, HasMax: true}, got.Tables[1].Limits)
}

func rulesOf(fs []Finding) []Rule {
	var out []Rule
	for _, f := range fs {
		out = append(out, f.Rule)
	}
	return out
}
