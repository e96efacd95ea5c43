package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/strategies"
)

// TestClientExitCodes: 2 for what the command line got wrong, 1 for what the cluster did not do (spec 5.3).
func TestClientExitCodes(t *testing.T) {
	t.Setenv("DROVER_ADDRESS", "")
	t.Setenv("DROVER_TOKEN", "")
	n := &httpapitest.Node{}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	broken := httptest.NewServer(httpapi.New(config.Default().HTTP, &httpapitest.Node{Err: sharding.ErrUnavailable}, "v1", slog.New(slog.DiscardHandler)))
	defer broken.Close()
	for _, tc := range []struct {
		line string
		code int
	}{
		{"cluster members --address " + server.URL, 0},
		{"cluster members --address " + strings.TrimPrefix(server.URL, "http://"), 0},
		{"cluster members --address " + broken.URL, 1},
		{"cluster members --address 127.0.0.1:1", 1},
		{"cluster members --address x://y", 2},
		{"cluster members --address http://user@127.0.0.1:1", 2},
		{"cluster members --token é --address " + server.URL, 2},
		{"cluster forget --address " + server.URL, 2},
		{"cluster forget a --address " + server.URL, 1},
		{"cluster nope", 2},
		{"cluster drain b --wait 1s --undo", 2},
		{"entity ask counter " + strings.Repeat("x", 1024) + " {} --address " + server.URL, 0},
		{"entity ask counter " + strings.Repeat("x", 1025) + " {}", 2},
		{"entity ask counter a {", 2},
		{"entity ask counter a -", 2},
		{"entity ask counter a {} --timeout 1h", 2},
		{"entity ask nope a {} --address " + server.URL, 1},
		{"entity tell counter a {} --address " + broken.URL, 1},
		{"strategy swap counter", 2},
		{"strategy swap counter builtin:nope", 2},
		{"strategy swap counter sha256:1", 2},
		{"strategy swap counter builtin:hash --strategy-config 1", 2},
		{"strategy swap counter builtin:hash --address " + broken.URL, 1},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(tc.line), strings.NewReader(`"`+strings.Repeat("x", 5<<20)+`"`), &out, &errs)
		assert.Equal(t, tc.code, code, "drover %s\n%s", tc.line, errs.String())
		assert.Equal(t, code == 0, errs.Len() == 0, "drover %s: stderr %q", tc.line, errs.String())
		assert.NotContains(t, errs.String(), "goroutine")
	}
}

// Every way in which a node can say no ends in exit code 1 with what is the matter, its kind, and a next step (spec 5.3). Only an entity's own words stand
// alone.
func TestEveryProblemEndsInOne(t *testing.T) {
	kinds := []httpapi.Kind{httpapi.KindBadRequest, httpapi.KindBadEntityID, httpapi.KindBadMessage, httpapi.KindUnauthorized, httpapi.KindForbidden, httpapi.KindForeignOrigin,
		httpapi.KindNotFound, httpapi.KindUnknownType, httpapi.KindUnknownNode, httpapi.KindUnknownShard, httpapi.KindUnknownModule, httpapi.KindMethodNotAllowed, httpapi.KindConflict,
		httpapi.KindTooLarge, httpapi.KindEntityError, httpapi.KindRefusedStrategy, httpapi.KindUnavailable, httpapi.KindLeft, httpapi.KindUnknownOutcome, httpapi.KindNotYet, httpapi.KindInternal}
	for _, k := range kinds {
		server := httptest.NewServer(httpapi.New(config.Default().HTTP, &httpapitest.Node{Err: &httpapi.Problem{Kind: k, Detail: "what is the matter"}}, "v1", slog.New(slog.DiscardHandler)))
		for _, line := range []string{"cluster members", "cluster drain b", "cluster pause --json", "shard pin counter 1 a", "strategy list", "strategy swap counter builtin:hash", "entity ask counter a {}", "entity tell counter a {}"} {
			var out, errs bytes.Buffer
			code := run(append(strings.Fields(line), "--address", server.URL), strings.NewReader(""), &out, &errs)
			assert.Equal(t, 1, code, "%s: %s", k, line)
			assert.Empty(t, out.String(), "%s: %s", k, line)
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			assert.Regexp(t, `^drover: what is the matter \([A-Z].+\)$`, lines[0])
			if k == httpapi.KindEntityError {
				assert.Len(t, lines, 1, "%s: %s", k, line)
			} else if assert.Len(t, lines, 2, "%s: %s", k, line) {
				assert.Regexp(t, `^hint: .+`, lines[1], "%s: %s", k, line)
			}
		}
		server.Close()
	}
}

