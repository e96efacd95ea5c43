package host

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/strategy-rules.md")

// document is docs/strategy-rules.md: what binds a strategy, with the numbers that the code has.
func document(t *testing.T) string {
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	write(`# What binds a strategy

For people who write strategies: what refuses a module, what a call may use, and what becomes of one that fails. The contract itself is
[../pluginapi/strategy.cddl](../pluginapi/strategy.cddl). ` + "`go test ./host -run RulesAreDocumented -update`" + ` writes this file.

## Rules of admission

What ` + "`drover strategy check`" + ` and every load of a strategy may find, by stable identifier. An error refuses the module; a
warning does not.

| Rule | Severity | The module … | What to do |
| --- | --- | --- | --- |
`)
	for _, r := range Rules() {
		require.NotEmpty(t, r.Means)
		require.NotEmpty(t, r.Fix, string(r.Rule))
		write("| `%s` | %s | %s | %s |\n", r.Rule, r.Severity, r.Means, strings.ReplaceAll(r.Fix, "|", "\\|"))
	}
	write(`
## Getting ready

A node compiles one module after the other. Then start section, `+"`_initialize`, `drover_configure`"+` and a warm-up
rebalance of two nodes and four shards run once, on %d M units of fuel and within %.0f s together (%.0f s in the interpreter); the warm-up is
made once more on the fuel of one call. The memory and the globals of before that second warm-up are what every call starts from.

A swap makes the module ready before it takes effect. Where a leader has to make a strategy ready that is in force, as after a restart
without its compile cache, nothing else waits for it. Its own calls wait for 2 s from the beginning, then the built-in hash gives homes
and nothing moves until it is ready; a built-in strategy decides meanwhile by the same code, compiled into the node. Getting ready is never counted as a failure of
the strategy, takes none off, and is tried again: a second after a module could not be had, a minute after it was refused.

## One call

| What | Limit | Beyond it |
| --- | --- | --- |
| fuel | `+"`fuel`"+` of node.toml (%d M units): one for each operator and function entered, one for each byte or element of a bulk operation, a page's bytes for each page of memory.grow, 8 for each element of table.grow, %d and one for each byte of a host call | verdict `+"`fuel`"+` |
| time | `+"`budget`"+` (%d ms), with %d ns for each byte of the answer, and initialisation where each call needs a new instance | verdict `+"`budget`"+`; an allocate is tried once more with twice the time |
| memory | `+"`memory`"+` (%d MiB; at most %d MiB) | `+"`memory.grow`"+` gives -1 |
| call depth | about %d calls; fewer where functions are large | verdict `+"`depth`"+` |
| answer | %d KiB and %d bytes for each shard of the type and for each shard that needs a home; at most %d MiB | verdict `+"`output`"+`: it is not read |
| moves | `+"`limits.moves`"+` of the input | the first ones are taken; more moves than shards are verdict `+"`output`"+` |
| map keys | 1000 in one map of an answer | verdict `+"`output`"+` |
| reasons and names | %d bytes each | cut off; control characters are escaped |
| log | %d lines a call of %d bytes, %d lines a second | dropped and counted; the fuel is the same |

Answers to `+"`drover_configure` and `drover_describe`"+` may have %d KiB.

Clock, random numbers, arguments and environment are the same at every call; nothing else of the outside can be had, and nothing survives a
call. So the same input gives the same answer for the same fuel on every machine.

## A call that fails

| Verdict | The guest … |
| --- | --- |
| `+"`%s`"+` | trapped, or called `+"`proc_exit`"+` |
| `+"`%s`"+` | used up its fuel |
| `+"`%s`"+` | nested its calls too deeply |
| `+"`%s`"+` | gave an answer that breaks the contract, is too long, or says that it failed |
| `+"`%s`"+` | took too long |

A rebalance that fails moves nothing. In place of an allocate that fails the built-in hash gives homes. After `+"`max_failures`"+` in a row (3) the last strategy
that worked is back, for the whole cluster; `+"`%s`"+` is not counted: the clock of one machine must not change the cluster.
`, DefaultInitFuel/1_000_000, Compiler.initTimeout().Seconds(), Interpreter.initTimeout().Seconds(),
		DefaultFuel/1_000_000, hostCallCost, DefaultBudget.Milliseconds(), readByte.Nanoseconds(), DefaultMemoryPages/16, MaxMemoryPages/16, DefaultDepth,
		outputBase>>10, outputPerShard, maxOutput>>20, maxText, maxLogLines, maxLogLine, logLinesASecond, outputBase>>10,
		VerdictTrap, VerdictFuel, VerdictDepth, VerdictOutput, VerdictBudget, VerdictBudget)
	return b.String()
}

// docs/strategy-rules.md and the code say the same.
func TestRulesAreDocumented(t *testing.T) {
	const path = "../docs/strategy-rules.md"
	want := document(t)
	require.NotContains(t, want, "%!")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run the test with -update")
}

// Spec 1.1: whoever writes a strategy without pluginapi finds every export, with its signature, and what there is to import.
func TestContractIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/writing-strategies.md")
	require.NoError(t, err)
	for _, c := range contractExports {
		require.Contains(t, string(page), fmt.Sprintf("| `%s` | %s |", c.name, typeText(c.typ)))
	}
	require.Contains(t, string(page), "| `"+exportMemory+"` | memory |")
	for name := range hostFuncs[droverModule] {
		require.Contains(t, string(page), "`"+droverModule+"."+name+"`")
	}
}
