package httpapi_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
	"github.com/droverhq/drover/sharding"
)

var update = flag.Bool("update", false, "write the golden files anew")

// open gives a server over a node, on the default configuration without tokens.
func open(t *testing.T, n *httpapitest.Node, change ...func(*config.HTTP)) *httpapi.Server {
	t.Helper()
	c := config.Default().HTTP
	for _, f := range change {
		f(&c)
	}
	return httpapi.New(c, n, "v1.2.3", slog.New(slog.DiscardHandler))
}

// send makes one request, as curl does it on the machine of the node.
func send(s http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// problem decodes an error and checks that it is well formed (spec 5.4).
func problem(t *testing.T, w *httptest.ResponseRecorder) httpapi.Body {
	t.Helper()
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	var p httpapi.Body
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body.String())
	assert.Equal(t, w.Code, p.Status)
	assert.NotEmpty(t, p.Title)
	assert.NotEmpty(t, p.Detail)
	return p
}

func kindOf(p httpapi.Body) httpapi.Kind {
	return httpapi.Kind(strings.TrimPrefix(p.Type, "urn:drover:problem:"))
}

// TestShapes holds what is answered against golden files: the names are those of spec 5.4, and scripts rely on them.
func TestShapes(t *testing.T) {
	for _, tc := range []struct {
		file, method, target, body string
		status                     int
		notReady                   bool
	}{
		{file: "members", method: "GET", target: "/cluster/members", status: 200},
		{file: "leader", method: "GET", target: "/cluster/leader", status: 200},
		{file: "shards", method: "GET", target: "/cluster/shards?type=counter", status: 200},
		{file: "shards", method: "GET", target: "/cluster/shards", status: 200},
		{file: "strategies", method: "GET", target: "/cluster/strategies", status: 200},
		{file: "dead-letters", method: "GET", target: "/cluster/dead-letters", status: 200},
		{file: "explain", method: "GET", target: "/cluster/shards/counter/1/explain", status: 200},
		{file: "ready", method: "GET", target: "/readyz", status: 200},
		{file: "not-ready", method: "GET", target: "/readyz", status: 503, notReady: true},
		{file: "swap", method: "PUT", target: "/cluster/strategies/counter?source=builtin:leastshard", body: "\x00asm\x01\x00\x00\x00", status: 200},
		{file: "problem", method: "GET", target: "/cluster/shards?type=nope", status: 404},
		{file: "refused", method: "PUT", target: "/cluster/strategies/counter", body: `{"module":"bm8gd2FzbQ=="}`, status: 422},
	} {
		w := send(open(t, &httpapitest.Node{NotReady: tc.notReady}), tc.method, tc.target, tc.body)
		assert.Equal(t, tc.status, w.Code, "%s %s: %s", tc.method, tc.target, w.Body)
		var v any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
		got, err := json.MarshalIndent(v, "", "  ") // maps are sorted: the golden file is about names and values
		require.NoError(t, err)
		path := filepath.Join("testdata", tc.file+".json")
		if *update {
			require.NoError(t, os.WriteFile(path, append(got, '\n'), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got)+"\n", "%s %s", tc.method, tc.target)
	}
}

// TestPlainAnswers: the first commands of the README, metrics, HEAD.
func TestPlainAnswers(t *testing.T) {
	n := &httpapitest.Node{}
	s := open(t, n)
	w := send(s, "GET", "/healthz", "")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "ok\n", w.Body.String())

	w = send(s, "GET", "/metrics", "")
	assert.Equal(t, 200, w.Code)
	assert.Contains(t, w.Body.String(), "drover_shards 2")
	assert.Contains(t, w.Body.String(), `drover_http_requests_total{route="GET /healthz",status="200"} 1`)

	w = send(s, "HEAD", "/cluster/members", "")
	assert.Equal(t, 200, w.Code)

	// What the first words of the README promise.
	w = send(s, "POST", "/entities/counter/user-42", `{"add":2}`, "Content-Type", "application/x-www-form-urlencoded")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.JSONEq(t, `{"value":2}`, w.Body.String())
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), "no CORS by default (spec 5.2)")
}