// TestCommandsReachTheNode: each command asks the node for exactly what its line says (spec 5.3).
func TestCommandsReachTheNode(t *testing.T) {
	n := &httpapitest.Node{}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	drover := func(line ...string) {
		var out, errs bytes.Buffer
		code := run(append(line, "--address", server.URL), strings.NewReader(""), &out, &errs)
		assert.Equal(t, 0, code, "drover %s\n%s", line, errs.String())
	}
	for line, call := range map[string]string{
		"cluster drain": "drain  true", "cluster drain b": "drain b true", "cluster drain b --undo": "drain b false", "cluster drain --undo": "drain  false",
		"cluster leave": "leave", "cluster forget c": "forget c", "cluster pause": "pause true", "cluster resume": "pause false",
		"shard move counter 3 b": "move counter 3 b", "shard pin counter 3 b": "pin counter 3 b", "shard unpin counter 3": "pin counter 3 ",
	} {
		before := len(n.Calls())
		drover(strings.Fields(line)...)
		assert.Equal(t, []string{call}, n.Calls()[before:], "drover %s", line)
	}

	drover("entity", "ask", "counter", "a/b", `{"add":2}`, "--idempotency-key", "k1")
	drover("entity", "tell", "counter", "a/b", `{"add":3}`, "--idempotency-key", "k1")
	drover("entity", "tell", "counter", "c", `{"add":4}`)
	told := n.Told()
	require.Len(t, told, 3)
	assert.Equal(t, "\x01"+`{"add":2}`, string(told[0].Payload))
	assert.Equal(t, "\x01"+`{"add":3}`, string(told[1].Payload))
	assert.Equal(t, "a/b", told[1].Entity)
	assert.False(t, told[0].Command.Client.IsZero())
	assert.Equal(t, told[0].Command, told[1].Command, "one key is one command")
	assert.Zero(t, told[2].Command)

	drover("strategy", "swap", "counter", "builtin:hash", "--strategy-config", `{"a":1}`, "--fuel", "20000", "--budget", "50ms", "--memory", "1MiB", "--max-failures", "2", "--moves-per-pass", "9")
	drover("strategy", "swap", "counter", "builtin:hash")
	drover("strategy", "shadow", "counter", "sha256:"+strings.Repeat("ab", 32))
	drover("strategy", "swap", "counter", "--budget", "50ms")
	own := filepath.Join(t.TempDir(), "own.wasm")
	require.NoError(t, os.WriteFile(own, []byte("\x00asm"), 0o600))
	drover("strategy", "swap", "counter", own)
	swaps := n.Swaps()
	require.Len(t, swaps, 5)
	assert.Equal(t, httpapi.SwapRequest{Type: "counter", Module: []byte("\x00asm"), Source: "own.wasm"}, swaps[4])
	hash, _, _ := strategies.Builtin("hash")
	assert.Equal(t, hash, swaps[0].Module)
	assert.JSONEq(t, `{"a":1}`, string(swaps[0].Config))
	l := swaps[0].Limits
	require.NotNil(t, l)
	assert.Equal(t, []any{uint64(20000), int64(50), uint64(1 << 20), uint32(2), uint32(9)}, []any{*l.Fuel, *l.BudgetMillis, *l.Memory, *l.MaxFailures, *l.MovesPerPass})
	assert.Equal(t, httpapi.SwapRequest{Type: "counter", Module: hash, Source: "builtin:hash"}, swaps[1])
	assert.True(t, swaps[2].Shadow)
	assert.Equal(t, byte(0xab), swaps[2].Digest[31])
	assert.Nil(t, swaps[2].Module)
	ms := int64(50)
	assert.Equal(t, httpapi.SwapRequest{Type: "counter", Limits: &httpapi.Limits{BudgetMillis: &ms}}, swaps[3])
}

// TestAskTimeout: the node is told how long to wait, and that is how long it does.
func TestAskTimeout(t *testing.T) {
	var left time.Duration
	n := &httpapitest.Node{OnAsk: func(ctx context.Context, _ httpapi.Message) ([]byte, error) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return nil, context.DeadlineExceeded
	}}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	var out, errs bytes.Buffer
	assert.Equal(t, 1, run([]string{"entity", "ask", "counter", "a", "{}", "--timeout", "4m", "--address", server.URL}, strings.NewReader(""), &out, &errs))
	assert.Contains(t, errs.String(), `drover: "a" answered not within 4m0s; the message may have been handled`)
	assert.InDelta(t, 4*time.Minute, left, float64(time.Minute))
}

// rude is a cluster in which everything that others choose is meant to steer a terminal, or to look like lines of the command's own.
type rude struct{ *httpapitest.Node }

const escape = "\x1b[2Jx\u009b2J\r\nok\t\x7f"

func (rude) Members(context.Context) (httpapi.MembersView, error) {
	return httpapi.MembersView{Members: []httpapi.MemberView{{Name: escape, Address: escape, State: escape, Roles: []string{escape}, Zone: escape, Version: escape}}}, nil
}

func (rude) Leader() (httpapi.LeaderView, bool) {
	return httpapi.LeaderView{Name: escape, Address: escape}, true
}

