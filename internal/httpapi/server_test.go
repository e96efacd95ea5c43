package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

// serve starts a server on a free port and gives its address and the end of Serve.
func serve(t *testing.T, s *httpapi.Server) (string, <-chan error) {
	t.Helper()
	l, err := httpapi.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return l.Addr().String(), ended
}

// blocking answers when it is let go, and notes how its context ended.
type blocking struct {
	begun chan struct{}
	let   chan struct{}
	ended chan error
}

func newBlocking() *blocking {
	return &blocking{make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)}
}

func (b *blocking) ask(ctx context.Context, _ httpapi.Message) ([]byte, error) {
	b.begun <- struct{}{}
	select {
	case <-b.let:
		return []byte("\x01{}"), nil
	case <-ctx.Done():
		b.ended <- ctx.Err()
		return nil, ctx.Err()
	}
}

type answer struct {
	status int
	err    error
}

func post(address string) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		r, err := http.Post("http://"+address+"/entities/counter/a", "application/json", strings.NewReader("{}"))
		if err != nil {
			out <- answer{err: err}
			return
		}
		r.Body.Close()
		out <- answer{status: r.StatusCode}
	}()
	return out
}

// TestShutdownWaits: what is in flight still gets its answer; nothing new is taken.
func TestShutdownWaits(t *testing.T) {
	b := newBlocking()
	s := open(t, &httpapitest.Node{OnAsk: b.ask})
	address, ended := serve(t, s)
	got := post(address)
	<-b.begun
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	require.NoError(t, <-ended) // Serve returns at once
	_, err := net.Dial("tcp", address)
	assert.Error(t, err)
	close(b.let)
	require.NoError(t, <-down)
	assert.Equal(t, answer{status: 200}, <-got)
}

// TestShutdownIsBounded: an ask that lasts longer than the bound is ended, and its connection too.
func TestShutdownIsBounded(t *testing.T) {
	b := newBlocking()
	s := open(t, &httpapitest.Node{OnAsk: b.ask})
	address, ended := serve(t, s)
	got := post(address)
	<-b.begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.Shutdown(ctx)
	assert.ErrorContains(t, err, "in flight")
	require.NoError(t, <-ended)
	assert.ErrorIs(t, <-b.ended, context.Canceled)
	<-got
}

// TestClientGone: when the client goes, the ask ends.
func TestClientGone(t *testing.T) {
	b := newBlocking()
	s := open(t, &httpapitest.Node{OnAsk: b.ask})
	address, _ := serve(t, s)
	defer s.Shutdown(context.Background())
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	fmt.Fprintf(c, "POST /entities/counter/a HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", address)
	<-b.begun
	c.Close()
	assert.ErrorIs(t, <-b.ended, context.Canceled)
}

// TestPortInUse: the error names the key and the next step (spec 5.1, issue 2).
func TestPortInUse(t *testing.T) {
	l, err := httpapi.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = httpapi.Listen(t.Context(), l.Addr().String())
	e, ok := errors.AsType[*httpapi.ListenError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, fmt.Sprintf("http.address = %q: the port is in use by another process", l.Addr()), e.Error())
	assert.Contains(t, e.Hint(), "--set http.address=")

	_, err = httpapi.Listen(t.Context(), "192.0.2.1:8080")
	e, ok = errors.AsType[*httpapi.ListenError](err)
	require.True(t, ok, "%v", err)
	assert.Contains(t, e.Error(), "http.address")
	assert.NotEmpty(t, e.Hint())
}

// TestRawRequests: what only shows on the wire: paths that no client library sends, and a body that never comes whole.
func TestRawRequests(t *testing.T) {
	n := &httpapitest.Node{}
	s := open(t, n, func(c *config.HTTP) { c.MaxBody = 1 << 10 })
	address, _ := serve(t, s)
	defer s.Shutdown(context.Background())
	for _, tc := range []struct{ request, status, entity string }{
		{"POST /entities/counter/.. HTTP/1.1\r\nContent-Length: 9\r\n", "200", ".."},
		{"POST /entities/counter/%2e%2E HTTP/1.1\r\nContent-Length: 9\r\n", "200", ".."},
		{"POST /entities/counter/a%2Fb HTTP/1.1\r\nContent-Length: 9\r\n", "200", "a/b"},
		{"POST /entities/counter/%00 HTTP/1.1\r\nContent-Length: 9\r\n", "200", "\x00"},
		{"POST /entities/counter/\xff HTTP/1.1\r\nContent-Length: 9\r\n", "200", "\xff"},
		{"POST /entities/counter/%2F\xff HTTP/1.1\r\nContent-Length: 9\r\n", "200", "/\xff"},
		{"POST /entities/counter/a/b HTTP/1.1\r\nContent-Length: 9\r\n", "400", ""},
		{"POST /entities/counter/%zz HTTP/1.1\r\nContent-Length: 9\r\n", "400", ""},
		{"POST /entities/counter/a HTTP/1.1\r\nContent-Length: 1000000\r\n", "413", ""},
		{"OPTIONS * HTTP/1.1\r\nContent-Length: 9\r\n", "404", ""},
		{"GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nContent-Length: 9\r\n", "431", ""},
	} {
		before := len(n.Told())
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		c.SetDeadline(time.Now().Add(10 * time.Second))
		body := `{"add":1}`
		if tc.status == "413" {
			body = strings.Repeat(" ", 2<<10) // more than the limit, less than announced
		}
		fmt.Fprintf(c, "%sHost: 127.0.0.1\r\nConnection: close\r\n\r\n%s", tc.request, body)
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err, "%q", tc.request[:30])
		assert.Contains(t, line, " "+tc.status+" ", "%q", tc.request[:30])
		io.Copy(io.Discard, c)
		c.Close()
		told := n.Told()[before:]
		if tc.entity == "" {
			assert.Empty(t, told, tc.request)
		} else if assert.Len(t, told, 1, tc.request) {
			assert.Equal(t, tc.entity, told[0].Entity)
		}
	}
}
