package transport

import (
	"fmt"
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
	use     *use        // of an inbound one: what its peer takes up here
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

// Bounds of what one authenticated node may take up, whatever incarnations it claims: so that one that leaks or floods takes file descriptors and
// memory from no other. A node has one connection of each class but raft, of which it has a handful, and some that are not seen to be broken yet.
const (
	connsOfNode = 64
	callsOfNode = 16 // requests at once, each with a body of up to MaxCall; more wait, with their bodies unread
)

// use is what one node takes up by the connections that it made to here.
type use struct {
	conns int
	calls chan struct{} // a token for each request under way
}

// connSet holds every connection that stands.
type connSet struct {
	mu     sync.Mutex
	all    map[*conn]struct{}
	uses   map[sharding.NodeID]*use
	closed bool
}

// add takes a connection in, unless the set is closed, or the peer has too many already.
func (s *connSet) add(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if c.inbound {
		name := c.peer.Member.Node
		u := s.uses[name]
		if u == nil {
			u = &use{calls: make(chan struct{}, callsOfNode)}
			s.uses[name] = u
		}
		if u.conns >= connsOfNode {
			return &crowdedError{what: fmt.Sprintf("node %q has %d connections to this node already: if it leaks them, restart it", name, u.conns)}
		}
		u.conns++
		c.use = u
	}
	s.all[c] = struct{}{}
	return nil
}

func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, here := s.all[c]; !here {
		return
	}
	delete(s.all, c)
	if c.use == nil {
		return
	}
	if c.use.conns--; c.use.conns == 0 {
		delete(s.uses, c.peer.Member.Node)
	}
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
