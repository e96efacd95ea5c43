package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// attacks are guests that behave during warm-up and then do not, with the
// verdict that each must end in (spec 1.3).
var attacks = []struct {
	name    string
	verdict host.Verdict
	is      error
	says    string
}{
	{"loop", host.VerdictFuel, host.ErrFuel, "units are used"},
	{"call-tree", host.VerdictFuel, host.ErrFuel, "units are used"},
	{"indirect-storm", host.VerdictFuel, host.ErrFuel, "units are used"},
	{"unwind", host.VerdictFuel, host.ErrFuel, "units are used"},
	{"nesting", host.VerdictFuel, host.ErrFuel, "units are used"},
	{"nan-floats", host.VerdictFuel, host.ErrFuel, "units are used"},
	{"recursion", host.VerdictDepth, host.ErrDepth, "nest too deeply"},
	{"indirect-recursion", host.VerdictDepth, host.ErrDepth, "nest too deeply"},
	{"mutual-recursion", host.VerdictDepth, host.ErrDepth, "nest too deeply"},
	{"big-frames", host.VerdictDepth, host.ErrDepth, "nest too deeply"},
	{"memory-fill", host.VerdictFuel, host.ErrFuel, ""},
	{"memory-copy", host.VerdictFuel, host.ErrFuel, ""},
	{"grow", host.VerdictFuel, host.ErrFuel, ""},
	{"grow-all", host.VerdictFuel, host.ErrFuel, ""},
	{"grow-nothing", host.VerdictFuel, host.ErrFuel, ""},
	{"chase", host.VerdictFuel, host.ErrFuel, ""},
	{"chase-late", host.VerdictFuel, host.ErrFuel, ""},
	{"chase-deep", host.VerdictFuel, host.ErrFuel, ""},
	{"line-ends", host.VerdictFuel, host.ErrFuel, ""},
	{"table-grow", host.VerdictFuel, host.ErrFuel, ""},
	{"table-fill", host.VerdictFuel, host.ErrFuel, ""},
	{"table-copy", host.VerdictFuel, host.ErrFuel, ""},
	{"log-flood", host.VerdictFuel, host.ErrFuel, ""},
	{"log-long", host.VerdictFuel, host.ErrFuel, ""},
	{"log-far", host.VerdictTrap, host.ErrTrap, "drover.log: 100 bytes at 65530 are outside the memory"},
	{"yield-flood", host.VerdictFuel, host.ErrFuel, ""},
	{"random-flood", host.VerdictFuel, host.ErrFuel, ""},
	{"poll-flood", host.VerdictFuel, host.ErrFuel, ""},
	{"unreachable", host.VerdictTrap, host.ErrTrap, "unreachable"},
	{"divide", host.VerdictTrap, host.ErrTrap, "integer divide by zero"},
	{"out-of-bounds", host.VerdictTrap, host.ErrTrap, "out of bounds memory access"},
	{"exit", host.VerdictTrap, host.ErrTrap, "proc_exit(3)"},
	{"bad-pointer", host.VerdictOutput, host.ErrOutput, "9 bytes at 2147483647 lie outside"},
	{"bad-length", host.VerdictOutput, host.ErrOutput, "4294967295 bytes: at most"},
	{"bad-length-2", host.VerdictOutput, host.ErrOutput, "64449 bytes at 1088 lie outside a memory of 65536 bytes"},
	{"bad-cbor", host.VerdictOutput, host.ErrOutput, ""},
	{"empty", host.VerdictOutput, host.ErrOutput, ""},
	{"plan-for-homes", host.VerdictOutput, host.ErrOutput, "homes"},
	{"bad-buffer", host.VerdictOutput, host.ErrOutput, "drover_buffer"},
	{"tight-buffer", host.VerdictOutput, host.ErrOutput, "drover_buffer"},
	{"failure", host.VerdictOutput, host.ErrOutput, "strategy failed: x"},
}

// testFuel is enough for every fixture that ends by itself.
const testFuel = 3_000_000

