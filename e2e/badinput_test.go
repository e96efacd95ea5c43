package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attempt runs a node that is expected to end by itself, and gives its exit code and what it wrote.
func attempt(t *testing.T, config string, set ...string) (code int, said string) {
	t.Helper()
	args := []string{"run", "--config", config}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	c := newCluster(t)
	n := &node{c: c, name: "attempt", dir: t.TempDir()}
	c.nodes = append(c.nodes, n)
	n.spawn(exec.Command(drover, args...))
	return n.awaitEnd(), n.log()
}

// free gives settings of a node whose ports collide with nobody's.
func free(t *testing.T, set ...string) []string {
	return append([]string{"name=x", "data_dir=" + filepath.Join(t.TempDir(), "data"), "gossip.bind=127.0.0.1:0", "transport.bind=127.0.0.1:0", "http.address=127.0.0.1:0"}, set...)
}

// oneError judges what a failed start said: one error that names the thing, a next step, and nothing that only a programmer can read.
func oneError(t *testing.T, said string, names ...string) {
	t.Helper()
	var errs []string
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "drover: ") {
			errs = append(errs, strings.TrimSpace(line))
		}
	}
	require.Len(t, errs, 1, "errors in:\n%s", said)
	for _, n := range names {
		require.Contains(t, said, n)
	}
	for _, never := range []string{"goroutine ", "panic", "0xc0", "runtime."} {
		require.NotContains(t, said, never)
	}
}

func occupied(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// What a user gets wrong at the start (issue 2, "Bad input"): one clear error each, and the exit code for it.
func TestBadStarts(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	shipped, err := os.ReadFile(shippedConfig)
	require.NoError(t, err)
	busy := occupied(t)
	notDir := file("not-a-directory", "x")
	for name, c := range map[string]struct {
		config string
		set    []string
		code   int
		names  []string
	}{
		"unknown key":                {file("unknown.toml", "[gossip]\nbnid = \"127.0.0.1:1\"\n"), nil, 2, []string{"unknown.toml:2:1", "bnid", "bind"}},
		"wrong type":                 {file("type.toml", "name = 7\n"), nil, 2, []string{"type.toml:1:", "name"}},
		"unknown key in --set":       {shippedConfig, free(t, "sharding.setle=1s"), 2, []string{"setle", "settle"}},
		"no file":                    {filepath.Join(dir, "absent.toml"), nil, 2, []string{"absent.toml", "drover config example"}},
		"gossip port in use":         {shippedConfig, free(t, "gossip.bind="+busy), 1, []string{"gossip.bind", busy, "in use"}},
		"transport port in use":      {shippedConfig, free(t, "transport.bind="+busy), 1, []string{"transport", busy, "in use"}},
		"http port in use":           {shippedConfig, free(t, "http.address="+busy), 1, []string{"http.address", busy, "in use"}},
		"strategy is no wasm":        {shippedConfig, free(t, "type.counter.strategy="+file("text.wasm", "hello")), 2, []string{"text.wasm", "counter"}},
		"strategy is none":           {shippedConfig, free(t, "type.counter.strategy="+file("empty.wasm", "\x00asm\x01\x00\x00\x00")), 2, []string{"empty.wasm", "drover_abi_v1"}},
		"strategy is not there":      {shippedConfig, free(t, "type.counter.strategy="+filepath.Join(dir, "gone.wasm")), 2, []string{"gone.wasm"}},
		"entity that nobody has":     {file("entity.toml", strings.Replace(string(shipped), `entity = "counter"`, `entity = "abacus"`, 1)), free(t), 2, []string{"abacus", "counter"}},
		"data_dir is no directory":   {shippedConfig, append(free(t), "data_dir="+filepath.Join(notDir, "data")), 1, []string{"data_dir", "not-a-directory"}},
		"data_dir cannot be written": {shippedConfig, append(free(t), "data_dir=/proc/drover"), 1, []string{"data_dir", "/proc/drover"}},
		"join without an address":    {shippedConfig, free(t, `gossip.join=["nowhere"]`), 2, []string{"gossip.join", "nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := attempt(t, c.config, c.set...)
			require.Equal(t, c.code, code, "exit code; it said:\n%s", said)
			oneError(t, said, c.names...)
		})
	}
}

// A disk that is full, or fills, ends the start with an error that says so, and what was there before is still there afterwards.
func TestFullDisk(t *testing.T) {
	c := newCluster(t)
	n := c.start("a")[0]
	id := n.awaitClusterID()
	n.terminate()
	// A limit on the size of files is a full disk to whoever writes: it works for root too, and needs no mount.
	n.spawn(exec.Command("sh", append([]string{"-c", `(trap '' XFSZ; ulimit -f 0; exec "$0" "$@") 2>&1 | cat`, drover}, n.args()...)...))
	n.awaitEnd()
	said := n.log()
	oneError(t, said, "data_dir", n.data(), "cannot be written", "file too large")
	n.start()
	n.awaitReady()
	require.Equal(t, id, n.awaitClusterID())
}

// What a user gets wrong towards a cluster that runs. Nothing of it does harm: the counter counts on.
func TestBadRequests(t *testing.T) {
	c := newCluster(t, append(quick, "http.max_body=4KiB")...)
	a := c.start("a")[0]
	touch(t, a, []string{"steady"})
	kilo := strings.Repeat("k", 1024)
	for name, id := range map[string]string{"slash": "a%2Fb", "dots": "..", "dot": ".", "escaped dots": "%2e%2e", "percent": "100%25", "1 KiB": kilo, "no text": "%ff%00"} {
		t.Run("id "+name, func(t *testing.T) {
			raw, err := rawPost(a, "/entities/counter/"+id, `{"add":1}`)
			require.NoError(t, err)
			require.Contains(t, raw, "200 OK", "spec 2.4: any bytes up to 1 KiB are an id")
		})
	}
	require.EqualValues(t, 2, a.valueOf("%2E%2E"), "escaped or not, it is the same entity")
	garbage := []byte("hello")
	empty := []byte("\x00asm\x01\x00\x00\x00")
	for name, r := range map[string]struct {
		method, path string
		body         []byte
		status       int
		kind         string
		names        []string
	}{
		"id of 1 025 bytes":      {"POST", "/entities/counter/" + kilo + "k", []byte(`{"add":1}`), 400, "bad-entity-id", []string{"1024", "1025"}},
		"empty id":               {"POST", "/entities/counter/", []byte(`{"add":1}`), 400, "bad-entity-id", nil},
		"type that nobody has":   {"POST", "/entities/abacus/x", []byte(`{"add":1}`), 404, "unknown-type", []string{"abacus", "counter"}},
		"body too large":         {"POST", "/entities/counter/x", fmt.Appendf(nil, `{"add":1,"pad":"%s"}`, strings.Repeat("p", 5000)), 413, "too-large", []string{"http.max_body"}},
		"no JSON":                {"POST", "/entities/counter/x", garbage, 400, "", nil},
		"no message":             {"POST", "/entities/counter/x", []byte(`{"subtract":1}`), 400, "bad-message", nil},
		"overflow":               {"POST", "/entities/counter/steady", []byte(`{"add":9223372036854775807}`), 422, "entity-error", []string{"int64"}},
		"swap to no wasm":        {"PUT", "/cluster/strategies/counter", append([]byte("\x00asm"), garbage...), 422, "refused-strategy", nil},
		"swap to no strategy":    {"PUT", "/cluster/strategies/counter", empty, 422, "refused-strategy", []string{"drover_abi_v1"}},
		"swap of no type":        {"PUT", "/cluster/strategies/abacus", empty, 404, "unknown-type", []string{"abacus"}},
		"digest that nobody has": {"PUT", "/cluster/strategies/counter", fmt.Appendf(nil, `{"digest":"sha256:%064d"}`, 7), 404, "unknown-module", nil},
		"no such path":           {"GET", "/cluster/weather", nil, 404, "not-found", []string{"/cluster/weather"}},
		"forget a stranger":      {"POST", "/cluster/forget?node=zoe", nil, 404, "unknown-node", []string{"zoe"}},
		"move to nobody":         {"POST", "/cluster/shards/counter/1/move?node=zoe", nil, 404, "unknown-node", []string{"zoe"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := a.do(r.method, r.path, r.body, nil)
			p, ok := errors.AsType[*problem](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, r.status, p.Status, p.Raw)
			if r.kind != "" {
				require.Equal(t, "urn:drover:problem:"+r.kind, p.Type, p.Raw)
			}
			require.NotEmpty(t, p.Detail, p.Raw)
			for _, n := range r.names {
				require.Contains(t, p.Raw, n)
			}
			require.NotContains(t, p.Raw, "goroutine")
		})
	}
	file := filepath.Join(t.TempDir(), "text.wasm")
	require.NoError(t, os.WriteFile(file, garbage, 0o600))
	swap := exec.Command(drover, "strategy", "swap", "counter", file, "--address", a.http)
	said, err := swap.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "not-wasm")
	require.Contains(t, string(said), "hint: ")
	require.EqualValues(t, 1, a.valueOf("steady"), "nothing is lost")
	a.awaitName("leastshard")
	require.NotContains(t, a.log(), "panic")
}

