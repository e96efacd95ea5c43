package host_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// A tiny assembler for modules that no compiler would write: compile bombs
// (spec 1.3, "Admission").

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func section(id byte, body []byte) []byte {
	return append(append([]byte{id}, uleb(len(body))...), body...)
}

// cat joins byte strings and single bytes.
func cat(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case string:
			out = append(out, p...)
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

func times(n int, f func(i int) []byte) []byte {
	var out []byte
	for i := range n {
		out = append(out, f(i)...)
	}
	return out
}

// bomb is a module with the contract's exports and bodies of type () → ().
type bomb struct {
	table   []byte // table section's content
	params  int    // of a type that the bodies do not have
	imports int    // of drover.log; nothing else refers to a function then
	bodies  [][]byte
}

// body makes a function body: so many i32 locals, then code, then end.
func body(locals int, code []byte) []byte {
	head := []byte{0}
	if locals > 0 {
		head = cat(1, uleb(locals), 0x7f)
	}
	return cat(head, code, 0x0b)
}

func (b bomb) wasm() []byte {
	types := cat(5,
		0x60, 0, 0, // () → ()
		0x60, 1, 0x7f, 1, 0x7f, // (i32) → i32
		0x60, 2, 0x7f, 0x7f, 1, 0x7e, // (i32, i32) → i64
		0x60, uleb(b.params), times(b.params, func(int) []byte { return []byte{0x7f} }), 0,
		0x60, 0, 1, 0x7f)
	n := len(b.bodies)
	funcs := cat(uleb(n+4), []byte{0, 1, 2, 3}, make([]byte, n))
	exports := cat(5,
		6, "memory", 2, 0,
		13, "drover_abi_v1", 0, 0,
		13, "drover_buffer", 0, 1,
		15, "drover_allocate", 0, 2,
		16, "drover_rebalance", 0, 2)
	plan := "\xa1\x65moves\x80"
	code := uleb(n + 4)
	for _, f := range [][]byte{
		body(0, nil),
		body(0, cat(0x41, 0x80, 0x20)), // 4096
		body(0, cat(0x42, []byte{0x88, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})), // 1024<<32 | 8
		body(0, nil),
	} {
		code = cat(code, uleb(len(f)), f)
	}
	for _, f := range b.bodies {
		code = cat(code, uleb(len(f)), f)
	}
	out := cat("\x00asm", []byte{1, 0, 0, 0}, section(1, types))
	if b.imports > 0 {
		out = cat(out, section(2, cat(uleb(b.imports), times(b.imports, func(int) []byte { return cat(6, "drover", 3, "log", 0, 3) }))))
	}
	out = cat(out, section(3, funcs))
	if b.table != nil {
		out = cat(out, section(4, b.table))
	}
	return cat(out, section(5, []byte{1, 0, 1}), section(7, exports), section(10, code),
		section(11, cat(1, 0, 0x41, 0x80, 0x08, 0x0b, len(plan), plan)))
}

func repeatBody(n int, b []byte) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = b
	}
	return out
}

// reads reads each of k locals once.
func reads(k int) []byte {
	return times(k, func(i int) []byte { return cat(0x20, uleb(i), 0x1a) })
}

