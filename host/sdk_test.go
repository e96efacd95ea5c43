package host_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/pluginapi"
)

// sdkModules are built with the SDKs of other languages; each reads the whole input.
var sdkModules = []string{"c/zone-spread", "rust/capacity", "assemblyscript/role-pinning"}

// bareGuest calls a module on bytes that the host would never write, in plain wazero: without fuel, and without the checks of the output.
type bareGuest struct {
	t   *testing.T
	mod api.Module
}

func newBareGuest(t *testing.T, name string) *bareGuest {
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() { require.NoError(t, r.Close(ctx)) })
	_, err := r.NewHostModuleBuilder("drover").NewFunctionBuilder().WithFunc(func(int32, uint32, uint32) {}).Export("log").Instantiate(ctx)
	require.NoError(t, err)
	wasm, err := os.ReadFile(filepath.Join("..", "plugins-examples", filepath.FromSlash(name)+".wasm"))
	require.NoError(t, err)
	mod, err := r.Instantiate(ctx, wasm)
	require.NoError(t, err)
	return &bareGuest{t, mod}
}

// ask returns the answer to an input; a trap fails the test.
func (g *bareGuest) ask(export string, input []byte) []byte {
	g.t.Helper()
	answer, err := g.try(export, input)
	require.NoError(g.t, err, "%x", input)
	return answer
}

// try is ask where a trap may come.
func (g *bareGuest) try(export string, input []byte) ([]byte, error) {
	g.t.Helper()
	ctx := context.Background()
	at, err := g.mod.ExportedFunction("drover_buffer").Call(ctx, uint64(len(input)))
	require.NoError(g.t, err)
	require.True(g.t, g.mod.Memory().Write(uint32(at[0]), input))
	out, err := g.mod.ExportedFunction(export).Call(ctx, at[0], uint64(len(input)))
	if err != nil {
		return nil, err
	}
	answer, ok := g.mod.Memory().Read(uint32(out[0]>>32), uint32(out[0]))
	require.True(g.t, ok, "%x", input)
	return bytes.Clone(answer), nil
}

func failure(answer []byte) bool { return bytes.HasPrefix(answer, []byte("\xa1\x65error")) }

// everything is an input with every key of the contract.
func everything(op pluginapi.Op) []byte {
	s := cluster(4, 12)
	s.Seed, s.Now, s.Revision = 1<<40, 1<<41, 70000
	s.Nodes[1].Zone, s.Nodes[2].Zone, s.Nodes[3].State = "z1", "z2", pluginapi.StateAway
	s.Nodes[0].Roles = []string{"web", "coordinator"}
	s.Nodes[0].Tags = []pluginapi.Tag{{Key: "k", Value: "v"}, {Key: "rack", Value: "12"}}
	s.Nodes[1].Coord = pluginapi.Coord{Vec: []float64{1, 2}, Error: 1, Adjustment: 0.5, Height: 0.1}
	s.Nodes[2].Load = pluginapi.NodeLoad{CPU: pluginapi.Known(500), DiskFree: pluginapi.Known(1 << 40)}
	s.Candidates = []int{0, 1, 2}
	s.Owners[5] = pluginapi.NoOwner
	s.Busy = []pluginapi.Busy{{Shard: 0, Target: 1}, {Shard: 1, Target: pluginapi.NoTarget}}
	s.Pinned = []pluginapi.Pin{{Shard: 2, Node: 2}}
	s.Waiting = []uint32{3, 7}
	s.Standby = make([]uint32, 12)
	s.Load = pluginapi.ShardLoads{Entities: make([]uint32, 12), Rate: make([]uint32, 12), Bytes: make([]uint64, 12)}
	s.Config, _ = pluginapi.NewConfig(map[string]any{"other": []any{1, "x", map[string]any{"deep": 1.5}}})
	var shards []uint32
	if op == pluginapi.OpAllocate {
		shards = []uint32{5, 3, 2}
	}
	return pluginapi.AppendInput(nil, op, s, shards)
}

var operations = map[string]pluginapi.Op{"drover_allocate": pluginapi.OpAllocate, "drover_rebalance": pluginapi.OpRebalance}

