package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/droverhq/drover/sharding"
)

// acceptLoop owns the listener.
func (t *Transport) acceptLoop() {
	for failures := 0; ; {
		raw, err := t.lis.Accept()
		if err == nil {
			failures = 0
			t.admit(raw)
			continue
		}
		if errors.Is(err, net.ErrClosed) || t.ctx.Err() != nil {
			return
		}
		// Most likely file descriptors have run out: others may give some back.
		failures++
		t.log.Warn("cannot accept connections", "error", err)
		timer := time.NewTimer(min(time.Duration(failures)*10*time.Millisecond, time.Second))
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// admit starts a handshake, unless too many are unfinished: strangers must not use up memory.
func (t *Transport) admit(raw net.Conn) {
	from := sourceOf(raw.RemoteAddr())
	if err := t.door.enter(from); err != nil {
		raw.Close()
		t.noteRefused(&HandshakeError{Reason: ReasonBusy, Addr: raw.RemoteAddr().String(), Err: err})
		return
	}
	t.work.Go(func() {
		c, err := t.welcome(raw)
		t.door.leave(from)
		if err != nil {
			t.noteRefused(err)
			return
		}
		if c.class == Raft {
			t.raft.push(c)
			return
		}
		t.carrier.accept(c)
	})
}

func (t *Transport) welcome(raw net.Conn) (*conn, error) {
	id := t.identity()
	secure, peer, class, err := id.handshake(t.ctx, raw, id.listen)
	if err != nil {
		return nil, err
	}
	return t.adopt(&conn{Conn: secure, raw: raw, peer: peer, class: class, inbound: true})
}

func (t *Transport) noteRefused(err error) {
	e, ok := errors.AsType[*HandshakeError](err)
	if !ok || t.ctx.Err() != nil {
		return
	}
	t.counters.refused[e.Reason.index()].Add(1)
	t.sayRefused("a connection to this node was refused", e, "")
}

// sayRefused logs a failed handshake, once a minute for each peer and reason: who is refused tries again and again. to is whom this node dialled;
// a dialler's port is new each time and tells nothing.
func (t *Transport) sayRefused(what string, e *HandshakeError, to sharding.NodeID) {
	peer := e.Addr
	if host, _, err := net.SplitHostPort(e.Addr); err == nil && to == "" {
		peer = host
	}
	level := slog.LevelWarn
	if e.passing() {
		level = slog.LevelDebug
	}
	ok, hidden := t.refusals.Pass(what + "|" + peer + "|" + e.Reason.String())
	if !ok {
		return
	}
	attrs := []any{"peer", e.Addr, "reason", e.Reason.String(), "error", e}
	if to != "" {
		attrs = append(attrs, "to", to)
	}
	if hidden > 0 {
		attrs = append(attrs, "repeated", hidden)
	}
	t.log.Log(t.ctx, level, what, attrs...)
}

// inbound is the stream of one (peer, class) that is being read.
type inbound struct {
	conn  *conn
	ended chan struct{}
}

var errSuperseded = errors.New("the peer has opened this stream anew")

// enter makes a stream the only one of its (peer, class). One that is still there is ended, and has reported Closed before
// enter returns: so a peer's reconnect is never seen before the end of what it replaces.
func (t *Transport) enter(c *conn) *inbound {
	key := linkKey{c.peer.Member, c.class}
	mine := &inbound{conn: c, ended: make(chan struct{})}
	t.inMu.Lock()
	before := t.inbound[key]
	t.inbound[key] = mine
	t.inMu.Unlock()
	if before != nil {
		before.conn.abort(errSuperseded)
		<-before.ended
	}
	return mine
}

func (t *Transport) leave(in *inbound) {
	key := linkKey{in.conn.peer.Member, in.conn.class}
	t.inMu.Lock()
	if t.inbound[key] == in {
		delete(t.inbound, key)
	}
	t.inMu.Unlock()
	close(in.ended)
}

// serveStream reads one inbound stream to its end.
func (t *Transport) serveStream(c *conn, ready func() error, s inStream) error {
	in := t.enter(c)
	defer t.leave(in)
	t.handler.Opened(c.peer, c.class)
	err := ready()
	for err == nil {
		err = t.readBatch(c, s)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	err = c.why(err)
	t.handler.Closed(c.peer, c.class, err)
	t.afterClosed(c.peer.Member)
	return err
}

func (t *Transport) readBatch(c *conn, s inStream) error {
	name := c.peer.Member.Node
	t.cfg.Faults.gate(s.context(), name, c.class)
	data, release, err := s.receive()
	if err != nil {
		return err
	}
	defer release()
	// A fault that began during receive counts too.
	t.cfg.Faults.gate(s.context(), name, c.class)
	t.cfg.Faults.delay(s.context(), In, name, c.class)
	if c.ended.Load() {
		return net.ErrClosed
	}
	count := &t.counters.classes[c.class]
	count.batchesReceived.Add(1)
	return eachFrame(data, c.class.maxFrame(), func(frame []byte) {
		if t.cfg.Faults.drops(In, name, c.class) {
			return
		}
		count.framesReceived.Add(1)
		count.bytesReceived.Add(uint64(len(frame)))
		t.handler.Frame(c.peer, c.class, frame)
	})
}

// afterClosed ends the links to a member that was reachable only because it was connected.
func (t *Transport) afterClosed(m sharding.Member) {
	if _, ok := t.address(m); !ok {
		t.dropUnwanted(func(sharding.Member) bool { return false })
	}
}

func (t *Transport) serveCall(ctx context.Context, c *conn, method string, body []byte) ([]byte, error) {
	t.cfg.Faults.gate(ctx, c.peer.Member.Node, Call)
	t.cfg.Faults.delay(ctx, In, c.peer.Member.Node, Call)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.counters.classes[Call].framesReceived.Add(1)
	t.counters.classes[Call].bytesReceived.Add(uint64(len(body)))
	return t.handler.Call(ctx, c.peer, method, body)
}