// shapes are the kinds of bomb, each growing with n; k is a second measure
// where there is one: locals, targets.
var shapes = map[string]func(n, k int) bomb{
	"br_table": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(0, cat(0x41, 0, 0x0e, uleb(n), make([]byte, n), 0))}}
	},
	"br_table spread": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(0, cat(times(k, func(int) []byte { return []byte{0x02, 0x40} }),
			0x41, 0, 0x0e, uleb(n), times(n, func(i int) []byte { return uleb(i % (k + 1)) }), 0,
			times(k, func(int) []byte { return []byte{0x0b} })))}}
	},
	"nested blocks": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(times(n, func(int) []byte { return []byte{0x02, 0x40} }), times(n, func(int) []byte { return []byte{0x0b} })))}}
	},
	"nested loops": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(times(n, func(int) []byte { return []byte{0x03, 0x40} }), times(n, func(int) []byte { return []byte{0x41, 0, 0x0d, 0, 0x0b} })))}}
	},
	"nested branches": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(times(n, func(i int) []byte { return cat(0x02, 0x40, 0x41, 0, 0x0d, uleb(i)) }), times(n, func(int) []byte { return []byte{0x0b} })))}}
	},
	"loops in a row": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, times(n, func(i int) []byte {
			return cat(0x03, 0x40, 0x20, uleb(i%k), 0x41, 1, 0x6a, 0x21, uleb((i*7+1)%k), 0x41, 0, 0x0d, 0, 0x0b)
		}))}}
	},
	"ifs over locals": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(
			times(n, func(i int) []byte {
				return cat(0x20, uleb(i%k), 0x04, 0x40, 0x41, 1, 0x21, uleb((i*7+1)%k), 0x0b)
			}),
			times(k, func(i int) []byte { return cat(0x20, uleb(i), 0x1a) })))}}
	},
	"locals in loops": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(
			times(n, func(j int) []byte {
				return cat(0x03, 0x40, times(k/n, func(i int) []byte {
					x := uleb(j*(k/n) + i)
					return cat(0x20, x, 0x41, 1, 0x6a, 0x21, x)
				}))
			}),
			times(n, func(int) []byte { return []byte{0x41, 0, 0x0d, 0, 0x0b} })))}}
	},
	"ifs, then reads": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(times(n, func(int) []byte { return []byte{0x41, 0, 0x04, 0x40, 0x0b} }), reads(k)))}}
	},
	"branches, then reads": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(0x02, 0x40, times(n, func(int) []byte { return []byte{0x41, 0, 0x0d, 0} }), reads(k), 0x0b))}}
	},
	"reads within loops": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(times(n, func(int) []byte { return []byte{0x03, 0x40} }), reads(k), times(n, func(int) []byte { return []byte{0x41, 0, 0x0d, 0, 0x0b} })))}}
	},
	"deep stack": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(0, cat(times(n, func(int) []byte { return []byte{0x41, 0, 0x28, 2, 0} }), times(n-1, func(int) []byte { return []byte{0x6a} }), 0x1a))}}
	},
	"calls": func(n, k int) bomb {
		return bomb{params: k, bodies: [][]byte{body(0, times(n, func(int) []byte {
			return cat(times(k, func(int) []byte { return []byte{0x41, 0} }), 0x10, 3)
		}))}}
	},
	"calls over locals": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(
			times(k, func(i int) []byte { return cat(0x41, 0, 0x28, 2, 0, 0x21, uleb(i)) }),
			times(n, func(int) []byte { return []byte{0x10, 3} }),
			reads(k)))}}
	},
	"straight code over locals": func(n, k int) bomb {
		return bomb{bodies: [][]byte{body(k, cat(
			times(k, func(i int) []byte { return cat(0x41, 0, 0x28, 2, 0, 0x21, uleb(i)) }),
			times(n, func(int) []byte { return []byte{0x41, 0, 0x1a} }),
			reads(k)))}}
	},
	"indirect calls": func(n, _ int) bomb {
		return bomb{table: cat(1, 0x70, 0, 1), bodies: [][]byte{body(0, times(n, func(int) []byte { return []byte{0x41, 0, 0x11, 0, 0} }))}}
	},
	"divisions": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(0, times(n, func(int) []byte { return []byte{0x41, 7, 0x41, 3, 0x6d, 0x1a} }))}}
	},
	"loads": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(1, times(n, func(int) []byte { return []byte{0x20, 0, 0x20, 0, 0x28, 2, 0, 0x36, 2, 0} }))}}
	},
	"grows": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(1, times(n, func(int) []byte { return []byte{0x41, 0, 0x40, 0, 0x1a} }))}}
	},
	"fills": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(1, times(n, func(int) []byte { return []byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0b, 0} }))}}
	},
	"float adds": func(n, _ int) bomb {
		return bomb{bodies: [][]byte{body(0, cat(times(n, func(int) []byte {
			return []byte{0x43, 0, 0, 0x80, 0x3f, 0x41, 0, 0x2a, 2, 0, 0x92, 0x41, 0, 0x43, 0, 0, 0, 0, 0x38, 2, 0, 0x1a}
		})))}}
	},
}

