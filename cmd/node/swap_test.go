package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

// TestSwapWaits: strategy swap --wait ends well only once the strategy has decided, or is active and was not asked; why it failed is said (spec 1.4, 5.3).
func TestSwapWaits(t *testing.T) {
	asked, before := "sha256:"+strings.Repeat("00", 32), "sha256:"+strings.Repeat("11", 32)
	view := func(digest string, state httpapi.StrategyState, f *httpapi.FailureView) httpapi.StrategyView {
		return httpapi.StrategyView{Type: "counter", Source: "mine.wasm", Digest: digest, State: state, LastFailure: f}
	}
	trap := &httpapi.FailureView{Digest: asked, Source: "mine.wasm", Verdict: "trap", Text: "unreachable"}
	worked := view(asked, httpapi.StrategyActive, nil)
	worked.Worked = true
	preparing := view(asked, httpapi.StrategyPreparing, nil)
	for _, tc := range []struct {
		name  string
		first httpapi.StrategyView
		then  httpapi.StrategyView
		limit string
		code  int
		out   string
	}{
		{"decided at last", preparing, worked, "1m", 0, "counter runs mine.wasm (sha256:000000000000…)\n"},
		{"active first", view(asked, httpapi.StrategyActive, nil), worked, "1m", 0, "counter runs mine.wasm (sha256:000000000000…)\n"},
		{"not asked", preparing, view(asked, httpapi.StrategyActive, nil), "700ms", 0, "counter runs mine.wasm (sha256:000000000000…), which has not decided anything yet\n"},
		{"its first call failed", preparing, view(asked, httpapi.StrategyActive, trap), "1m", 1,
			"drover: mine.wasm (sha256:000000000000…) is active, and its first call failed: trap: unreachable\nhint: "},
		{"it failed and the one before came back", preparing, view(before, httpapi.StrategyReverted, trap), "1m", 1,
			"drover: mine.wasm (sha256:000000000000…) failed, and counter runs mine.wasm (sha256:111111111111…) again: trap: unreachable\nhint: "},
		{"the configuration failed and the one before came back", preparing, view(asked, httpapi.StrategyReverted, trap), "1m", 1, "again: trap: unreachable\n"},
		{"another swap", preparing, view(before, httpapi.StrategyActive, nil), "1m", 1,
			"drover: mine.wasm (sha256:000000000000…) is not active: counter runs mine.wasm (sha256:111111111111…)\nhint: it was replaced meanwhile"},
		{"never", preparing, view(asked, httpapi.StrategyMissing, &httpapi.FailureView{Digest: asked, Verdict: "missing", Text: "no node has it"}), "700ms", 1, "is still missing after 700ms\n"},
	} {
		var polls atomic.Int64
		n := &httpapitest.Node{SwapView: &httpapi.SwapView{StrategyView: tc.first}, OnStrategies: func() httpapi.StrategiesView {
			v := tc.then
			if polls.Add(1) == 1 && tc.code == 0 { // not at once
				v = tc.first
			}
			return httpapi.StrategiesView{Strategies: []httpapi.StrategyView{v}}
		}}
		server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
		var out, errs bytes.Buffer
		code := run([]string{"strategy", "swap", "counter", "builtin:hash", "--address", server.URL, "--wait", tc.limit}, strings.NewReader(""), &out, &errs)
		server.Close()
		assert.Equal(t, tc.code, code, tc.name)
		assert.Contains(t, out.String()+errs.String(), tc.out, tc.name)
	}
}

// What is odd about a strategy that is taken all the same reaches whoever swaps it in, on stderr and in the JSON (spec 1.3, 5.3).
func TestSwapWarns(t *testing.T) {
	odd := httpapi.Finding{Rule: "config-unknown-key", Severity: "warning", Message: `leastshard passes over the key "skop"`, Fix: "correct the key"}
	n := &httpapitest.Node{SwapView: &httpapi.SwapView{StrategyView: httpapi.StrategyView{Type: "counter", Source: "builtin:leastshard", Worked: true, State: httpapi.StrategyActive}, Warnings: []httpapi.Finding{odd}}}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	for _, line := range []string{"", "--json"} {
		var out, errs bytes.Buffer
		args := strings.Fields("strategy swap counter --address " + server.URL + " " + line)
		assert.Equal(t, 0, run(append(args, "--strategy-config", `{"skop":1}`), strings.NewReader(""), &out, &errs))
		assert.Equal(t, "drover: warning: config-unknown-key: leastshard passes over the key \"skop\"\ndrover:   fix: correct the key\n", errs.String())
		if line != "" {
			var v httpapi.SwapView
			require.NoError(t, json.Unmarshal(out.Bytes(), &v))
			assert.Equal(t, []httpapi.Finding{odd}, v.Warnings)
		}
	}
}

func TestSwapText(t *testing.T) {
	v := httpapi.StrategyView{Type: "counter", Source: "mine.wasm", Digest: "sha256:12", State: httpapi.StrategyPreparing}
	assert.Equal(t, "counter: mine.wasm (sha256:12) is recorded and is being prepared; drover strategy list shows when it is active", swapped(v))
	v.Name, v.State = "mine", httpapi.StrategyActive
	assert.Equal(t, "counter runs mine (sha256:12), which has not decided anything yet", swapped(v))
	v.LastFailure = &httpapi.FailureView{Source: "mine.wasm", Verdict: "fuel", Text: "out of it"}
	assert.Equal(t, "counter runs mine (sha256:12), whose last call failed: fuel: out of it", swapped(v))
	v.Worked = true
	assert.Equal(t, "counter runs mine (sha256:12)", swapped(v))
	v.State = httpapi.StrategyReverted
	assert.Equal(t, "counter runs mine (sha256:12) again: the one asked for failed", swapped(v))
	var b bytes.Buffer
	digest := "sha256:" + strings.Repeat("ab", 32)
	assert.NoError(t, listStrategies(&b, []httpapi.StrategyView{{Type: "counter", Source: "mine.wasm", State: httpapi.StrategyPreparing}, {Type: "x", Source: digest}, v}))
	assert.Regexp(t, `(?m)^counter +mine\.wasm +preparing `, b.String())
	assert.Regexp(t, `(?m)^x +sha256:abababababab… .* sha256:abababababab…$`, b.String())
	assert.Regexp(t, `(?m)^counter: the last failure, of mine\.wasm: fuel: out of it$`, b.String())
}
