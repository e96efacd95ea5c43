package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// engines are both of wazero's; runtimes are shared by the tests of the
// package, as a node shares one.
var engines = []host.Engine{host.Compiler, host.Interpreter}

var shared = struct {
	sync.Mutex
	runtimes map[host.Engine]*host.Runtime
}{runtimes: map[host.Engine]*host.Runtime{}}

func runtimeFor(t testing.TB, e host.Engine) *host.Runtime {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if r, ok := shared.runtimes[e]; ok {
		return r
	}
	r, err := host.NewRuntime(context.Background(), host.Options{Engine: e})
	require.NoError(t, err)
	shared.runtimes[e] = r
	return r
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)+".wasm"))
	require.NoError(t, err)
	return b
}

// load prepares a fixture and closes it with the test.
func load(t testing.TB, e host.Engine, wasm []byte, l host.Limits, opts ...host.StrategyOption) *host.Strategy {
	t.Helper()
	s, err := runtimeFor(t, e).Load(context.Background(), wasm, l, nil, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// cluster is a snapshot of n nodes, all up, with the shards dealt in turn. Its
// encoding is longer than 600 bytes from 8 nodes on, the warm-up's is shorter.
func cluster(nodes, shards int) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{Type: "counter", MaxMoves: 1000}
	for i := range nodes {
		name := fmt.Sprintf("node-%03d", i)
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100})
		s.Candidates = append(s.Candidates, i)
	}
	for i := range shards {
		s.Owners = append(s.Owners, uint32(i%nodes))
	}
	return s
}

func allocate(s *host.Strategy) host.Result {
	return s.Call(context.Background(), pluginapi.OpAllocate, cluster(8, 16), []uint32{0}, 0)
}

func rebalance(s *host.Strategy) host.Result {
	return s.Call(context.Background(), pluginapi.OpRebalance, cluster(8, 16), nil, 0)
}
