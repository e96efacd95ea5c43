package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/droverhq/drover/sharding"
)

// caller keeps one connection of class call to a member, made when it is needed.
type caller struct {
	t    *Transport
	to   sharding.Member
	busy chan struct{} // held while dialling

	mu     sync.Mutex
	client callClient
	conn   *conn
	closed bool
}

// Call sends a request to a member and waits for the answer; each up to MaxCall bytes. Requests overtake one another. An
// *UnavailableError, ErrUnknownPeer, ErrTooLarge or ErrClosed means that the peer surely did not begin it, a *RemoteError is the
// handler's own answer, and after any other error its outcome is unknown.
func (t *Transport) Call(ctx context.Context, to sharding.Member, method string, body []byte) ([]byte, error) {
	if len(body) > MaxCall {
		return nil, fmt.Errorf("a request of %d bytes, at most %d are allowed: %w", len(body), MaxCall, ErrTooLarge)
	}
	if len(method) > maxMethod {
		return nil, fmt.Errorf("a method name of %d bytes, at most %d are allowed: %w", len(method), maxMethod, ErrTooLarge)
	}
	if to == t.cfg.Self {
		answer, err := t.handler.Call(ctx, t.SelfPeer(), method, append([]byte(nil), body...))
		if err != nil {
			return nil, &RemoteError{Member: to, Message: err.Error()}
		}
		return answer, nil
	}
	c, err := t.ensureCaller(to)
	if err != nil {
		return nil, err
	}
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	t.cfg.Faults.delay(ctx, Out, to.Node, Call)
	t.counters.classes[Call].framesSent.Add(1)
	t.counters.classes[Call].bytesSent.Add(uint64(len(body)))
	answer, err := client.call(ctx, method, body)
	if err != nil {
		if _, ok := errors.AsType[*RemoteError](err); !ok {
			err = fmt.Errorf("call %s at %s: %w", method, to, err)
		}
		return nil, err
	}
	return answer, nil
}

func (t *Transport) ensureCaller(to sharding.Member) (*caller, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	if c, ok := t.calls[to]; ok {
		return c, nil
	}
	if _, ok := t.addressLocked(to); !ok {
		return nil, fmt.Errorf("%s: %w", to, ErrUnknownPeer)
	}
	c := &caller{t: t, to: to, busy: make(chan struct{}, 1)}
	t.calls[to] = c
	return c, nil
}

// connect gives the client of a connection that stands.
func (c *caller) connect(ctx context.Context) (callClient, error) {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return nil, &UnavailableError{Member: c.to, Err: ctx.Err()}
	}
	c.mu.Lock()
	old, standing := c.client, c.conn != nil && !c.conn.ended.Load()
	c.mu.Unlock()
	if standing {
		return old, nil
	}
	if old != nil {
		old.close()
	}
	addr, ok := c.t.address(c.to)
	if !ok {
		return nil, fmt.Errorf("%s: %w", c.to, ErrUnknownPeer)
	}
	conn, err := c.t.dial(ctx, addr, Call, c.to)
	if err != nil {
		return nil, &UnavailableError{Member: c.to, Err: err}
	}
	client, err := c.t.carrier.calls(conn)
	if err != nil {
		conn.Close()
		return nil, &UnavailableError{Member: c.to, Err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		client.close()
		return nil, ErrClosed
	}
	c.client, c.conn = client, conn
	return client, nil
}

func (c *caller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.client != nil {
		c.client.close()
	}
}
