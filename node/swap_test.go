package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies"
)

// Spec 1.3 and 1.4: where no strategy ever worked the built-in hash is what remains, without a module. There is none to copy then, and a
// server that lacks none may vote.
func TestNoModuleIsNeededAfterARollbackToNothing(t *testing.T) {
	f := newFleet(t)
	c := f.config("a")
	c.Types[0].Strategy, c.Types[0].MaxFailures = smallModule(t, "unreachable"), 1
	a := f.start(c)
	f.settled()
	a.add(t, accountOn(3), 1)
	require.Eventually(t, func() bool {
		v, err := api{a.Node}.Strategies(t.Context())
		return err == nil && len(v.Strategies) == 1 && v.Strategies[0].State == httpapi.StrategyReverted
	}, patience, poll)
	// Why it failed is told after the rollback too, by verdict and text.
	v, err := api{a.Node}.Strategies(t.Context())
	require.NoError(t, err)
	if f := v.Strategies[0].LastFailure; assert.NotNil(t, f) {
		assert.Equal(t, "trap", f.Verdict)
		assert.Contains(t, f.Text, "unreachable")
		assert.Equal(t, c.Types[0].Strategy, f.Source)
		assert.NotEqual(t, v.Strategies[0].Digest, f.Digest)
	}
	assert.Empty(t, a.neededModules())
	ready, err := a.serve(t.Context(), transport.Peer{}, callReady, make([]byte, 8))
	require.NoError(t, err)
	assert.Equal(t, []byte{1}, ready)
	fuel := uint64(20_000_000)
	_, err = api{a.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Limits: &httpapi.Limits{Fuel: &fuel}})
	assert.Equal(t, httpapi.KindConflict, kindOf(err), "%v", err)
	assert.ErrorContains(t, err, "has no strategy module")
}

// Spec 1.4: a swap that fails at any step leaves the old strategy and says why; where a node cannot store the module the next step is at its disk.
func TestSwapWhoseModuleCannotBeStored(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	wasm, err := os.ReadFile(smallModule(t, "well-behaved"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(a.dir.Path("modules")))
	_, err = api{a.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Module: wasm})
	require.Equal(t, httpapi.KindUnavailable, kindOf(err), "%v", err)
	problem, _ := errors.AsType[*httpapi.Problem](err)
	assert.Contains(t, problem.Detail, "node a: module")
	assert.Contains(t, problem.Hint, "node a can write to its data_dir")
}

// A module is refused for what it is; that somebody gave up, or the node stops, is not its fault.
func TestRefusal(t *testing.T) {
	assert.Equal(t, httpapi.KindRefusedStrategy, kindOf(refusal(&host.RefusedError{})))
	assert.Equal(t, httpapi.KindUnavailable, kindOf(refusal(context.DeadlineExceeded)))
}

// Spec 1.4: where a module can't be had, hash gives homes and nothing moves; the strategy stays in force, and decides as soon as the module is there.
func TestModuleThatComesLate(t *testing.T) {
	f := newFleet(t)
	wasm, err := os.ReadFile(smallModule(t, "well-behaved"))
	require.NoError(t, err)
	c := f.config("a")
	c.Types[0].Strategy, c.Types[0].MaxFailures = fmt.Sprintf("sha256:%x", sha256.Sum256(wasm)), 1
	a := f.start(c)
	f.settled()
	a.add(t, accountOn(3), 1)
	is := func(state httpapi.StrategyState) func() bool {
		return func() bool {
			v, err := api{a.Node}.Strategies(t.Context())
			return err == nil && len(v.Strategies) == 1 && v.Strategies[0].State == state && v.Strategies[0].Digest == c.Types[0].Strategy
		}
	}
	require.Eventually(t, is(httpapi.StrategyMissing), patience, poll)
	e, err := api{a.Node}.Explain(t.Context(), "ledger", 3)
	require.NoError(t, err)
	assert.Equal(t, "missing", e.Verdict)
	_, err = a.modules.Put(wasm)
	require.NoError(t, err)
	require.Eventually(t, is(httpapi.StrategyActive), patience, poll)
	a.add(t, accountOn(4), 1)
	e, err = api{a.Node}.Explain(t.Context(), "ledger", 4)
	require.NoError(t, err)
	assert.Equal(t, "ok", e.Verdict)
	assert.Equal(t, c.Types[0].Strategy, e.Digest)
}

// Spec 1.3: a configuration with a key that the strategy passes over is taken, and whoever asked is told; a swap by the digest of a built-in strategy
// keeps its name.
func TestSwapTellsWhatIsOdd(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	_, hex, _ := strategies.Builtin("leastshard")
	digest, err := httpapi.ParseDigest("sha256:" + hex)
	require.NoError(t, err)
	v, err := api{a.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Digest: &digest, Config: []byte(`{"skop":1}`)})
	require.NoError(t, err)
	assert.Equal(t, "builtin:leastshard", v.Source)
	if assert.Len(t, v.Warnings, 1) {
		assert.Equal(t, "config-unknown-key", v.Warnings[0].Rule)
		assert.Contains(t, v.Warnings[0].Message, `"skop"`)
	}
	v, err = api{a.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Config: []byte(`{}`)})
	require.NoError(t, err)
	assert.Empty(t, v.Warnings)

	// A refusal names each finding once, the leader's too.
	_, err = api{a.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Module: []byte("no wasm")})
	var p *httpapi.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "the module is refused by 1 rule", p.Detail)
	require.Len(t, p.Findings, 1)
	order, err := cbor.Marshal(swapOrder{Type: "ledger", Spec: protocol.StrategySpec{Digest: sha256.Sum256([]byte("no wasm"))}, Module: []byte("no wasm")})
	require.NoError(t, err)
	_, err = a.callLeader(t.Context(), callSwap, order)
	var led *httpapi.Problem
	require.ErrorAs(t, err, &led)
	assert.Equal(t, p.Findings, led.Findings)
}

// Spec 1.4: the leader compiles the module of a swap before it answers, which may take longer than any other answer: the asking node waits for it. It gives
// up on other calls, and says that it did.
func TestSwapWaitsForTheLeader(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.leaderPatience = 200 * time.Millisecond
	b := f.start(f.config("b"))
	f.settled()
	require.True(t, a.leads())
	a.faults.Delay(transport.Where{Class: transport.Call, Direction: transport.In, Peer: "b"}, 2*f.leaderPatience)
	order, err := cbor.Marshal(swapOrder{Type: "ledger", Spec: protocol.StrategySpec{Digest: sha256.Sum256([]byte("no wasm"))}, Module: []byte("no wasm")})
	require.NoError(t, err)
	_, err = b.callLeader(t.Context(), callSwap, order)
	assert.Equal(t, httpapi.KindRefusedStrategy, kindOf(err), "%v", err)
	err = api{b.Node}.Pause(t.Context(), true)
	assert.Equal(t, httpapi.KindUnknownOutcome, kindOf(err), "%v", err)
	assert.ErrorContains(t, err, "has not answered in time")
}