// TestOperator: each route reaches the node with what the request says.
func TestOperator(t *testing.T) {
	for _, tc := range []struct {
		target, call string
		status       int
	}{
		{"/cluster/drain", "drain  true", 202},
		{"/cluster/drain?node=b", "drain b true", 202},
		{"/cluster/drain?node=b&on=false", "drain b false", 202},
		{"/cluster/leave", "leave", 202},
		{"/cluster/forget?node=c", "forget c", 204},
		{"/cluster/pause", "pause true", 204},
		{"/cluster/resume", "pause false", 204},
		{"/cluster/shards/counter/3/move?node=b", "move counter 3 b", 202},
		{"/cluster/shards/counter/3/pin?node=b", "pin counter 3 b", 204},
		{"/cluster/shards/counter/3/pin", "pin counter 3 ", 204},
	} {
		n := &httpapitest.Node{}
		w := send(open(t, n), "POST", tc.target, "")
		assert.Equal(t, tc.status, w.Code, "%s: %s", tc.target, w.Body)
		assert.Equal(t, []string{tc.call}, n.Calls(), tc.target)
		assert.Empty(t, w.Body.String())
	}
}

// TestRefusedRequests: every mistake of a client has its kind, and reaches no node.
func TestRefusedRequests(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, tc := range []struct {
		method, target, body string
		kind                 httpapi.Kind
		status               int
		says                 string
	}{
		{"GET", "/nope", "", httpapi.KindNotFound, 404, `"/nope"`},
		{"GET", "/", "", httpapi.KindNotFound, 404, ""},
		{"GET", "/cluster/members/", "", httpapi.KindNotFound, 404, ""},
		{"GET", "//cluster/members", "", httpapi.KindNotFound, 404, ""},
		{"GET", "/cluster/../cluster/members", "", httpapi.KindNotFound, 404, ""},
		{"DELETE", "/cluster/members", "", httpapi.KindMethodNotAllowed, 405, "GET, HEAD"},
		{"OPTIONS", "/cluster/drain", "", httpapi.KindMethodNotAllowed, 405, "POST"},
		{"GET", "/entities/counter/a", "", httpapi.KindMethodNotAllowed, 405, "POST"},
		{"GET", "/cluster/shards?typ=counter", "", httpapi.KindBadRequest, 400, `"typ"`},
		{"GET", "/cluster/shards?type=counter&type=b", "", httpapi.KindBadRequest, 400, "more than once"},
		{"GET", "/cluster/shards?type=%zz", "", httpapi.KindBadRequest, 400, "query"},
		{"GET", "/cluster/shards?type=nope", "", httpapi.KindUnknownType, 404, `"nope"`},
		{"GET", "/cluster/shards/counter/x/explain", "", httpapi.KindBadRequest, 400, `"x" is no shard`},
		{"GET", "/cluster/shards/counter/-1/explain", "", httpapi.KindBadRequest, 400, ""},
		{"GET", "/cluster/shards/counter/4294967296/explain", "", httpapi.KindBadRequest, 400, ""},
		{"GET", "/cluster/shards/counter/4/explain", "", httpapi.KindUnknownShard, 404, "0 to 3"},
		{"GET", "/cluster/shards/nope/1/explain", "", httpapi.KindUnknownType, 404, ""},
		{"POST", "/cluster/shards/counter/1/move", "", httpapi.KindBadRequest, 400, "node is missing"},
		{"POST", "/cluster/shards/counter/1/move?node=", "", httpapi.KindBadRequest, 400, "node is missing"},
		{"POST", "/cluster/forget", "", httpapi.KindBadRequest, 400, "node is missing"},
		{"POST", "/cluster/forget?node=a", "", httpapi.KindConflict, 409, "node a is up"},
		{"POST", "/cluster/drain?on=maybe", "", httpapi.KindBadRequest, 400, "true or false"},

		{"POST", "/entities", `{}`, httpapi.KindBadEntityID, 400, ""},
		{"POST", "/entities/counter", `{}`, httpapi.KindBadEntityID, 400, "/entities/{type}/{id}"},
		{"POST", "/entities/counter/", `{}`, httpapi.KindBadEntityID, 400, "this one has 0"},
		{"POST", "/entities/counter/a/b", `{}`, httpapi.KindBadEntityID, 400, ""},
		{"POST", "/entities/counter/" + long, `{}`, httpapi.KindBadEntityID, 400, "this one has 1025"},
		{"POST", "/entities//a", `{}`, httpapi.KindBadRequest, 400, "type is empty"},
		{"POST", "/entities/nope/a", `{}`, httpapi.KindUnknownType, 404, `"nope"`},
		{"POST", "/entities/nope/a?mode=tell", `{}`, httpapi.KindUnknownType, 404, `"nope"`},
		{"POST", "/entities/counter/a?mode=shout", `{}`, httpapi.KindBadRequest, 400, "ask or tell"},
		{"POST", "/entities/counter/a?timeout=soon", `{}`, httpapi.KindBadRequest, 400, "1ms to 5m"},
		{"POST", "/entities/counter/a?timeout=1h", `{}`, httpapi.KindBadRequest, 400, "1ms to 5m"},
		{"POST", "/entities/counter/a?timeout=-1s", `{}`, httpapi.KindBadRequest, 400, "1ms to 5m"},
		{"POST", "/entities/counter/a", ``, httpapi.KindBadRequest, 400, "empty"},
		{"POST", "/entities/counter/a", "  \n", httpapi.KindBadRequest, 400, "empty"},
		{"POST", "/entities/counter/a", `{"add":2`, httpapi.KindBadRequest, 400, "no JSON"},
		{"POST", "/entities/counter/a", `{"add":2}{}`, httpapi.KindBadRequest, 400, "no JSON"},
		{"POST", "/entities/counter/a", `add=2`, httpapi.KindBadRequest, 400, "byte 1"},
		{"POST", "/entities/counter/a", "\"\xff\"", httpapi.KindBadRequest, 400, "UTF-8"},
		{"POST", "/entities/counter/a", `{"ad":2}`, httpapi.KindBadMessage, 400, `"ad"`},
		{"POST", "/entities/counter/a", `"` + strings.Repeat("x", 1<<20) + `"`, httpapi.KindTooLarge, 413, "http.max_body"},

		{"PUT", "/cluster/strategies/nope", "\x00asm", httpapi.KindUnknownType, 404, ""},
		{"PUT", "/cluster/strategies/counter", "", httpapi.KindBadRequest, 400, "empty"},
		{"PUT", "/cluster/strategies/counter", "\x00asm" + strings.Repeat("x", 8<<20), httpapi.KindTooLarge, 413, "a module"},
		{"PUT", "/cluster/strategies/counter", "{}", httpapi.KindBadRequest, 400, "nothing to change"},
		{"PUT", "/cluster/strategies/counter", "[]", httpapi.KindBadRequest, 400, ""},
		{"PUT", "/cluster/strategies/counter", `{"digset":"x"}`, httpapi.KindBadRequest, 400, `"digset"`},
		{"PUT", "/cluster/strategies/counter", `{"digest":"sha256:00"}`, httpapi.KindBadRequest, 400, "64 hexadecimal"},
		{"PUT", "/cluster/strategies/counter", `{"module":"?"}`, httpapi.KindBadRequest, 400, "base64"},
		{"PUT", "/cluster/strategies/counter", `{"config":[1]}`, httpapi.KindBadRequest, 400, "no JSON object"},
		{"PUT", "/cluster/strategies/counter", `{"config":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`, httpapi.KindTooLarge, 413, "config has 1048584 bytes"},
		{"PUT", "/cluster/strategies/counter", `{"module":"` + strings.Repeat("AAAA", 4<<20) + `"}`, httpapi.KindTooLarge, 413, "a strategy"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"fuel":-1}}`, httpapi.KindBadRequest, 400, "limits.fuel does not fit: it holds a number -1"},
		{"PUT", "/cluster/strategies/counter", `"x"`, httpapi.KindBadRequest, 400, "the body does not fit: it holds a string"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"fuel":1}}`, httpapi.KindBadRequest, 400, "limits.fuel is 1"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"budget":"2h"}}`, httpapi.KindBadRequest, 400, "limits.budget"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"memory":"1GiB"}}`, httpapi.KindBadRequest, 400, "limits.memory"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"memory":"65KiB"}}`, httpapi.KindBadRequest, 400, "multiple"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"max_failures":0}}`, httpapi.KindBadRequest, 400, "limits.max_failures"},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"moves_per_pass":0}}`, httpapi.KindBadRequest, 400, "limits.moves_per_pass"},
		{"PUT", "/cluster/strategies/counter?shadow=yes", "\x00asm", httpapi.KindBadRequest, 400, "0 or 1"},
		{"PUT", "/cluster/strategies/counter?source=" + long, "\x00asm", httpapi.KindBadRequest, 400, "255"},
	} {
		name := tc.method + " " + tc.target[:min(len(tc.target), 60)] + " " + tc.body[:min(len(tc.body), 30)]
		n := &httpapitest.Node{}
		w := send(open(t, n), tc.method, tc.target, tc.body)
		assert.Equal(t, tc.status, w.Code, name)
		p := problem(t, w)
		assert.Equal(t, tc.kind, kindOf(p), name)
		assert.Contains(t, p.Detail+p.Hint, tc.says, name)
		assert.Empty(t, n.Calls(), name)
		assert.Empty(t, n.Swaps(), name)
		if tc.kind == httpapi.KindUnknownType {
			assert.Equal(t, []string{"counter"}, p.Known, name)
		}
		if tc.kind == httpapi.KindMethodNotAllowed {
			assert.Contains(t, w.Header().Get("Allow"), tc.says, name)
		}
	}
}

// TestIDs: any bytes up to 1 KiB are an id, routed on the escaped path (spec 2.4).
func TestIDs(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, id := range []string{
		"user-42", "a/b", "..", ".", "/", "//", "a/../b", "\x00", "%", "%2F", "a b", "a+b", "?", "#", "ü", "日本語", "🐑", "\xff\xfe", string(every),
		strings.Repeat("x", 1024), strings.Repeat("/", 1024), strings.Repeat("é", 512), "entities", "..%2f", "?mode=tell",
	} {
		var escaped strings.Builder
		for i := range len(id) { // harder than any client: every byte
			fmt.Fprintf(&escaped, "%%%02X", id[i])
		}
		for _, path := range []string{escaped.String(), url.PathEscape(id)} {
			n := &httpapitest.Node{}
			w := send(open(t, n), "POST", "/entities/counter/"+path, `{"add":1}`)
			assert.Equal(t, 200, w.Code, "%q: %s", id, w.Body)
			if told := n.Told(); assert.Len(t, told, 1, "%q", id) {
				assert.Equal(t, id, told[0].Entity)
			}
		}
	}
}

// FuzzPath: whatever the path, an entity gets the message for exactly the segment that was written, or the client gets a problem.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"a", "a%2Fb", "..", "%2e%2e", "a/b", "%00", "", "%", "%zz", "%ff", "a//", strings.Repeat("x", 1025)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI("/entities/counter/" + raw)
		if err != nil || u.RawQuery != "" || u.ForceQuery {
			return // net/http answers these itself, or it is a query
		}
		n := &httpapitest.Node{}
		r := httptest.NewRequest("POST", "http://127.0.0.1:8080/", strings.NewReader(`{"get":true}`))
		r.URL.Path, r.URL.RawPath = u.Path, u.RawPath
		w := httptest.NewRecorder()
		open(t, n).ServeHTTP(w, r)
		want, err := url.PathUnescape(raw)
		legal := err == nil && !strings.Contains(raw, "/") && len(want) >= 1 && len(want) <= 1024
		switch told := n.Told(); {
		case legal:
			if len(told) != 1 || told[0].Entity != want {
				t.Fatalf("%q reached %v, want %q (%d %s)", raw, told, want, w.Code, w.Body)
			}
		case len(told) != 0 || w.Code != 400:
			t.Fatalf("%q is no id and reached %v with status %d", raw, told, w.Code)
		}
	})
}

// TestTell sends without waiting, and what is sent is the format byte and the body (spec 5.4).
func TestTell(t *testing.T) {
	n := &httpapitest.Node{}
	w := send(open(t, n), "POST", "/entities/counter/a?mode=tell", ` {"add": 2} `)
	assert.Equal(t, 202, w.Code)
	assert.Empty(t, w.Body.String())
	require.Len(t, n.Told(), 1)
	assert.Equal(t, "\x01"+` {"add": 2} `, string(n.Told()[0].Payload))
	assert.Zero(t, n.Told()[0].Command)
}

// TestIdempotencyKey: the same key is the same command, through any node; another key is another client (spec 5.4, 2.4).
func TestIdempotencyKey(t *testing.T) {
	n := &httpapitest.Node{}
	for _, key := range []string{"k1", "k1", "k2"} {
		// Another server each time, as a retry would meet it.
		assert.Equal(t, 200, send(open(t, n), "POST", "/entities/counter/a", `{"add":1}`, "Idempotency-Key", key).Code)
	}
	told := n.Told()
	require.Len(t, told, 3)
	assert.Equal(t, told[0].Command, told[1].Command)
	assert.NotEqual(t, told[0].Command, told[2].Command)
	assert.False(t, told[0].Command.Client.IsZero())
	assert.NotZero(t, told[0].Command.Seq)

	for _, bad := range [][]string{{""}, {strings.Repeat("k", 256)}, {"ü"}, {"a\tb"}, {"a", "b"}} {
		var header []string
		for _, v := range bad {
			header = append(header, "Idempotency-Key", v)
		}
		w := send(open(t, n), "POST", "/entities/counter/a", `{"add":1}`, header...)
		assert.Equal(t, 400, w.Code, "%q", bad)
		assert.Contains(t, problem(t, w).Detail, "Idempotency-Key")
	}
	assert.Len(t, n.Told(), 3)
}

// TestSwapRequest: what the body says reaches the node; what it leaves out stays nil (spec 5.4).
func TestSwapRequest(t *testing.T) {
	n := &httpapitest.Node{}
	s := open(t, n)
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, r := range []struct{ target, body, contentType string }{
		{"?shadow=1", `{"digest":"` + digest + `","config":{"threshold":2},"limits":{"fuel":20000,"budget":"50ms","memory":"1MiB","max_failures":2,"moves_per_pass":9}}`, "text/plain"},
		{"", "\x00asm by its first bytes", "application/x-www-form-urlencoded"},
		{"?source=x.wasm", "\x00asm", "application/wasm"},
		{"", `{"module":"AGFzbQ==","config":null}`, "application/json"},
	} {
		w := send(s, "PUT", "/cluster/strategies/counter"+r.target, r.body, "Content-Type", r.contentType)
		assert.Equal(t, 200, w.Code, w.Body)
	}
	got := n.Swaps()
	require.Len(t, got, 4)
	full := got[0]
	assert.True(t, full.Shadow)
	assert.Equal(t, byte(0xab), full.Digest[31])
	assert.JSONEq(t, `{"threshold":2}`, string(full.Config))
	require.NotNil(t, full.Limits)
	assert.Equal(t, []any{uint64(20000), int64(50), uint64(1 << 20), uint32(2), uint32(9)},
		[]any{*full.Limits.Fuel, *full.Limits.BudgetMillis, *full.Limits.Memory, *full.Limits.MaxFailures, *full.Limits.MovesPerPass})
	assert.Nil(t, full.Module)
	assert.Equal(t, "\x00asm by its first bytes", string(got[1].Module))
	assert.Equal(t, "x.wasm", got[2].Source)
	assert.Equal(t, "\x00asm", string(got[3].Module))
	for _, r := range got[1:] {
		assert.Nil(t, r.Config)
		assert.Nil(t, r.Limits)
		assert.False(t, r.Shadow)
	}
	// A body that says to be wasm is the node's to refuse, with findings.
	w := send(s, "PUT", "/cluster/strategies/counter", "no wasm", "Content-Type", "application/wasm")
	p := problem(t, w)
	assert.Equal(t, httpapi.KindRefusedStrategy, kindOf(p))
	require.Len(t, p.Findings, 1)
	assert.Equal(t, "wasm-invalid", p.Findings[0].Rule)
}

// failing is a body that breaks off.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestBodyBreaksOff(t *testing.T) {
	for method, target := range map[string]string{"POST": "/entities/counter/a", "PUT": "/cluster/strategies/counter"} {
		n := &httpapitest.Node{}
		r := httptest.NewRequest(method, "http://localhost"+target, io.NopCloser(failing{}))
		w := httptest.NewRecorder()
		open(t, n).ServeHTTP(w, r)
		assert.Equal(t, 400, w.Code)
		assert.NotContains(t, problem(t, w).Detail, "reset")
		assert.Empty(t, n.Told())
		assert.Empty(t, n.Swaps())
	}
}

// TestMaxBodyIsConfigured: a body of exactly http.max_body passes.
func TestMaxBodyIsConfigured(t *testing.T) {
	small := func(c *config.HTTP) { c.MaxBody = 12 }
	assert.Equal(t, 200, send(open(t, &httpapitest.Node{}, small), "POST", "/entities/counter/a", `{"get":true}`).Code)
	assert.Equal(t, 413, send(open(t, &httpapitest.Node{}, small), "POST", "/entities/counter/a", `{"get":true} `).Code)
}

// TestSeveralTypes: with two types one has to be named.
func TestSeveralTypes(t *testing.T) {
	n := &httpapitest.Node{Known: []sharding.TypeName{"counter", "kv"}}
	p := problem(t, send(open(t, n), "GET", "/cluster/shards", ""))
	assert.Equal(t, httpapi.KindBadRequest, kindOf(p))
	assert.Equal(t, []string{"counter", "kv"}, p.Known)
	assert.Contains(t, p.Hint, "?type=counter")
	assert.Equal(t, 200, send(open(t, n), "GET", "/cluster/shards?type=kv", "").Code)
	n = &httpapitest.Node{Known: []sharding.TypeName{}}
	assert.Contains(t, problem(t, send(open(t, n), "GET", "/cluster/shards", "")).Hint, "[[type]]")
}

// A digest of zeros is a digest, that no module has, and not "none given".
func TestZeroDigestIsGiven(t *testing.T) {
	n := &httpapitest.Node{}
	w := send(open(t, n), "PUT", "/cluster/strategies/counter", `{"digest":"sha256:`+strings.Repeat("0", 64)+`"}`)
	require.Equal(t, 200, w.Code, w.Body)
	w = send(open(t, n), "PUT", "/cluster/strategies/counter", `{"limits":{"fuel":20000}}`)
	require.Equal(t, 200, w.Code, w.Body)
	require.NotNil(t, n.Swaps()[0].Digest)
	require.Nil(t, n.Swaps()[1].Digest)
}
