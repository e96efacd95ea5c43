package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/internal/wasmbin"
	"github.com/droverhq/drover/strategies"
)

// TestEnginePanicsRefuse: an invalid module on which wazero's validator panics is
// refused like any other, and does not end the node that looks at it (spec 1.3,
// Admission).
func TestEnginePanicsRefuse(t *testing.T) {
	t.Parallel()
	module, _, ok := strategies.Builtin("hash")
	require.True(t, ok)
	m, err := wasmbin.Decode(module)
	require.NoError(t, err)
	imports := uint32(len(m.ImportedFuncs()))
	end := wasmbin.Instr{Op: wasmbin.OpEnd}
	m.Code[0].Body = []wasmbin.Instr{{Op: wasmbin.OpCall, A: imports + uint32(len(m.Funcs))}, end}
	m.Funcs = append(m.Funcs, uint32(len(m.Types))) // no such type
	m.Code = append(m.Code, wasmbin.Code{Body: []wasmbin.Instr{end}})
	rep := check(t, wasmbin.Encode(m))
	require.Equal(t, []host.Rule{host.RuleInvalid}, errorRules(rep))
}
