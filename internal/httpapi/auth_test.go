package httpapi_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

const (
	adminToken = "admin-0123456789abcdef"
	readToken  = "read-0123456789abcdef"
)

// TestTokens: who may do what (spec 5.2). Every route is tried, so that a new one cannot be forgotten.
func TestTokens(t *testing.T) {
	both := func(c *config.HTTP) { c.AdminToken, c.ReadToken = adminToken, readToken }
	onlyAdmin := func(c *config.HTTP) { c.AdminToken = adminToken }
	onlyRead := func(c *config.HTTP) { c.ReadToken = readToken }
	public := []string{"GET /healthz", "GET /readyz", "GET /openapi.json"}
	for _, route := range append(httpapi.Routes(), "GET /nope") {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{type}", "counter", "{shard}", "1", "{id}", "a").Replace(path)
		isPublic, reads := strings.Contains(strings.Join(public, "\n"), route), method == "GET"
		for _, tc := range []struct {
			name     string
			tokens   func(*config.HTTP)
			header   string
			mayRead  bool
			mayWrite bool
			kind     httpapi.Kind // otherwise
		}{
			{"none", both, "", false, false, httpapi.KindUnauthorized},
			{"wrong", both, "Bearer wrong-0123456789", false, false, httpapi.KindUnauthorized},
			{"prefix", both, "Bearer " + adminToken[:len(adminToken)-1], false, false, httpapi.KindUnauthorized},
			{"longer", both, "Bearer " + adminToken + "x", false, false, httpapi.KindUnauthorized},
			{"other scheme", both, "Basic " + adminToken, false, false, httpapi.KindUnauthorized},
			{"empty", both, "Bearer ", false, false, httpapi.KindUnauthorized},
			{"read", both, "Bearer " + readToken, true, false, httpapi.KindForbidden},
			{"admin", both, "Bearer " + adminToken, true, true, ""},
			{"case of the scheme", both, "bearer " + adminToken, true, true, ""},
			{"empty where read is off", onlyAdmin, "Bearer ", false, false, httpapi.KindUnauthorized},
			{"read where it is off", onlyAdmin, "Bearer " + readToken, false, false, httpapi.KindUnauthorized},
			{"blank where read is off", onlyAdmin, "Bearer  ", false, false, httpapi.KindUnauthorized},
			{"blank where admin is off", onlyRead, "Bearer  ", false, false, httpapi.KindUnauthorized},
			{"admin alone", onlyAdmin, "Bearer " + adminToken, true, true, ""},
			{"read alone", onlyRead, "Bearer " + readToken, true, false, httpapi.KindForbidden},
			{"admin where it is off", onlyRead, "Bearer " + adminToken, false, false, httpapi.KindUnauthorized},
		} {
			n := &httpapitest.Node{}
			var header []string
			if tc.header != "" {
				header = []string{"Authorization", tc.header}
			}
			w := send(open(t, n, tc.tokens), method, path, "{}", header...)
			refused := w.Code == 401 || w.Code == 403
			may := isPublic || reads && tc.mayRead || tc.mayWrite
			assert.Equal(t, may, !refused, "%s with %s: %d", route, tc.name, w.Code)
			if may {
				continue
			}
			p := problem(t, w)
			want := tc.kind
			assert.Equal(t, want, kindOf(p), "%s with %s", route, tc.name)
			assert.Equal(t, want == httpapi.KindUnauthorized, w.Header().Get("WWW-Authenticate") != "")
			assert.Empty(t, n.Calls())
			assert.Empty(t, n.Told())
			assert.Empty(t, n.Swaps())
			for _, secret := range []string{adminToken, readToken} {
				assert.NotContains(t, w.Body.String(), secret)
			}
		}
	}
}

