package transport

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/droverhq/drover/sharding"
)

// PeerConn is an authenticated connection of class raft.
type PeerConn interface {
	net.Conn
	Peer() Peer
}

// conn is a connection past its handshake. Close is abrupt, without TLS's farewell: that could wait for a peer who reads nothing,
// and each protocol above has an end of its own.
type conn struct {
	net.Conn
	raw     net.Conn // below TLS
	peer    Peer
	class   Class
	inbound bool
	set     *connSet
	claimed atomic.Bool // its one stream has been opened
	ended   atomic.Bool
	cause   atomic.Pointer[error] // why this side closed it
}

func (c *conn) Peer() Peer { return c.peer }

func (c *conn) Close() error {
	c.ended.Store(true)
	c.set.remove(c)
	return c.raw.Close()
}

// abort closes the connection for a reason that its stream is to report.
func (c *conn) abort(cause error) {
	c.cause.CompareAndSwap(nil, &cause)
	c.Close()
}

// why gives the reason of abort, or the error that its protocol saw.
func (c *conn) why(err error) error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return err
}

func (c *conn) direction() Direction {
	if c.inbound {
		return In
	}
	return Out
}

// connSet holds every connection that stands.
type connSet struct {
	mu     sync.Mutex
	all    map[*conn]struct{}
	closed bool
}

// add takes a connection in, unless the set is closed.
func (s *connSet) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[c] = struct{}{}
	return true
}

func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

func (s *connSet) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (s *connSet) closeIf(match func(*conn) bool, cause error) {
	s.mu.Lock()
	var found []*conn
	for c := range s.all {
		if match(c) {
			found = append(found, c)
		}
	}
	s.mu.Unlock()
	for _, c := range found {
		c.abort(cause)
	}
}

// inboundAddr gives the address that a member named in the handshake of a connection to this node, while one stands.
func (s *connSet) inboundAddr(m sharding.Member) (addr string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if c.inbound && c.peer.Member == m && c.peer.Addr != "" {
			return c.peer.Addr, true
		}
	}
	return "", false
}

func (s *connSet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeIf(func(*conn) bool { return true }, ErrClosed)
}

// connListener hands connections that are past their handshake to a protocol.
type connListener struct {
	addr net.Addr
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

// backlog is how many connections wait to be accepted; those beyond are closed.
const backlog = 64

func newConnListener(addr net.Addr) *connListener {
	return &connListener{addr: addr, ch: make(chan net.Conn, backlog), done: make(chan struct{})}
}

func (l *connListener) push(c net.Conn) {
	select {
	case <-l.done:
	case l.ch <- c:
		return
	default:
	}
	c.Close()
}

func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *connListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *connListener) Addr() net.Addr { return l.addr }
