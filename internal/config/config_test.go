package config

import (
	"encoding/base64"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/strategies"
)

// The names are repeated because a configuration can be checked without anything that it configures.
func TestBuiltinsAreThoseOfTheBinary(t *testing.T) {
	require.Equal(t, strategies.Names(), Builtins)
}

// Likewise the most shards of a type, which the coordinator, the regions and the codec go by.
func TestShardsAreThoseOfTheCluster(t *testing.T) {
	for _, table := range tables {
		for _, k := range table.keys {
			if k.name == "shards" {
				require.EqualValues(t, sharding.MaxShards, k.max)
				return
			}
		}
	}
	require.Fail(t, "there is no key shards")
}

var update = flag.Bool("update", false, "rewrite node.toml and docs/config.md from the key table")

func host() (string, error) { return "host-1", nil }

func load(t *testing.T, doc string, set ...string) *Config {
	t.Helper()
	c, err := Load(Options{File: "node.toml", Data: []byte(doc), Set: set, Hostname: host})
	require.NoError(t, err)
	return c
}

// shipped is the path of a file of the project.
func shipped(name string) string { return filepath.Join("..", "..", name) }

// TestShippedFile: the shipped node.toml is the key table written down, and says nothing but the defaults (spec 5.1).
func TestShippedFile(t *testing.T) {
	if *update {
		require.NoError(t, os.WriteFile(shipped("node.toml"), []byte(Sample()), 0o644))
	}
	data, err := os.ReadFile(shipped("node.toml"))
	require.NoError(t, err)
	assert.Equal(t, Sample(), string(data), "run go test ./internal/config -update")

	want := Default()
	want.Name = "host-1"
	counter := DefaultType()
	counter.Name, counter.Entity, counter.Strategy = "counter", "counter", "builtin:leastshard"
	counter.Config = map[string]any{"threshold": int64(1), "max_moves": int64(3)}
	want.Types = []Type{counter}
	assert.Equal(t, want, load(t, string(data)))

	// Every key is there, set or commented out, below a comment.
	lines := strings.Split(string(data), "\n")
	for _, table := range tables {
		for _, k := range table.keys {
			if isTable(k.field(sampleConfig(), 0)) {
				continue
			}
			found := 0
			for i, line := range lines {
				if strings.HasPrefix(strings.TrimPrefix(line, "# "), k.name+" = ") && i > 0 && strings.HasPrefix(lines[i-1], "# ") {
					found++
				}
			}
			assert.Positive(t, found, "%s.%s", table.name, k.name)
		}
	}
}

func sampleConfig() *Config {
	c := Default()
	c.Types, c.Routers = []Type{DefaultType()}, []Router{DefaultRouter()}
	return c
}

// TestReference holds docs/config.md against the key table.
func TestReference(t *testing.T) {
	path := shipped("docs/config.md")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	const begin, end = "<!-- keys -->\n", "<!-- end of keys -->\n"
	head, rest, ok := strings.Cut(string(data), begin)
	require.True(t, ok, "no %q", begin)
	have, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, "no %q", end)
	want := "\n" + Reference() + "\n"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(head+begin+want+end+tail), 0o644))
		return
	}
	assert.Equal(t, want, have, "run go test ./internal/config -update")
}

func TestEveryKeyIsExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range tables {
		assert.NotEmpty(t, table.doc, table.name)
		for _, k := range table.keys {
			path := table.name + "." + k.name
			assert.False(t, seen[path], path)
			seen[path] = true
			assert.True(t, strings.HasSuffix(k.doc, "."), "%s: %q", path, k.doc)
			assert.NotPanics(t, func() { formatField(k.field(sampleConfig(), 0)) }, path)
			if strings.Contains(k.doc, "Not available yet") {
				assert.NotEmpty(t, k.notYet, path)
			}
			if k.notYet != "" {
				assert.Contains(t, table.doc+k.doc, "ot available yet", path)
			}
			if k.max != 0 && k.notYet == "" && table.notYet == "" {
				assert.Contains(t, k.doc, bounds(k.field(sampleConfig(), 0), k.min, k.max), path)
			}
		}
	}
}