// rawPost sends a path as it stands: net/http would clean it on the way.
func rawPost(n *node, path, body string) (string, error) {
	conn, err := net.DialTimeout("tcp", n.http, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", path, n.http, len(body), body)
	var out strings.Builder
	buf := make([]byte, 4096)
	for {
		k, err := conn.Read(buf)
		out.Write(buf[:k])
		if err != nil {
			return out.String(), nil
		}
	}
}

// A node that does not belong: another cluster, another key, another number of shards (spec 2.1). Each ends with one error, and the cluster goes on.
func TestStrangers(t *testing.T) {
	key := func(b string) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(b, 32))) }
	c := newCluster(t, append(quick, "gossip.keys="+quoted([]string{key("a")}))...)
	a := c.start("a")[0]
	id := a.awaitClusterID()
	touch(t, a, []string{"steady"})

	other := newCluster(t, append(quick, "gossip.keys="+quoted([]string{key("a")}))...)
	o := other.start("o")[0]
	its := o.awaitClusterID()
	o.terminate()
	t.Run("of another cluster", func(t *testing.T) {
		o.join = []string{a.gossip}
		o.start()
		require.Equal(t, 2, o.awaitEnd(), o.log())
		oneError(t, o.log(), id, its, "gossip.join")
	})
	for name, r := range map[string]struct {
		set   []string
		code  int
		names []string
	}{
		"with another key":  {[]string{"gossip.keys=" + quoted([]string{key("b")})}, 2, []string{"gossip.keys", a.gossip}},
		"without a key":     {nil, 2, []string{"gossip.keys", a.gossip}},
		"with other shards": {[]string{"gossip.keys=" + quoted([]string{key("a")}), "type.counter.shards=64"}, 2, []string{"counter", "100", "64"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := attempt(t, shippedConfig, append(free(t, "gossip.join="+quoted([]string{a.gossip})), r.set...)...)
			require.Equal(t, r.code, code, said)
			oneError(t, said, r.names...)
		})
	}
	require.EqualValues(t, 1, a.valueOf("steady"))
	var l leader
	a.must(http.MethodGet, "/cluster/leader", nil, &l)
	require.Equal(t, "a", l.Name)
}