func TestAttacks(t *testing.T) {
	for _, e := range engines {
		// One well-behaved strategy lives through all of it in the same runtime.
		good := load(t, e, fixture(t, "attack/well-behaved"), host.Limits{})
		for _, a := range attacks {
			t.Run(e.String()+"/"+a.name, func(t *testing.T) {
				s := load(t, e, fixture(t, "attack/"+a.name), host.Limits{Fuel: testFuel, Budget: time.Minute})
				for range 2 { // the second call shows that the first left nothing behind
					res := allocate(s)
					require.ErrorIs(t, res.Err, a.is)
					require.Equal(t, a.verdict, res.Record.Verdict, "%v", res.Err)
					require.Contains(t, res.Record.Error, a.says)
					require.Empty(t, res.Homes.Nodes)
					switch a.verdict {
					case host.VerdictFuel:
						require.EqualValues(t, testFuel, *res.Record.Fuel, "on exhaustion the record says the limit")
					case host.VerdictTrap, host.VerdictDepth:
						require.Nil(t, res.Record.Fuel, "on a trap the record says null")
					default:
						require.NotNil(t, res.Record.Fuel)
					}
				}
				res := allocate(good)
				require.NoError(t, res.Err)
				require.Equal(t, []int{0}, res.Homes.Nodes)
			})
		}
	}
}

// Spec 1.3: the budget stops a guest whatever it is doing; within one slice, which TestSlicesEndWithTheBudget
// proves on a clock of its own.
func TestBudgetStopsEveryAttack(t *testing.T) {
	const budget = 20 * time.Millisecond
	for _, a := range attacks {
		if a.verdict != host.VerdictFuel {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			s := load(t, host.Compiler, fixture(t, "attack/"+a.name), host.Limits{Fuel: host.MaxFuel, Budget: budget})
			res := allocate(s)
			require.ErrorIs(t, res.Err, host.ErrBudget)
			require.Equal(t, host.VerdictBudget, res.Record.Verdict)
			require.Nil(t, res.Record.Fuel)
			t.Logf("stopped after %s", res.Record.Elapsed)
		})
	}
}

// looks counts how often the host asks whether a call has to end.
type looks struct {
	context.Context
	n int
}

func (l *looks) Err() error { l.n++; return l.Context.Err() }

// Spec 1.3: what takes long in one go is split, host calls too: the budget can stop a write of 16 MB between two pieces.
func TestLongHostCallsAreSplit(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/line-ends"), host.Limits{Fuel: 50_000_000, Budget: time.Minute})
	ctx := &looks{Context: context.Background()}
	res := s.Call(ctx, pluginapi.OpAllocate, cluster(8, 16), []uint32{0}, 0)
	require.ErrorIs(t, res.Err, host.ErrFuel)
	require.GreaterOrEqual(t, ctx.n, 3*15, "one memory.fill and two writes of 16 MB each")
}

// A start section that runs anew at each call is stopped by the call's budget.
func TestBudgetStopsTheStartSection(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/long-start"), host.Limits{InitFuel: host.MaxFuel, Budget: 20 * time.Millisecond})
	res := allocate(s)
	require.ErrorIs(t, res.Err, host.ErrBudget)
	require.Equal(t, host.VerdictBudget, res.Record.Verdict)
}

// A module that is initialised anew at each call pays for that from the call's budget.
func TestBudgetCoversInitialisation(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/slow-init"), host.Limits{Budget: time.Minute})
	require.NoError(t, allocate(s).Err)
	hurried := load(t, host.Compiler, fixture(t, "attack/slow-init"), host.Limits{Budget: time.Microsecond})
	res := allocate(hurried)
	require.ErrorIs(t, res.Err, host.ErrBudget)
	require.Equal(t, host.VerdictBudget, res.Record.Verdict)
}

// Bringing an instance back to its image, which takes milliseconds for a large memory, is part of the call too.
func TestBudgetCoversRestoring(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/well-behaved"), host.Limits{Budget: time.Nanosecond})
	require.ErrorIs(t, allocate(s).Err, host.ErrBudget)
}

func TestCallerWhoGivesUp(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/loop"), host.Limits{Fuel: host.MaxFuel, Budget: time.Hour})
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, errors.New("leader stepped down"))
	defer cancel()
	d := s.Allocate(ctx, cluster(8, 16), []uint32{0})
	require.ErrorIs(t, d.Err, host.ErrBudget)
	require.ErrorContains(t, d.Err, "leader stepped down")
	require.Len(t, d.Calls(), 1, "no second try")
}

