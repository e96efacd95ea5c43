package main

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

// TestSwapWaits: strategy swap --wait ends well only once the strategy is active (spec 1.4, 5.3).
func TestSwapWaits(t *testing.T) {
	asked := "sha256:" + strings.Repeat("00", 32)
	view := func(digest string, state httpapi.StrategyState) httpapi.StrategyView {
		return httpapi.StrategyView{Type: "counter", Source: "mine.wasm", Digest: digest, State: state}
	}
	for _, tc := range []struct {
		name  string
		first httpapi.StrategyView
		then  httpapi.StrategyView
		limit string
		code  int
		out   string
	}{
		{"active at last", view(asked, httpapi.StrategyPreparing), view(asked, httpapi.StrategyActive), "1m", 0, "counter runs mine.wasm (sha256:000000000000…)\n"},
		{"the one before came back", view(asked, httpapi.StrategyPreparing), view("sha256:"+strings.Repeat("11", 32), httpapi.StrategyReverted), "1m", 1,
			"drover: mine.wasm (sha256:000000000000…) is not active: counter runs mine.wasm (sha256:111111111111…)\n"},
		{"never", view(asked, httpapi.StrategyPreparing), view(asked, httpapi.StrategyMissing), "700ms", 1, "is still missing after 700ms\n"},
	} {
		var polls atomic.Int64
		n := &httpapitest.Node{SwapView: &tc.first, OnStrategies: func() httpapi.StrategiesView {
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

func TestSwapText(t *testing.T) {
	v := httpapi.StrategyView{Type: "counter", Source: "mine.wasm", Digest: "sha256:12", State: httpapi.StrategyPreparing}
	assert.Equal(t, "counter: mine.wasm (sha256:12) is recorded and is being prepared; drover strategy list shows when it is active", swapped(v, false))
	v.Name, v.State = "mine", httpapi.StrategyActive
	assert.Equal(t, "counter runs mine (sha256:12)", swapped(v, false))
	v.State = httpapi.StrategyReverted
	assert.Equal(t, "counter runs mine (sha256:12) again: the one asked for failed", swapped(v, false))
	var b bytes.Buffer
	assert.NoError(t, listStrategies(&b, []httpapi.StrategyView{{Type: "counter", Source: "mine.wasm", State: httpapi.StrategyPreparing}, {Type: "x"}}))
	assert.Regexp(t, `(?m)^counter +mine\.wasm +preparing `, b.String())
	assert.Regexp(t, `(?m)^x +- `, b.String())
}