// TestForeignSites: without a token a page of another site can neither send (Origin) nor read (Host, DNS rebinding) (spec 5.2).
func TestForeignSites(t *testing.T) {
	any := func(c *config.HTTP) { c.Address, c.InsecureBind = "0.0.0.0:8080", true }
	named := func(c *config.HTTP) { c.Address = "localhost:8080" }
	token := func(c *config.HTTP) { c.AdminToken = adminToken }
	loopback := func(*config.HTTP) {}
	for _, tc := range []struct {
		name         string
		config       func(*config.HTTP)
		host, origin string
		ok           bool
	}{
		{"curl", loopback, "127.0.0.1:8080", "", true},
		{"by name", loopback, "localhost:8080", "", true},
		{"IPv6", loopback, "[::1]:8080", "", true},
		{"IPv6 without a port", loopback, "[::1]", "", true},
		{"no port", loopback, "localhost", "", true},
		{"a tunnel's port", loopback, "localhost:9000", "", true},
		{"another loopback address", loopback, "127.0.0.2:8080", "", true},
		{"capitals", loopback, "LOCALHOST:8080", "", true},
		{"by the configured name", named, "localhost:8080", "", true},
		{"own page", loopback, "127.0.0.1:8080", "http://127.0.0.1:8080", true},
		{"own page through a tunnel", loopback, "localhost:9000", "http://localhost:9000", true},

		{"rebinding", loopback, "evil.example:8080", "", false},
		{"rebinding, same origin", loopback, "evil.example:8080", "http://evil.example:8080", false},
		{"looks like loopback", loopback, "127.0.0.1.evil.example", "", false},
		{"looks like localhost", loopback, "localhost.evil.example", "", false},
		{"a public address", loopback, "192.0.2.1:8080", "", false},
		{"no host", loopback, "", "", false},
		{"another site's page", loopback, "127.0.0.1:8080", "https://evil.example", false},
		{"another port's page", loopback, "127.0.0.1:8080", "http://127.0.0.1:3000", false},
		{"sandboxed page", loopback, "127.0.0.1:8080", "null", false},
		{"a file", loopback, "127.0.0.1:8080", "file://", false},
		{"no URL", loopback, "127.0.0.1:8080", "http://%zz", false},

		{"open on purpose", any, "drover.example:8080", "", true},
		{"open on purpose, own page", any, "drover.example:8080", "http://drover.example:8080", true},
		{"open on purpose, another site's page", any, "drover.example:8080", "https://evil.example", false},
	} {
		for _, target := range []string{"GET /cluster/members", "POST /cluster/pause", "GET /healthz", "GET /nope"} {
			method, path, _ := strings.Cut(target, " ")
			header := []string{"Host", tc.host}
			if tc.origin != "" {
				header = append(header, "Origin", tc.origin)
			}
			n := &httpapitest.Node{}
			w := send(open(t, n, tc.config), method, path, "", header...)
			assert.Equal(t, tc.ok, w.Code != 403, "%s: %s: %d", tc.name, target, w.Code)
			if !tc.ok {
				assert.Equal(t, httpapi.KindForeignOrigin, kindOf(problem(t, w)))
				assert.Empty(t, n.Calls(), tc.name)
			}
		}
	}
	// A token is nothing that a browser adds by itself.
	w := send(open(t, &httpapitest.Node{}, token), "GET", "/cluster/members", "", "Host", "drover.example", "Origin", "https://dash.example", "Authorization", "Bearer "+adminToken)
	assert.Equal(t, 200, w.Code)
	assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
}

// TestTokensStayOutOfTheLog: not even the wrong ones are written.
func TestTokensStayOutOfTheLog(t *testing.T) {
	var log bytes.Buffer
	c := config.Default().HTTP
	c.AdminToken = adminToken
	s := httpapi.New(c, &httpapitest.Node{OnAsk: nil, Err: assert.AnError}, "v1", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	send(s, "GET", "/cluster/members", "", "Authorization", "Bearer "+adminToken)
	send(s, "GET", "/cluster/members", "", "Authorization", "Bearer wrong-4711")
	assert.Contains(t, log.String(), "GET /cluster/members")
	assert.NotContains(t, log.String(), adminToken)
	assert.NotContains(t, log.String(), "4711")
}