// Spec 1.3, "Hard caps proven on those shapes": each bomb is refused by its
// rule before wazero sees it, and in no time.
func TestBombsAreRefused(t *testing.T) {
	for _, c := range []struct {
		shape string
		n, k  int
		rule  host.Rule
	}{
		{"br_table", 100_000, 0, host.RuleBrTable},
		{"br_table spread", 100_000, 1000, host.RuleBrTable},
		{"nested blocks", 20_000, 0, host.RuleNesting},
		{"nested blocks", 5_001, 0, host.RuleNesting},
		{"nested loops", 3_900, 0, host.RuleCompileCost},
		{"nested branches", 4_990, 0, host.RuleCompileCost},
		{"loops in a row", 10_000, 10, host.RuleBlocks},
		{"loops in a row", 3_900, 10, host.RuleCompileCost},
		{"ifs over locals", 1_500, 1_000, host.RuleCompileCost},
		{"ifs over locals", 100, 5_000, host.RuleLocals},
		{"locals in loops", 50, 1_000, host.RuleCompileCost}, // 15 s
		{"locals in loops", 100, 300, host.RuleCompileCost},  // 5 s
		{"locals in loops", 150, 150, host.RuleCompileCost},
		{"ifs, then reads", 600, 4_000, host.RuleCompileCost},
		{"branches, then reads", 1_900, 4_000, host.RuleCompileCost},
		{"reads within loops", 1_000, 4_000, host.RuleCompileCost},
		{"reads within loops", 900, 100, host.RuleCompileCost},
		{"deep stack", 20_000, 0, host.RuleStack},
		{"calls", 100, 1_000, host.RuleSignature},
		{"calls over locals", 10_000, 4_000, host.RuleCompileCost}, // 2 s for 80 kB
		{"indirect calls", 15_000, 0, host.RuleFunctionSize},       // 100 MB
		{"divisions", 15_000, 0, host.RuleFunctionSize},
		{"loads", 10_000, 0, host.RuleFunctionSize},
		{"fills", 8_000, 0, host.RuleBlocks},
		{"fills", 2_400, 0, host.RuleCompileCost},
		{"grows", 8_000, 0, host.RuleBlocks},
		{"float adds", 30_000, 0, host.RuleFunctionSize},
	} {
		t.Run(fmt.Sprintf("%s %d %d", c.shape, c.n, c.k), func(t *testing.T) {
			refusedBy(t, shapes[c.shape](c.n, c.k).wasm(), c.rule)
		})
	}
	for name, c := range map[string]struct {
		bomb bomb
		rule host.Rule
	}{
		"42 bytes of table":    {bomb{table: cat(1, 0x70, 0, uleb(10_000_000))}, host.RuleTableSize},
		"many tables":          {bomb{table: cat(100, times(100, func(int) []byte { return []byte{0x70, 0, 0} }))}, host.RuleTableSize},
		"2^32-1 locals":        {bomb{bodies: [][]byte{cat(1, uleb(1<<32-1), 0x7f, 0x0b)}}, host.RuleLocals},
		"locals in runs":       {bomb{bodies: [][]byte{cat(100, times(100, func(int) []byte { return cat(uleb(1000), 0x7f) }), 0x0b)}}, host.RuleLocals},
		"many functions":       {bomb{bodies: repeatBody(20_000, body(0, nil))}, host.RuleFunctionCount},
		"many imports":         {bomb{imports: 25_000}, host.RuleFunctionCount},
		"many middling ones":   {bomb{bodies: repeatBody(40, shapes["nested loops"](800, 0).bodies[0])}, host.RuleCompileCost},
		"many that jump":       {bomb{table: cat(1, 0x70, 0, 1), bodies: repeatBody(60, shapes["indirect calls"](1_900, 0).bodies[0])}, host.RuleCompileCost},
		"many that merge":      {bomb{bodies: repeatBody(40, shapes["locals in loops"](40, 120).bodies[0])}, host.RuleCompileCost},
		"many that pile a bit": {bomb{bodies: repeatBody(40, shapes["ifs over locals"](100, 300).bodies[0])}, host.RuleCompileCost},
	} {
		t.Run(name, func(t *testing.T) { refusedBy(t, c.bomb.wasm(), c.rule) })
	}
}

// A few bytes are enough for a finding, and names may be long and hold anything: what is said about a module stays short
// and printable.
func TestFindingsAreFewAndShort(t *testing.T) {
	check := func(wasm []byte) host.Report {
		rep, err := runtimeFor(t, host.Compiler).Check(context.Background(), wasm, host.Limits{}, nil)
		require.NoError(t, err)
		require.False(t, rep.OK)
		return rep
	}
	rep := check(bomb{imports: 10_000}.wasm())
	require.Len(t, rep.Findings, 20)
	require.Contains(t, rep.Findings[0].Message, "import drover.log is (), the host has (i32, i32, i32)")
	require.Contains(t, rep.Findings[19].Message, "(and 9983 more findings)")

	name := "\x1b[31m\n" + strings.Repeat("f", 100_000)
	wasm := cat("\x00asm", []byte{1, 0, 0, 0}, section(1, cat(1, 0x60, 0, 0)), section(2, cat(1, 3, "env", uleb(len(name)), name, 0, 0)))
	rep = check(wasm)
	require.Equal(t, host.RuleImport, rep.Findings[0].Rule)
	require.Contains(t, rep.Findings[0].Message, `import env.\x1b[31m\nffff`)
	require.Contains(t, rep.Findings[0].Message, "does not exist")
	require.Less(t, len(rep.Findings[0].Message), 1000)
}