// TestLayers: defaults < file < environment < flag (spec 5.1).
func TestLayers(t *testing.T) {
	doc := "zone = \"file\"\n[gossip]\nbind = \"127.0.0.1:1001\"\n[http]\naddress = \"127.0.0.1:1003\"\n[[type]]\nname = \"counter\"\nentity = \"counter\"\n"
	c, err := Load(Options{
		File: "node.toml", Data: []byte(doc), Hostname: host,
		Env: []string{
			"PATH=/bin", "DROVER_ADDRESS=http://elsewhere", "DROVER_TOKEN=secret", "DROVER_ZONE=", // not a node's, or empty
			"DROVER_GOSSIP_BIND=127.0.0.1:2001", "DROVER_HTTP_ADDRESS=127.0.0.1:2003", "DROVER_GOSSIP_JOIN=10.0.0.1:1, [::1]:2",
			"DROVER_CAPACITY=250", "DROVER_TRANSPORT_INSECURE_BIND=true", "DROVER_TYPE_COUNTER_STRATEGY=builtin:rendezvous",
			"DROVER_PORT=tcp://10.0.0.1:7946", "DROVER_SERVICE_HOST=10.0.0.1", "DROVER_HTTP_PORT_8080_TCP_ADDR=10.0.0.2", // Kubernetes
			"DROVER_GOSSIP_BIN=x", `DROVER_TAGS={ row = "2" }`,
		},
		Set: []string{"http.address=127.0.0.1:3003", "name=7", `type.counter.config={ a = 1 }`, "type.counter.config.b.c=1979-05-27", "tags.rack=r7"},
	})
	require.NoError(t, err)
	assert.Equal(t, "drover", c.Cluster, "default")
	assert.Equal(t, "file", c.Zone, "file; an empty variable is not set")
	assert.Equal(t, "127.0.0.1:2001", c.Gossip.Bind, "environment over file")
	assert.Equal(t, "127.0.0.1:3003", c.HTTP.Address, "flag over environment")
	assert.Equal(t, []string{"10.0.0.1:1", "[::1]:2"}, c.Gossip.Join)
	assert.Equal(t, 250, c.Capacity)
	assert.True(t, c.Transport.InsecureBind)
	assert.Equal(t, "7", c.Name, "a text may look like a number")
	assert.Equal(t, map[string]string{"rack": "r7", "row": "2"}, c.Tags)
	assert.Equal(t, "builtin:rendezvous", c.Types[0].Strategy)
	assert.Equal(t, map[string]any{"a": int64(1), "b": map[string]any{"c": "1979-05-27"}}, c.Types[0].Config)
	assert.Equal(t, []string{`DROVER_GOSSIP_BIN is set and names no key of node.toml (did you mean "DROVER_GOSSIP_BIND"?)`}, c.Warnings())
}

// TestSetValues: --set takes TOML values or bare words (spec 5.1).
func TestSetValues(t *testing.T) {
	for _, tc := range []struct {
		set  string
		get  func(c *Config) any
		want any
	}{
		{"name=b", func(c *Config) any { return c.Name }, "b"},
		{`name="b"`, func(c *Config) any { return c.Name }, "b"},
		{"zone=true", func(c *Config) any { return c.Zone }, "true"},
		{"zone=a=b", func(c *Config) any { return c.Zone }, "a=b"},
		{`zone="a`, func(c *Config) any { return c.Zone }, `"a`},
		{"zone = spaced ", func(c *Config) any { return c.Zone }, "spaced"},
		{"zone=", func(c *Config) any { return c.Zone }, ""},
		{`gossip.join=["127.0.0.1:7946"]`, func(c *Config) any { return c.Gossip.Join }, []string{"127.0.0.1:7946"}},
		{"gossip.join=127.0.0.1:7946", func(c *Config) any { return c.Gossip.Join }, []string{"127.0.0.1:7946"}},
		{"gossip.join=[]", func(c *Config) any { return c.Gossip.Join }, []string(nil)},
		{"roles=compute,cache", func(c *Config) any { return c.Roles }, []string{"compute", "cache"}},
		{"sharding.lease_ttl=2s", func(c *Config) any { return c.Sharding.LeaseTTL }, 2 * time.Second},
		{`http={address="127.0.0.1:9", max_body="2MiB"}`, func(c *Config) any { return c.HTTP.MaxBody }, 2 * MiB},
		{`"zone"=x`, func(c *Config) any { return c.Zone }, "x"},
		{"type.counter.shards=7", func(c *Config) any { return c.Types[0].Shards }, 7},
		{`type.counter.config.note=hello world`, func(c *Config) any { return c.Types[0].Config["note"] }, "hello world"},
		{`tags={a="1"}`, func(c *Config) any { return c.Tags }, map[string]string{"a": "1"}},
		{`type=[{name="x", entity="counter"}]`, func(c *Config) any { return c.Types[0].Name }, "x"},
	} {
		assert.Equal(t, tc.want, tc.get(load(t, Sample(), tc.set)), tc.set)
	}
}