// Values of any kind, in hexadecimal; RFC 8949, appendix A, has most of them. The others have no length.
var (
	definite = []string{"00", "1bffffffffffffffff", "20", "3bffffffffffffffff", "f90000", "fa47c35000", "fb7ff0000000000000", "f4", "f6", "f7", "f0", "f8ff",
		"c11a514b67b0", "d818456449455446", "d9ffffc2c240", "40", "4401020304", "60", "62c3bc", "80", "8301820203820405", "98190102030405060708090a0b0c0d0e0f101112131415161718181819",
		"a0", "a201020304", "a26161016162820203",
		strings.Repeat("81", 5000) + "00", strings.Repeat("c1", 5000) + "00", strings.Repeat("a100", 5000) + "00"}
	indefinite = []string{"83018202039f0405ff", "5f42010243030405ff", "7f657374726561646d696e67ff", "9fff", "9f018202039f0405ffff", "bf61610161629f0203ffff",
		"bf6346756ef563416d7421ff", "826161bf61626163ff", "5fff", "bfff",
		strings.Repeat("9f", 32) + strings.Repeat("ff", 32)}
)

// withUnknown returns inputs that say the same and have one key more, "later": first, last, and in the first node.
func withUnknown(t *testing.T, plain []byte, value string) [][]byte {
	v, err := hex.DecodeString(value)
	require.NoError(t, err)
	at := bytes.Index(plain, []byte("\x65nodes")) + 7
	return [][]byte{
		bytes.Join([][]byte{{plain[0] + 1}, []byte("\x65later"), v, plain[1:]}, nil),
		bytes.Join([][]byte{{plain[0] + 1}, plain[1:], []byte("\x65later"), v}, nil),
		bytes.Join([][]byte{plain[:at], {plain[at] + 1}, []byte("\x65later"), v, plain[at+1:]}, nil),
	}
}

// Spec 1.1: unknown keys are skipped by readers, whatever well-formed CBOR they hold; map keys come in any order.
func TestSDKsSkipWhatTheyDoNotKnow(t *testing.T) {
	for _, name := range sdkModules {
		g := newBareGuest(t, name)
		for export, op := range operations {
			plain := everything(op)
			want := g.ask(export, plain)
			require.False(t, failure(want), "%s: %q", name, want)
			for _, value := range slices.Concat(definite, indefinite) {
				for _, input := range withUnknown(t, plain, value) {
					require.Equal(t, want, g.ask(export, input), "%s: %.40s", name, value)
				}
			}
			// The same map without a length.
			require.Equal(t, want, g.ask(export, bytes.Join([][]byte{{0xbf}, plain[1:], {0xff}}, nil)), name)
		}
	}
}

// An input that is not of the contract is answered with an error, whatever is wrong with it: no trap, nothing read behind the end, no time that its bytes do not explain.
func TestSDKsRefuseBrokenInput(t *testing.T) {
	for _, name := range sdkModules {
		g := newBareGuest(t, name)
		for export, op := range operations {
			plain := everything(op)
			for i := range plain {
				require.True(t, failure(g.ask(export, plain[:i])), "%s: %d bytes", name, i)
			}
			require.True(t, failure(g.ask(export, append(bytes.Clone(plain), 0))), name)
			for i := range plain {
				for _, with := range []byte{0x00, 0x18, 0x1b, 0x3b, 0x5b, 0x5f, 0x7b, 0x7f, 0x9b, 0x9f, 0xbb, 0xbf, 0xdb, 0xf6, 0xff, plain[i] + 1, plain[i] ^ 0x80} {
					changed := bytes.Clone(plain)
					changed[i] = with
					answer := g.ask(export, changed)
					in, err := pluginapi.DecodeInput(changed)
					if err == nil && in.Op == op {
						require.False(t, bytes.Contains(answer, []byte("input")) && failure(answer), "%s: byte %d is %x: %q", name, i, with, answer)
					}
				}
			}
			// Lengths that no input has.
			for _, key := range []string{"\x64busy", "\x65nodes", "\x66owners", "\x6acandidates"} {
				at := bytes.Index(plain, []byte(key)) + len(key)
				for _, head := range []string{"9a7fffffff", "9affffffff", "9bffffffffffffffff", "9b0000000100000000", "ba7fffffff", "d8455affffffff", "d8465bffffffffffffffff", "d84543010203"} {
					h, err := hex.DecodeString(head)
					require.NoError(t, err)
					answer := g.ask(export, append(bytes.Clone(plain[:at]), h...))
					require.True(t, failure(answer), "%s: %s %s", name, key[1:], head)
					require.Contains(t, string(answer), "input: "+key[1:], head)
				}
			}
			// Typed arrays of another type.
			for _, key := range []string{"\x66owners", "\x67waiting", "\x67standby"} {
				at := bytes.Index(plain, []byte(key)) + len(key)
				for _, head := range []string{"d84058", "d84748", "d85648", "f6"} {
					h, err := hex.DecodeString(head)
					require.NoError(t, err)
					answer := g.ask(export, slices.Concat(plain[:at], h, plain[at+len(h):]))
					require.Contains(t, string(answer), "input: "+key[1:]+": want a typed array", "%s: %s", name, head)
				}
			}
			for head, message := range map[string]string{
				"ff": "a break", "1c": "not well-formed", "f81f": "not well-formed", "bf00ff": "a key without a value", "5f6161ff": "not well-formed",
				"5f5f4100ffff": "not well-formed", strings.Repeat("9f", 33): "nested too deep", strings.Repeat("9b00000000ffffffff", 100): "ends inside", "": "",
			} {
				h, err := hex.DecodeString(head)
				require.NoError(t, err)
				answer := g.ask(export, bytes.Join([][]byte{{plain[0] + 1}, []byte("\x65later"), h, plain[1:]}, nil))
				require.True(t, failure(answer), "%s: %s", name, head)
				require.Contains(t, string(answer), message, head)
			}
			twice := bytes.Join([][]byte{{plain[0] + 1}, []byte("\x61v\x01"), plain[1:]}, nil)
			require.Contains(t, string(g.ask(export, twice)), "input: v: the key comes twice")
		}
	}
}