// Names of functions that there are not, 1 500 000 of them, are not gone through for each function.
func TestManyNames(t *testing.T) {
	names := cat(uleb(1_500_000), times(1_500_000, func(i int) []byte { return cat(uleb(1_000_000+i), 0) }))
	custom := cat(4, "name", section(1, names))
	wasm := cat(bomb{bodies: repeatBody(19_000, body(0, cat(0x20, 0)))}.wasm(), section(0, custom))
	refusedBy(t, wasm, host.RuleInvalid) // there is no local 0
}

// A name section is for messages alone: whatever is wrong with it refuses no module, as the format's specification has it, and
// no count in it makes wazero, which believes them, allocate for it: 128 GiB for the first of these ended the process.
func TestNameSectionsAreNotBelieved(t *testing.T) {
	count := uleb(1<<32 - 1)
	for name, content := range map[string][]byte{
		"locals of functions that are not there": section(2, count),
		"locals that are not there":              section(2, cat(1, 0, count)),
		"functions that are not there":           section(1, count),
		"a name longer than the section":         section(0, count),
		"a subsection longer than the section":   cat(9, count),
		"names that are not UTF-8":               section(1, cat(1, 0, 1, 0xff)),
	} {
		t.Run(name, func(t *testing.T) {
			custom := section(0, cat(4, "name", content))
			wasm := cat(bomb{}.wasm(), custom, custom)
			rep, err := runtimeFor(t, host.Compiler).Check(context.Background(), wasm, host.Limits{}, nil)
			require.NoError(t, err)
			require.True(t, rep.OK, "%v", rep.Findings)
		})
	}
}

// refusedBy checks a module that must be refused before it is compiled: by one rule, and not because that took too long.
func refusedBy(t *testing.T, wasm []byte, rule host.Rule) {
	t.Helper()
	rep, err := runtimeFor(t, host.Compiler).Check(context.Background(), wasm, host.Limits{}, nil)
	require.NoError(t, err)
	require.False(t, rep.OK)
	require.NotEmpty(t, rep.Findings)
	require.Equal(t, rule, rep.Findings[0].Rule, "%v", rep.Findings)
	require.NotEmpty(t, rep.Findings[0].Fix)
}

// What stays below the caps is admitted, and compiles in a time that does not
// hurt: the caps' own proof. What takes too long is refused, and -v tells the times.
func TestJustBelowTheCaps(t *testing.T) {
	for _, c := range []struct {
		shape string
		n, k  int
	}{
		{"br_table", 8_000, 0},
		{"br_table spread", 8_000, 100},
		{"nested blocks", 4_000, 0},
		{"nested loops", 1_600, 0},
		{"nested branches", 1_900, 0},
		{"loops in a row", 1_550, 10},
		{"ifs over locals", 110, 1_000},
		{"ifs over locals", 1_200, 10},
		{"locals in loops", 60, 180},
		{"locals in loops", 10, 1_000},
		{"ifs, then reads", 14, 4_000},
		{"ifs, then reads", 300, 350},
		{"branches, then reads", 40, 4_000},
		{"reads within loops", 4, 4_000},
		{"reads within loops", 200, 100},
		{"deep stack", 990, 0},
		{"calls", 900, 100},
		{"calls over locals", 2_500, 1_500},
		{"straight code over locals", 19_000, 4_000},
		{"indirect calls", 1_900, 0},
		{"divisions", 11_000, 0},
		{"loads", 9_000, 0},
		{"fills", 950, 0},
		{"grows", 1_900, 0},
		{"float adds", 3_900, 0},
	} {
		t.Run(fmt.Sprintf("%s %d %d", c.shape, c.n, c.k), func(t *testing.T) {
			started := time.Now()
			rep, err := runtimeFor(t, host.Compiler).Check(context.Background(), shapes[c.shape](c.n, c.k).wasm(), host.Limits{}, nil)
			require.NoError(t, err)
			require.True(t, rep.OK, "%v", rep.Findings)
			t.Logf("admitted after %s", time.Since(started))
		})
	}
}
