package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080", "localhost:1": "http://localhost:1", "[::1]:8080": "http://[::1]:8080",
		"http://a:1/": "http://a:1", "https://a.example/drover/": "https://a.example/drover",
	} {
		c, err := client.New(address, "")
		require.NoError(t, err, address)
		assert.Equal(t, want, c.Address())
	}
	for _, address := range []string{"", "http://", "ftp://a", "http://a?x=1", "http://a#x", "a b", "://"} {
		_, err := client.New(address, "")
		assert.ErrorContains(t, err, "neither host:port nor an http URL", "%q", address)
	}
}

// TestSecretsStayOutOfErrors: neither a password in an address nor a broken token is shown (spec 5.2).
func TestSecretsStayOutOfErrors(t *testing.T) {
	for _, tc := range []struct{ address, token, says string }{
		{"http://hunter2@a", "", "user or password"},
		{"http://me:hunter2@a:8080", "", "user or password"},
		{"me:hunter2@a:8080", "", "user or password"},
		{"http://me:hunter2@a b", "", "user or password"},
		{"http://a", "hunter2\n", "the token holds"},
		{"http://a", "Bearer hunter2", "the token holds"},
		{"http://a", "hünter2", "the token holds"},
	} {
		_, err := client.New(tc.address, tc.token)
		require.ErrorContains(t, err, tc.says, "%q", tc)
		assert.NotContains(t, err.Error(), "nter2")
	}
}

// TestIDs: what the client escapes is what the entity gets, for every byte (spec 2.4).
func TestIDs(t *testing.T) {
	n := &httpapitest.Node{}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	c, err := client.New(server.URL, "")
	require.NoError(t, err)
	ids := []string{"a", "a/b", "..", ".", "...", "/", "%2F", "?", "#", "ü", " ", strings.Repeat("/", 1024)}
	for b := range 256 {
		ids = append(ids, string([]byte{byte(b)}), "."+string([]byte{byte(b)}))
	}
	for _, id := range ids {
		_, err := c.Ask(t.Context(), "counter", id, []byte(`{"get":true}`), "", time.Second)
		require.NoError(t, err, "%q", id)
		told := n.Told()
		assert.Equal(t, id, told[len(told)-1].Entity)
	}
}

// TestForeignAnswers: whatever listens there, the error is one line that says where, without control characters.
func TestForeignAnswers(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"no JSON":       func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
		"another error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) },
		"an odd problem": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(400)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"escape sequence": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "\x1b[31m\n") },
	} {
		server := httptest.NewServer(h)
		c, err := client.New(server.URL, "token")
		require.NoError(t, err)
		_, err = c.Members(t.Context())
		assert.ErrorContains(t, err, server.URL+" does not answer like a node of Drover", name)
		assert.NotContains(t, err.Error(), "\x1b", name)
		assert.NotContains(t, err.Error(), "\n", name)
		server.Close()
	}
}

// TestProblems: kind, hint and findings reach the caller, printable.
func TestProblems(t *testing.T) {
	n := &httpapitest.Node{Err: &httpapi.Problem{Kind: httpapi.KindRefusedStrategy, Detail: "bad\x1b[2J", Hint: "fix\nit", Known: []string{"a", "b"},
		Findings: []httpapi.Finding{{Rule: "r", Severity: "error", Message: "m", Fix: "f"}}}}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	c, err := client.New(server.URL, "")
	require.NoError(t, err)
	err = c.Pause(t.Context(), true)
	e, ok := errors.AsType[*client.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, httpapi.KindRefusedStrategy, e.Kind())
	assert.Equal(t, "fix\ufffdit", e.Hint())
	assert.Equal(t, "bad\ufffd[2J; there is a, b (The strategy is refused)\n  error: r: m\n    fix: f", e.Error())
}

// TestSlowNode: an ask is given up ten seconds after the node should have said that its time is up.
func TestSlowNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("127.0.0.1:8080", "")
		require.NoError(t, err)
		c.SetTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		began := time.Now()
		_, err = c.Ask(t.Context(), "counter", "a", []byte("{}"), "", 3*time.Second)
		assert.Equal(t, 13*time.Second, time.Since(began))
		u, ok := errors.AsType[*client.UnreachableError](err)
		require.True(t, ok, "%v", err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Contains(t, u.Hint(), "may have been done")
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
