package httpapi_test

import (
	"context"
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
