package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
)

// shape is what a JSON value is made of, without its values: objects with their keys in order, the elements of a list merged.
type shape struct {
	keys     []string
	children map[string]*shape
	isObject bool
	isList   bool
	element  *shape
}

func (s *shape) read(t *testing.T, d *json.Decoder) {
	token, err := d.Token()
	require.NoError(t, err)
	switch token {
	case json.Delim('{'):
		s.isObject = true
		for d.More() {
			key, err := d.Token()
			require.NoError(t, err)
			name := key.(string)
			if s.children[name] == nil {
				if s.children == nil {
					s.children = map[string]*shape{}
				}
				s.keys, s.children[name] = append(s.keys, name), &shape{}
			}
			s.children[name].read(t, d)
		}
		_, err = d.Token()
	case json.Delim('['):
		s.isList = true
		if s.element == nil {
			s.element = &shape{}
		}
		for d.More() {
			s.element.read(t, d)
		}
		_, err = d.Token()
	}
	require.NoError(t, err)
}

func (s *shape) String() string {
	switch {
	case s.isList:
		return "[" + s.element.String() + "]"
	case s.isObject:
		var parts []string
		for _, k := range s.keys {
			part := `"` + k + `"`
			if inner := s.children[k].String(); inner != "" {
				part += ":" + inner
			}
			parts = append(parts, part)
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return ""
}

// full is a cluster that tells everything that there is to tell.
type full struct{ *httpapitest.Node }

func (full) Explain(_ context.Context, t sharding.TypeName, s sharding.ShardID) (httpapi.ExplainView, error) {
	return httpapi.ExplainView{Type: t, Shard: s, Node: "a", Epoch: 7, State: "homed", Pinned: "a", Cause: "rebalance", Reason: "r", Strategy: "mine.wasm", Digest: "sha256:1", Verdict: "ok", Record: "sha256:2", Pass: 9}, nil
}

func (f full) Strategies(ctx context.Context) (httpapi.StrategiesView, error) {
	v, err := f.Node.Strategies(ctx)
	fill(&v.Strategies[0])
	return v, err
}

func fill(v *httpapi.StrategyView) {
	v.LastFailure, v.Previous = &httpapi.FailureView{Digest: "sha256:1", Verdict: "trap"}, &httpapi.PreviousView{Digest: "sha256:2"}
	if v.Shadow != nil {
		s := *v.Shadow
		s.LastFailure = v.LastFailure
		v.Shadow = &s
	}
}

func (f full) Promote(ctx context.Context, t sharding.TypeName, d *[32]byte) (httpapi.StrategyView, error) {
	v, err := f.Node.Promote(ctx, t, d)
	fill(&v)
	return v, err
}

func (f full) Rollback(ctx context.Context, t sharding.TypeName, d *[32]byte) (httpapi.StrategyView, error) {
	v, err := f.Node.Rollback(ctx, t, d)
	fill(&v)
	return v, err
}

func (f full) Swap(ctx context.Context, r httpapi.SwapRequest) (httpapi.SwapView, error) {
	v, err := f.Node.Swap(ctx, r)
	fill(&v.StrategyView)
	v.Warnings = []httpapi.Finding{{Rule: "config-unknown-key"}}
	return v, err
}

// TestJSONIsDocumented holds the table of docs/cli.md against what --json prints: scripts rely on the names (spec 5.3, 1.6).
func TestJSONIsDocumented(t *testing.T) {
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, full{&httpapitest.Node{}}, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	input := file("in.json", `{"nodes":["a","b"],"owners":["a","a",null,"b"]}`)
	scenarios := file("scenario.toml", "nodes = 2\ncounts = [1, 1]\nop = \"rebalance\"\nexpect = { moved = [1] }\n")
	bad := file("bad.toml", "zon = 1\n[telemetry]\nendpoint = \"x:1\"\n")
	fixture := filepath.Join("..", "..", "host", "testdata", "admission", "feature-simd.wasm")
	live := []string{"--address", server.URL}
	data, recs := dataDir(t)
	doctored := *recs[0]
	doctored.Pages++
	write(t, data, &doctored)
	asked := t.TempDir()
	uneven := `{"nodes":["a","b","c"],"owners":["a","a","a","a","b","c"]}`
	write(t, asked, ask(t, "hash", pluginapi.OpRebalance, host.Limits{}, uneven), ask(t, "hash", pluginapi.OpAllocate, host.Limits{}, `{"nodes":["a","b"],"owners":["a",null]}`, 1, 0))
	at := func(args ...string) []string { return append(args, live...) }
	lines := map[string][][]string{
		"version":           {{}},
		"config check":      {{bad, "--set", "gosip=1"}, {"../../node.toml", "--set", "name=a"}},
		"cluster members":   {live},
		"cluster leader":    {live},
		"cluster shards":    {live, at("--list")},
		"cluster drain":     {live},
		"cluster leave":     {live},
		"cluster forget":    {at("c")},
		"cluster pause":     {live},
		"cluster resume":    {live},
		"shard explain":     {at("counter", "1")},
		"shard move":        {at("counter", "1", "b")},
		"shard pin":         {at("counter", "1", "b")},
		"shard unpin":       {at("counter", "1")},
		"strategy check":    {{fixture}, {"builtin:hash"}},
		"strategy describe": {{"builtin:leastshard"}},
		"strategy run":      {{"builtin:hash", "--op", "rebalance", "--input", input}, {"builtin:hash", "--op", "allocate", "--input", input}},
		"strategy test":     {{"builtin:hash", scenarios}},
		"strategy bench":    {{"builtin:hash", "--shards", "10", "--nodes", "2", "--repeat", "1", "--budget", "1m"}},
		"strategy profile":  {{filepath.Join("..", "..", "host", "testdata", "guests", "leastshard.wasm"), "--op", "rebalance", "--input", input}},
		"strategy backtest": {{asked, "builtin:leastshard"}},
		"strategy replay":   {{data}, {data, "--list"}, {data, "--export", filepath.Join(dir, "calls.rec")}},
		"strategy list":     {live},
		"strategy swap":     {at("counter", "builtin:hash")},
		"strategy shadow":   {at("counter", "builtin:hash"), at("counter")},
		"strategy promote":  {at("counter")}, // the shadow of the line before
		"strategy rollback": {at("counter")},
		"entity tell":       {at("counter", "a", "{}")},
		"tls ca":            {{"--out", dir}},
		"tls cert":          {{"--ca", dir, "--name", "a"}},
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	require.NoError(t, err)
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| `(\\{.*\\})` \\|$").FindAllStringSubmatch(string(doc), -1) {
		for command := range strings.SplitSeq(m[1], ", ") {
			command = strings.Trim(command, "`")
			rows = append(rows, command)
			require.NotEmpty(t, lines[command], "%s: give the test a command line", command)
			var got shape
			for _, line := range lines[command] {
				var out, errs bytes.Buffer
				run(append(append(strings.Fields(command), "--json"), line...), strings.NewReader(""), &out, &errs)
				if command != "strategy swap" && command != "strategy shadow" { // their warnings are on stderr too
					require.Empty(t, errs.String(), command)
				}
				text := out.String()
				if command == "strategy describe" { // the keys are the strategy's
					text = regexp.MustCompile(`"(threshold|max_moves|max_moves_share)": `).ReplaceAllString(text, `"KEY": `)
				}
				got.read(t, json.NewDecoder(strings.NewReader(text)))
			}
			assert.Equal(t, m[2], got.String(), command)
		}
	}
	own := []string{"config show", "entity ask"} // theirs is that of node.toml, and of the entity
	var without []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if name := strings.TrimPrefix(cmd.CommandPath(), "drover "); cmd.Flags().Lookup("json") != nil && !slices.Contains(own, name) {
			assert.Contains(t, rows, name, "add its JSON to docs/cli.md")
		} else if !cmd.HasSubCommands() && !slices.Contains(own, name) {
			without = append(without, name)
		}
	}
	walk(newRootCommand())
	assert.Equal(t, []string{"config example", "run"}, without, "docs/cli.md lists those without --json")
}
