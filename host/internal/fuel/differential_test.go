package fuel_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// modules is how many random modules the differential test runs. The nightly
// run sets DROVER_FUEL_MODULES to more, and DROVER_FUEL_SEED to start elsewhere.
const modules = 1200

// smallLimit ends the loops and recursions of generated modules; modules with
// large memories get bigLimit, enough for a few bulk operations in pieces.
const smallLimit, bigLimit = 100_000, 12_000_000

// rounds is how often each export is called in a run, if DROVER_FUEL_ROUNDS says
// nothing else.
const rounds = 3

// maxPages is the engines' cap of memories.
const maxPages = 256

func environment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, name)
	return n
}

// TestDifferential holds wazero's compiler and interpreter, both running the
// rewritten module, against the reference running the original: the same fuel to
// the unit, the same results, traps and memory, and at random budgets the
// verdict fuel exactly when the budget is below what the call needs (spec 1.3).
func TestDifferential(t *testing.T) {
	t.Parallel()
	n, first := environment(t, "DROVER_FUEL_MODULES", modules), environment(t, "DROVER_FUEL_SEED", 0)
	const workers = 2
	var mu sync.Mutex
	total := map[string]int{}
	t.Run("modules", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				d := newDifferential(t)
				for seed := first + w; seed < first+n; seed += workers {
					d.module(t, uint64(seed))
				}
				mu.Lock()
				defer mu.Unlock()
				for k, v := range d.seen {
					total[k] += v
				}
			})
		}
	})
	t.Logf("%d modules: %v", n, total)
	if n >= modules {
		// A generator that no longer makes these would make the test pass idly.
		for _, kind := range []string{
			"ok", "fuel", "depth", "budget below", "budget enough", "canonical", "pieces", "trap before look",
			string(reference.TrapUnreachable), string(reference.TrapMemory), string(reference.TrapTable), string(reference.TrapSignature),
			string(reference.TrapDivideByZero), string(reference.TrapOverflow), string(reference.TrapConversion),
		} {
			require.NotZero(t, total[kind], "no generated module shows %q", kind)
		}
		require.Greater(t, total["ok"], n, "most calls should end normally")
		require.Less(t, 1000*total["plain, select lost"], total["plain"]+total["plain, raw NaNs"], "plain and metered differ more often than wazero errs")
	}
}

type differential struct {
	engines []*engine
	rounds  int
	seen    map[string]int
}

func newDifferential(t *testing.T) *differential {
	return &differential{engines: newEngines(t), rounds: environment(t, "DROVER_FUEL_ROUNDS", rounds), seen: map[string]int{}}
}

func (d *differential) module(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("seed %d; rerun with DROVER_FUEL_SEED=%d DROVER_FUEL_MODULES=1", seed, seed)
		}
	}()
	wasm := wasmbin.Encode(reference.Generate(seed))
	decoded, err := wasmbin.Decode(wasm)
	require.NoError(t, err)
	require.Equal(t, wasm, wasmbin.Encode(decoded))
	d.check(t, decoded, seed)
}