// TestTypeConfig: [type.config] is any TOML, dates become text (spec 1.1), and everything in it can be CBOR.
func TestTypeConfig(t *testing.T) {
	c := load(t, `
[[type]]
name = "a"
entity = "counter"
[type.config]
int = 1
float = 2.0
huge = inf
on = true
when = 1979-05-27T07:32:00.5Z
local = 1979-05-27T07:32:00
day = 1979-05-27
clock = 07:32:00
list = [1, "two", [3.5]]
"odd key" = { nested = [{ x = 1 }, { x = 2 }] }
[[type.config.rules]]
zone = "z1"
`)
	assert.Equal(t, map[string]any{
		"int": int64(1), "float": 2.0, "huge": math.Inf(1), "on": true,
		"when": "1979-05-27T07:32:00.5Z", "local": "1979-05-27T07:32:00", "day": "1979-05-27", "clock": "07:32:00",
		"list":    []any{int64(1), "two", []any{3.5}},
		"odd key": map[string]any{"nested": []any{map[string]any{"x": int64(1)}, map[string]any{"x": int64(2)}}},
		"rules":   []any{map[string]any{"zone": "z1"}},
	}, c.Types[0].Config)
}

// TestShow: what is shown reads back to the same configuration, secrets apart (spec 5.1).
func TestShow(t *testing.T) {
	key := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))
	const admin, read = "admin-token-of-20-ch", "read-token-of-19-ch"
	c := load(t, Sample(), "gossip.keys="+key, "http.tokens.admin="+admin, "http.tokens.read="+read, "zone=a \"b\"\\\u00e9",
		`tags={"odd.key"="x"}`, `type.counter.config={a=[1,{b=inf}], "c d"=1.0, e={}}`, "sharding.settle=90s", "sharding.buffer_bytes=1500kB")
	shown := c.Show()
	for _, secret := range []string{key, admin, read} {
		assert.NotContains(t, shown, secret)
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, c.HTTP.AdminToken), secret)
		assert.NotContains(t, fmt.Sprint(c.Tree()), secret)
	}
	assert.Contains(t, shown, `keys = [] # set, not shown`)
	assert.Contains(t, shown, `tokens.admin = "" # set, not shown`)
	assert.Contains(t, shown, `settle = "1m30s"`)

	back := load(t, shown)
	c.Gossip.Keys, c.HTTP.AdminToken, c.HTTP.ReadToken = nil, "", ""
	assert.Equal(t, c, back)
	assert.Equal(t, strings.ReplaceAll(shown, " # set, not shown", ""), back.Show())
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0B": 0, "1B": 1, "1kB": 1000, "64MiB": 64 * MiB, "3 GiB": 3 * GiB, "1TB": 1e12} {
		have, err := ParseBytes(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, have, text)
		again, err := ParseBytes(have.String())
		require.NoError(t, err, have.String())
		assert.Equal(t, want, again, have.String())
	}
	for _, text := range []string{"", "64", "MiB", "-1MiB", "1.5MiB", "9999999999TiB", "1mib", "1MiB/s", "+1MiB"} {
		_, err := ParseBytes(text)
		assert.Error(t, err, text)
	}
	rate, err := ParseRate("100MiB/s")
	require.NoError(t, err)
	assert.Equal(t, "100MiB/s", rate.String())
	_, err = ParseRate("100MiB")
	assert.Error(t, err)
}

// TestTagBytes: the sizes that Serf 0.11 gives these maps, taken from its own encoder.
func TestTagBytes(t *testing.T) {
	assert.Equal(t, 2, TagBytes(nil))
	assert.Equal(t, 2+2+2, TagBytes(map[string]string{"a": "b"}))
	assert.Equal(t, 36, TagBytes(map[string]string{"a": strings.Repeat("x", 31)}))
	assert.Equal(t, 307, TagBytes(map[string]string{"a": strings.Repeat("x", 300)}))
	assert.Equal(t, 2+2+3+32, TagBytes(map[string]string{"a": strings.Repeat("x", 32)}))
	many := map[string]string{}
	for i := range 16 {
		many[fmt.Sprintf("%x", i)] = ""
	}
	assert.Equal(t, 4+16*3, TagBytes(many))

	full := map[string]string{"a": strings.Repeat("x", TagLimit-2-2-3)}
	assert.Equal(t, TagLimit, TagBytes(full))
}

func TestLogLevel(t *testing.T) {
	assert.Equal(t, "WARN", LevelWarn.Level().String())
	assert.Equal(t, "DEBUG", LevelDebug.Level().String())
	assert.Equal(t, "ERROR", LevelError.Level().String())
	assert.Equal(t, "INFO", LevelInfo.Level().String())
}
