package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

// pipes is a listener of connections in memory, whose deadlines follow the clock of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// TestLongAsk: an ask may take as long as its timeout says, although a request has to be there sooner (spec 5.4).
func TestLongAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &httpapitest.Node{OnAsk: func(ctx context.Context, _ httpapi.Message) ([]byte, error) {
			select {
			case <-time.After(4 * time.Minute):
				return []byte("\x01{}"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		s, p := open(t, n), newPipes()
		go s.Serve(p)
		defer s.Shutdown(t.Context())
		c := http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
		r, err := c.Post("http://127.0.0.1:8080/entities/counter/a?timeout=5m", "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		assert.Equal(t, 200, r.StatusCode, string(body))
	})
}

// TestSlowClients: a head has 10 s and a request one minute to arrive; after that its connection is closed (spec 5.2: time-outs).
func TestSlowClients(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		every   time.Duration // between two bytes of what comes after it; 0: nothing does
		lasts   time.Duration
		answer  string
	}{
		"nothing":          {"", 0, 10 * time.Second, ""},
		"half a head":      {"POST /entities/counter/a HTTP/1.1\r\nHost: 127.0.0.1\r\n", 0, 10 * time.Second, ""},
		"a head by bytes":  {"POST /entities/counter/a HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", time.Second, 10 * time.Second, ""},
		"half a body":      {"POST /entities/counter/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{", 0, time.Minute, "HTTP/1.1 400 Bad Request\r\n"},
		"a body by bytes":  {"POST /entities/counter/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{", time.Second, time.Minute, "HTTP/1.1 400 Bad Request\r\n"},
		"a chunked module": {"PUT /cluster/strategies/counter HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n", 0, time.Minute, "HTTP/1.1 400 Bad Request\r\n"},
		"idle after one":   {"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 0, 2 * time.Minute, "HTTP/1.1 200 OK\r\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &httpapitest.Node{}
			s, p := open(t, n), newPipes()
			go s.Serve(p)
			defer s.Shutdown(t.Context())
			c, err := p.dial(t.Context(), "", "")
			require.NoError(t, err)
			began, written := time.Now(), make(chan struct{})
			go func() {
				defer close(written)
				fmt.Fprint(c, tc.request)
				for tc.every > 0 {
					time.Sleep(tc.every)
					if _, err := c.Write([]byte("x")); err != nil {
						return
					}
				}
			}()
			got, _ := io.ReadAll(bufio.NewReader(c))
			defer func() { c.Close(); <-written }()
			assert.InDelta(t, tc.lasts, time.Since(began), float64(time.Second), name)
			assert.True(t, strings.HasPrefix(string(got), tc.answer), "%s: %q", name, got)
			assert.Empty(t, n.Told(), name)
			assert.Empty(t, n.Swaps(), name)
		})
	}
}

// TestRetire: while a node drains it serves on, and each answer closes its connection, so that none is idle when the listener goes (spec 5.1).
func TestRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		s, p := open(t, &httpapitest.Node{}), newPipes()
		go s.Serve(p)
		defer s.Shutdown(t.Context())
		c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, a, b string) (net.Conn, error) { dials++; return p.dial(ctx, a, b) }}}
		post := func() bool {
			r, err := c.Post("http://127.0.0.1:8080/entities/counter/a", "application/json", strings.NewReader(`{"add":1}`))
			require.NoError(t, err)
			defer r.Body.Close()
			_, err = io.Copy(io.Discard, r.Body)
			require.NoError(t, err)
			assert.Equal(t, 200, r.StatusCode)
			return r.Close
		}
		assert.False(t, post())
		assert.False(t, post())
		assert.Equal(t, 1, dials)
		s.Retire()
		assert.True(t, post())
		assert.True(t, post())
		assert.Equal(t, 2, dials)
	})
}