// check runs one module in everything, with arguments and budgets by the seed.
func (d *differential) check(t *testing.T, decoded *wasmbin.Module, seed uint64) {
	// The rewrite's precondition: the original is valid.
	plain := d.compilePlain(t, decoded)
	defer func() {
		for _, c := range plain {
			require.NoError(t, c.Close(context.Background()))
		}
	}()

	res, err := fuel.Rewrite(decoded, fuel.Options{})
	require.NoError(t, err)
	var compiled []wazero.CompiledModule
	for _, e := range d.engines {
		c := e.compile(t, res)
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		compiled = append(compiled, c)
	}
	limit := int64(smallLimit)
	if decoded.Mems[0].Min > 16 {
		limit = bigLimit
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	needs, made := d.run(t, decoded, res, compiled, limit, rng.Uint64(), nil)
	if !initsActive(decoded) {
		d.plain(t, decoded, plain, made)
	}
	budgets := rng.Uint64()
	for range 2 {
		d.run(t, decoded, res, compiled, limit, budgets, func(call int) (int64, bool) {
			if call >= len(needs) || needs[call] == 0 {
				return 0, false
			}
			if trapped := -needs[call]; trapped > 0 { // stop it shortly before
				return max(0, trapped-1-rng.Int64N(20)), true
			}
			// Around what the call needs, or anywhere.
			switch rng.IntN(4) {
			case 0:
				return needs[call] - 1, true
			case 1:
				return needs[call], true
			}
			return rng.Int64N(needs[call] + needs[call]/4 + 2), true
		})
	}
}

// run calls the start function and then each export once, in the reference and
// in one new instance of each engine, over and over. Without budget, every call
// gets limit, and run returns the fuel that calls which ended normally needed,
// what those that trapped had used, negative, and 0 for others. With budget, that
// says how much each call gets, and the run ends at the first call that is stopped
// or has none. It returns the calls that it made, too.
func (d *differential) run(t *testing.T, m *wasmbin.Module, res *fuel.Result, compiled []wazero.CompiledModule,
	limit int64, argSeed uint64, budget func(call int) (int64, bool),
) (needs []int64, made []past) {
	t.Helper()
	ref, err := reference.New(m, reference.Options{DepthLimit: fuel.DefaultDepthLimit, MaxPages: maxPages, Host: reference.Host})
	require.NoError(t, err)
	var instances []*instance
	for i, e := range d.engines {
		instances = append(instances, e.instantiate(t, compiled[i], res))
		defer instances[i].close(t)
	}
	args := rand.New(rand.NewPCG(argSeed, 2))
	type call struct {
		name  string
		index uint32
	}
	var calls []call
	require.Equal(t, m.HasStart, res.Start)
	if m.HasStart {
		calls = append(calls, call{fuel.Namespace + ".start", m.Start})
	}
	for range d.rounds {
		for _, e := range m.Exports {
			if e.Kind == wasmbin.KindFunc && numeric(m, e.Index) {
				calls = append(calls, call{e.Name, e.Index})
			}
		}
	}
	imported := len(m.ImportedFuncs())
	for i, c := range calls {
		var a []uint64
		for _, p := range m.Types[m.Funcs[int(c.index)-imported]].Params {
			a = append(a, reference.Argument(args, p))
		}
		given := limit
		if budget != nil {
			var ok bool
			if given, ok = budget(i); !ok {
				return needs, made
			}
		}
		results, trap := ref.Call(c.index, given, a...)
		want := verdict{kind: "ok", used: ref.Used, results: results}
		if trap != nil {
			want = verdict{kind: trap.Error()}
		}
		d.seen["cases"]++
		d.seen[want.kind]++
		if budget != nil && want.kind == "fuel" {
			d.seen["budget below"]++
		} else if budget != nil {
			d.seen["budget enough"]++
		}
		slice := 1 + args.Int64N(given/3+2)
		var first verdict
		for j, in := range instances {
			in.e.onRefill = func(left int64) {
				if left >= 0 {
					d.seen["pieces"]++
				}
			}
			got := in.call(c.name, given, slice, a...)
			if j == 0 {
				first = got
			} else {
				require.Equal(t, first, got, "%s: the engines disagree", c.name)
			}
			if want.kind == "fuel" && got.kind != "fuel" {
				// The guest has trapped before it looked at its counter: with a
				// little more fuel the reference traps there too.
				d.seen["trap before look"]++
				require.NotEqual(t, "ok", got.kind)
				require.Equal(t, got.kind, d.replay(t, m, append(made, past{index: c.index, limit: given + mostOwed, args: a})), "%s(%x) in %s", c.name, a, in.e.name)
				continue
			}
			if want.kind != "ok" {
				require.Equal(t, want.kind, got.kind, "%s(%x) in %s", c.name, a, in.e.name)
				continue
			}
			require.Equal(t, want, got, "%s(%x) in %s", c.name, a, in.e.name)
		}
		made = append(made, past{c.index, given, a, c.name, want, ref.MadeNaN, hash(ref.Memory)})
		if want.kind == "fuel" {
			// How much was executed before the guest looked at its counter
			// differs from the reference, but not between the engines.
			d.sameState(t, instances, nil, m)
			return append(needs, 0), made
		}
		d.sameState(t, instances, ref, m)
		for _, r := range results {
			if uint32(r) == 0x7FC00000 || r == 0x7FF8000000000000 {
				d.seen["canonical"]++
			}
		}
		switch want.kind {
		case "ok":
			needs = append(needs, want.used)
		case "depth":
			needs = append(needs, 0)
		default:
			needs = append(needs, -ref.Used)
		}
	}
	return needs, made
}

// mostOwed is more than any generated module can execute between two looks at
// its counter, all active calls together.
const mostOwed = 500_000

// past is one call that was made, and what the reference said.
type past struct {
	index   uint32
	limit   int64
	args    []uint64
	name    string
	want    verdict
	madeNaN bool   // since the start
	memory  uint64 // its hash
}

// replay makes calls in a new reference and returns how the last one ended.
func (d *differential) replay(t *testing.T, m *wasmbin.Module, calls []past) string {
	t.Helper()
	ref, err := reference.New(m, reference.Options{DepthLimit: fuel.DefaultDepthLimit, MaxPages: maxPages, Host: reference.Host})
	require.NoError(t, err)
	kind := "ok"
	for _, c := range calls {
		kind = "ok"
		if _, trap := ref.Call(c.index, c.limit, c.args...); trap != nil {
			kind = trap.Error()
		}
	}
	return kind
}

// sameState holds the instances' memories and globals against each other's and
// against the reference's, where there is one.
func (d *differential) sameState(t *testing.T, instances []*instance, ref *reference.Machine, m *wasmbin.Module) {
	t.Helper()
	memory := func(i *instance) []byte {
		mem := i.mod.ExportedMemory("memory")
		b, ok := mem.Read(0, mem.Size())
		require.True(t, ok)
		return b
	}
	want := memory(instances[0])
	if ref != nil {
		require.True(t, bytes.Equal(ref.Memory, want), "memory differs from the reference's: %x, %x", hash(ref.Memory), hash(want))
	}
	require.True(t, bytes.Equal(want, memory(instances[1])), "the engines' memories differ")
	for i, g := range m.AllGlobals() {
		if !g.Mutable || g.Type.IsRef() {
			continue
		}
		name := fuel.Namespace + ".g" + strconv.Itoa(i)
		a, b := instances[0].mod.ExportedGlobal(name).Get(), instances[1].mod.ExportedGlobal(name).Get()
		require.Equal(t, a, b, name)
		if ref != nil {
			require.Equal(t, ref.Global(i), a, name)
		}
	}
}

// numeric tells whether a function of the guest's own takes and returns numbers
// alone. References mean different things to the engines and the reference.
func numeric(m *wasmbin.Module, index uint32) bool {
	i := int(index) - len(m.ImportedFuncs())
	if i < 0 {
		return false
	}
	t := m.Types[m.Funcs[i]]
	return !slices.ContainsFunc(append(slices.Clone(t.Params), t.Results...), wasmbin.ValType.IsRef)
}

var hashSeed = maphash.MakeSeed()

func hash(b []byte) uint64 { return maphash.Bytes(hashSeed, b) }