// Reasons and descriptions come out in one line and without control characters.
func TestRudeTexts(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/rude"), host.Limits{})
	res := rebalance(s)
	require.NoError(t, res.Err)
	require.Equal(t, `\x1b[31m\nx`, res.Plan.Moves[0].Reason)
	d, err := s.Describe(context.Background())
	require.NoError(t, err)
	require.Equal(t, `\x1b[31m\nx`, d.Name)
}

// A million moves of one shard: longer than anything there is to say about 16 shards, and so not even read.
func TestMillionMoves(t *testing.T) {
	for _, e := range engines {
		s := load(t, e, fixture(t, "attack/million-moves"), host.Limits{Budget: time.Minute, MemoryPages: 100})
		res := rebalance(s)
		require.ErrorIs(t, res.Err, host.ErrOutput)
		require.ErrorContains(t, res.Err, "3000012 bytes: at most 68096")
		require.Empty(t, res.Plan.Moves)
		t.Logf("%s: %s", e, res.Record.Elapsed)
	}
}

// What reading the answer takes is the call's too: 7.5 MB take longer than all of this budget, and are not read.
func TestBudgetCoversTheAnswer(t *testing.T) {
	load := func(budget time.Duration) host.Result {
		s := load(t, host.Compiler, fixture(t, "attack/long-answer"), host.Limits{Fuel: host.MaxFuel, MemoryPages: 300, Budget: budget})
		return s.Call(context.Background(), pluginapi.OpRebalance, cluster(100, 100_000), nil, 0)
	}
	res := load(time.Minute)
	require.NoError(t, res.Err)
	require.Len(t, res.Plan.Moves, 1000)
	require.ErrorIs(t, load(50*time.Millisecond).Err, host.ErrBudget)
}

// Spec 1.3: memory that grew is gone at the next call, and the call still counts.
func TestGrownInstance(t *testing.T) {
	s := load(t, host.Compiler, fixture(t, "attack/grow-once"), host.Limits{})
	for range 3 {
		res := allocate(s)
		require.NoError(t, res.Err)
		require.EqualValues(t, 101, res.Record.Pages)
	}
}

// The memory limit of node.toml holds even where the module declares a larger one, or none.
func TestMemoryLimitHolds(t *testing.T) {
	for _, e := range engines {
		s := load(t, e, fixture(t, "attack/grow"), host.Limits{Fuel: testFuel, Budget: time.Minute, MemoryPages: 3})
		require.EqualValues(t, 3, allocate(s).Record.Pages)
	}
}

// Depth is counted from each call of the host, not from where the last one left it.
func TestDepthStartsAnew(t *testing.T) {
	for _, e := range engines {
		s := load(t, e, fixture(t, "attack/deep-enough"), host.Limits{Budget: time.Minute})
		for range 3 {
			require.NoError(t, rebalance(s).Err)
			require.NoError(t, allocate(s).Err)
		}
		_, err := runtimeFor(t, e).Load(context.Background(), fixture(t, "attack/deep-enough"), host.Limits{Depth: 500}, nil)
		require.Equal(t, host.RuleWarmUp, host.RuleOf(err))
		require.ErrorIs(t, err, host.ErrDepth)
	}
}

// Spec 1.3: exact fuel: the call that just fits is ok, with one unit less it is stopped, in both engines.
func TestFuelIsExactAtTheEdge(t *testing.T) {
	for _, name := range []string{"attack/well-behaved", "attack/log-some", "attack/grow-once"} {
		var used []int64
		for _, e := range engines {
			s := load(t, e, fixture(t, name), host.Limits{})
			res := allocate(s)
			require.NoError(t, res.Err)
			used = append(used, *res.Record.Fuel)

			exact := load(t, e, fixture(t, name), host.Limits{Fuel: *res.Record.Fuel})
			require.NoError(t, allocate(exact).Err)
			short, err := runtimeFor(t, e).Load(context.Background(), fixture(t, name), host.Limits{Fuel: *res.Record.Fuel - 1}, nil)
			if err == nil { // else the warm-up costs as much, and it is not admitted
				err = errors.Join(allocate(short).Err, short.Close(context.Background()))
			}
			require.ErrorIs(t, err, host.ErrFuel)
		}
		require.Equal(t, used[0], used[1], name)
	}
}