// What the input says of shards and nodes is checked before a strategy sees it.
func TestSDKsCheckRanges(t *testing.T) {
	for want, wrong := range map[string]func(s *pluginapi.Snapshot){
		"input: owners: out of range":     func(s *pluginapi.Snapshot) { s.Owners[3] = 2 },
		"input: candidates: out of range": func(s *pluginapi.Snapshot) { s.Candidates = []int{0, 2} },
		"input: candidates: out":          func(s *pluginapi.Snapshot) { s.Candidates = []int{0, 0} },
		"input: busy: out of range":       func(s *pluginapi.Snapshot) { s.Busy = []pluginapi.Busy{{Shard: 4, Target: 0}} },
		"input: busy: out of ":            func(s *pluginapi.Snapshot) { s.Busy = []pluginapi.Busy{{Shard: 0, Target: 2}} },
		"input: pinned: out of range":     func(s *pluginapi.Snapshot) { s.Pinned = []pluginapi.Pin{{Shard: 0, Node: 9}} },
		"input: waiting: out of range":    func(s *pluginapi.Snapshot) { s.Waiting = []uint32{4} },
		"input: standby: out of range":    func(s *pluginapi.Snapshot) { s.Standby = []uint32{0, 1, 2, 0} },
		"input: standby: want one":        func(s *pluginapi.Snapshot) { s.Standby = []uint32{0} },
		"input: load.rate: want one":      func(s *pluginapi.Snapshot) { s.Load.Rate = []uint32{0} },
	} {
		s := cluster(2, 4)
		wrong(s)
		for _, name := range sdkModules {
			answer := newBareGuest(t, name).ask("drover_rebalance", pluginapi.AppendInput(nil, pluginapi.OpRebalance, s, nil))
			require.True(t, failure(answer), "%s: %s", name, want)
			require.Contains(t, string(answer), want, name)
		}
	}
	for _, name := range sdkModules {
		answer := newBareGuest(t, name).ask("drover_allocate", pluginapi.AppendInput(nil, pluginapi.OpAllocate, cluster(2, 4), []uint32{4}))
		require.Contains(t, string(answer), "input: shards: out of range", name)
	}
}

// The guest in wat reads what a host writes, with keys that it does not know; for anything else it traps, and nothing is answered.
func TestGuestInWat(t *testing.T) {
	g := newBareGuest(t, "wat/round-robin")
	plain := everything(pluginapi.OpAllocate)
	want := g.ask("drover_allocate", plain)
	homes, err := pluginapi.DecodeHomes(want, 3)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0, 2}, homes.Nodes, "shards 5, 3 and 2 on candidates 0, 1 and 2")
	for _, value := range definite {
		for _, input := range withUnknown(t, plain, value) {
			require.Equal(t, want, g.ask("drover_allocate", input), "%.40s", value)
		}
	}
	for i := range plain {
		_, err := g.try("drover_allocate", plain[:i])
		require.ErrorContains(t, err, "unreachable", "%d bytes", i)
	}
	for _, value := range append([]string{"9bffffffffffffffff", "bb7fffffffffffffff", "5affffffff", "1c"}, indefinite...) {
		_, err := g.try("drover_allocate", withUnknown(t, plain, value)[0])
		require.Error(t, err, value)
	}
}