func (rude) Shards(_ context.Context, t sharding.TypeName) (httpapi.ShardsView, error) {
	return httpapi.ShardsView{Type: escape, NumShards: 1, Shards: []httpapi.ShardView{{Node: escape, State: escape}}, Regions: []httpapi.RegionView{{Node: escape}}}, nil
}

func (rude) Explain(context.Context, sharding.TypeName, sharding.ShardID) (httpapi.ExplainView, error) {
	return httpapi.ExplainView{Type: escape, Node: escape, State: escape, Pinned: escape, Cause: escape, Reason: escape, Digest: escape, Verdict: escape, Record: escape}, nil
}

var rudeStrategy = httpapi.StrategyView{Type: escape, Name: escape, Source: escape, Digest: escape, State: escape, LastFailure: &httpapi.FailureView{Source: escape, Verdict: escape, Text: escape}}

func (rude) Strategies(context.Context) (httpapi.StrategiesView, error) {
	return httpapi.StrategiesView{Strategies: []httpapi.StrategyView{rudeStrategy}}, nil
}

func (rude) Swap(context.Context, httpapi.SwapRequest) (httpapi.SwapView, error) {
	return httpapi.SwapView{StrategyView: rudeStrategy, Warnings: []httpapi.Finding{{Rule: escape, Message: escape, Fix: escape}}}, nil
}

// TestTerminals: names, zones and reasons come from other nodes and from strategies, and do not steer a terminal (spec 5.2).
func TestTerminals(t *testing.T) {
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, rude{&httpapitest.Node{}}, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	for line, lines := range map[string]int{
		"cluster members": 2, "cluster leader": 1, "cluster shards": 4, "cluster shards --list": 2, "shard explain counter 0": 7,
		"strategy list": 3, "strategy swap counter builtin:hash": 3, "strategy swap counter builtin:hash --wait 1ms": 4,
	} {
		var out, errs bytes.Buffer
		run(append(strings.Fields(line), "--address", server.URL), strings.NewReader(""), &out, &errs)
		text := out.String() + errs.String()
		assert.Contains(t, text, "[2Jx", line)
		assert.Equal(t, lines, strings.Count(text, "\n"), "%s: %q", line, text)
		assert.NotContains(t, strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\n' {
				return '!'
			}
			return r
		}, text), "!", line)
	}
}

// TestDrainWaits: what --wait says when its time is up, also where the node does not tell (spec 5.3).
func TestDrainWaits(t *testing.T) {
	hang := make(chan struct{})
	answers := httpapi.New(config.Default().HTTP, &httpapitest.Node{}, "v1", slog.New(slog.DiscardHandler))
	for want, silent := range map[string]int64{
		"drover: how many shards b still holds was not told within 300ms; the drain goes on\nhint: see where they are: drover cluster shards\n": 1,
		"drover: b still holds 1 shard after 300ms; the drain goes on\nhint: see where they are: drover cluster shards\n":                       2,
	} {
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && asked.Add(1) >= silent {
				select {
				case <-hang:
				case <-r.Context().Done():
				}
				return
			}
			answers.ServeHTTP(w, r)
		}))
		var out, errs bytes.Buffer
		code := run([]string{"cluster", "drain", "b", "--wait", "300ms", "--address", server.URL}, strings.NewReader(""), &out, &errs)
		server.Close()
		assert.Equal(t, 1, code)
		assert.Equal(t, want, errs.String())
	}
	close(hang)
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		n, most int
		want    string
	}{
		{0, 0, "0"}, {0, 5, "0"}, {5, 5, strings.Repeat("█", 40) + " 5"}, {1, 320, "▏ 1"}, {33, 34, strings.Repeat("█", 38) + "▊ 33"},
	} {
		assert.Equal(t, tc.want, bar(tc.n, tc.most))
	}
}

func TestExplanationOfAShardWithoutAHome(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, printExplanation(&b, httpapi.ExplainView{Type: "counter", Shard: 3, State: "unassigned", Pinned: "b"}))
	assert.Equal(t, "counter 3: without a home (unassigned), epoch 0\n  pinned to  b\n", b.String())
}

// Every word is one that can be typed here: a hint with paths and queries is HTTP's (spec 5.3).
func TestHintsOfTheCommandLine(t *testing.T) {
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, &httpapitest.Node{Known: []sharding.TypeName{"account", "counter"}}, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	for want, line := range map[string][]string{
		"hint: name one: drover cluster shards account\n": {"cluster", "shards"},
		"hint: run 'drover cluster forget --help'\n":      {"cluster", "forget", ""},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, 1, run(append(line, "--address", server.URL), strings.NewReader(""), &out, &errs), line)
		assert.Contains(t, errs.String(), want)
		assert.NotContains(t, errs.String(), "?")
	}
}

func TestUnits(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1k", 81_234: "81.2k", 1234: "1.2k", 999_999: "1000k", 500_000_000: "500M", 2_000_000_000: "2G"} {
		assert.Equal(t, want, units(&n))
	}
	assert.Equal(t, "-", units(nil))
}
