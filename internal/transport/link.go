package transport

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/droverhq/drover/sharding"
)

// link is the sending side of one (peer, class): a queue, and a goroutine that keeps a stream to the peer.
//
// Frames that Send accepts belong to one generation. It ends with exactly one Down, before which all of its frames have been
// delivered in order, or a tail of them is lost. Between Down's beginning and its return, and while a peer cannot be reached,
// nothing is accepted.
type link struct {
	t     *Transport
	to    sharding.Member
	class Class

	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed by run

	mu       sync.Mutex
	q        queue
	refusing error // nil: frames are accepted
	up       bool
	asleep   bool // the writer waits for wake
	draining bool
	wake     chan struct{} // holds one token
}

func newLink(t *Transport, to sharding.Member, class Class) *link {
	l := &link{t: t, to: to, class: class, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.q.maxFrames, l.q.maxBytes = t.cfg.QueueFrames, t.cfg.QueueBytes
	l.ctx, l.cancel = context.WithCancelCause(t.ctx)
	return l
}

func (l *link) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// send queues what add puts into the queue.
func (l *link) send(add func(*queue) bool) error {
	l.mu.Lock()
	err := l.refusing
	if err == nil && l.draining {
		err = ErrClosed
	}
	if err == nil && !add(&l.q) {
		err = ErrBackPressure
	}
	if err == nil {
		l.rouse()
	}
	l.mu.Unlock()
	if err != nil {
		l.t.counters.classes[l.class].rejected.Add(1)
	}
	return err
}

// drain lets the writer finish the stream once the queue is empty.
func (l *link) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	l.rouse()
}

// rouse wakes a sleeping writer. A token too many, left over from a stream that broke while its writer slept, only makes
// the next one look at its queue in vain. The caller holds mu.
func (l *link) rouse() {
	if !l.asleep {
		return
	}
	l.asleep = false
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// backoff after the nth failure in a row: exponential, with full jitter above a half.
func (l *link) backoff(n int) time.Duration {
	d := l.t.cfg.BackoffMin
	for range min(n, 20) {
		d = min(d*2, l.t.cfg.BackoffMax)
	}
	return d/2 + rand.N(d/2+1)
}

// stableAfter is how long a stream must stand for its end to be answered by a new attempt at once.
const stableAfter = time.Second

func (l *link) run() {
	defer close(l.ended)
	defer l.t.dropLink(l)
	defer l.cancel(nil)
	for failures := 0; l.ctx.Err() == nil; {
		stream, err := l.connect()
		if err == nil {
			began := time.Now()
			stop := context.AfterFunc(l.ctx, stream.close) // a writer that waits for a peer which does not read looks at no context
			l.setUp()
			err = l.pump(stream)
			stop()
			stream.close()
			l.t.counters.classes[l.class].breaks.Add(1)
			if time.Since(began) >= stableAfter {
				failures = 0
			}
			immediate := time.Since(began) >= stableAfter && !l.isDraining()
			l.down(err, immediate)
			if immediate {
				continue
			}
		} else {
			l.down(err, false)
		}
		if l.isDraining() {
			return
		}
		if !l.pause(l.backoff(failures)) {
			return
		}
		failures++
	}
	l.down(context.Cause(l.ctx), false)
}

// pause waits, and says whether the link is still wanted.
func (l *link) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *link) connect() (outStream, error) {
	addr, ok := l.t.address(l.to)
	if !ok {
		return nil, ErrUnknownPeer
	}
	ctx, cancel := context.WithTimeout(l.ctx, 2*l.t.cfg.HandshakeTimeout)
	defer cancel()
	c, err := l.t.dial(ctx, addr, l.class, l.to)
	if err != nil {
		return nil, err
	}
	stream, err := l.t.carrier.open(ctx, c)
	if err != nil {
		c.Close()
		return nil, c.why(err)
	}
	return stream, nil
}

func (l *link) setUp() {
	l.mu.Lock()
	l.up, l.refusing = true, nil
	l.mu.Unlock()
	l.t.handler.Up(l.to, l.class) // who hears it may send at once
}

// down ends a generation, if there is one. Afterwards frames are accepted again only if accept says so.
func (l *link) down(err error, accept bool) {
	if cause := context.Cause(l.ctx); cause != nil {
		err = cause
	}
	l.mu.Lock()
	open := l.refusing == nil
	l.up = false
	l.refusing = &UnavailableError{Member: l.to, Err: err}
	if l.draining || l.ctx.Err() != nil {
		l.refusing = err
		if err == nil {
			l.refusing = ErrClosed
		}
	}
	lost := l.q.drop()
	l.mu.Unlock()
	l.t.counters.classes[l.class].framesLost.Add(uint64(lost))
	if !open {
		return
	}
	l.t.handler.Down(l.to, l.class, err)
	if accept {
		l.mu.Lock()
		l.refusing = nil
		l.mu.Unlock()
	}
}

// pump writes batches until the stream or the link ends.
func (l *link) pump(stream outStream) error {
	yielded := false
	for {
		l.mu.Lock()
		size := l.q.head()
		if size == 0 {
			if l.draining {
				l.mu.Unlock()
				return l.finish(stream)
			}
			l.asleep = true
			l.mu.Unlock()
			select {
			case <-l.wake:
			case <-stream.done():
				return streamEnd(stream)
			case <-l.ctx.Done():
				return context.Cause(l.ctx)
			}
			continue
		}
		if size < smallBatch && !yielded {
			l.mu.Unlock()
			yielded = true
			runtime.Gosched()
			continue
		}
		b := l.q.pop()
		l.mu.Unlock()
		yielded = false
		err := error(nil)
		if b.bulk != nil {
			err = l.writeBulk(stream, b.bulk)
		} else {
			err = l.write(stream, b)
		}
		if err != nil {
			return err
		}
	}
}

func (l *link) writeBulk(stream outStream, frames iter.Seq[[]byte]) error {
	for frame := range frames {
		if len(frame) > l.class.maxFrame() {
			l.t.counters.classes[l.class].rejected.Add(1)
			continue
		}
		if err := l.write(stream, single(frame)); err != nil {
			l.t.counters.classes[l.class].framesLost.Add(1)
			return err
		}
	}
	return nil
}

// write hands a batch to the stream, and waits while the peer reads slowly.
func (l *link) write(stream outStream, b *batch) error {
	l.t.cfg.Faults.delay(l.ctx, Out, l.to.Node, l.class)
	frames, bytes := b.frames, b.bytes // the batch may be another's afterwards
	if err := stream.send(b); err != nil {
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		<-stream.done() // knows why
		return streamEnd(stream)
	}
	count := &l.t.counters.classes[l.class]
	count.batchesSent.Add(1)
	count.framesSent.Add(uint64(frames))
	count.bytesSent.Add(uint64(bytes))
	return nil
}

// finish ends a stream whose queue is empty, and waits for the peer to have handed all over.
func (l *link) finish(stream outStream) error {
	if err := stream.finish(); err != nil {
		return fmt.Errorf("end the stream: %w", err)
	}
	select {
	case <-stream.done():
		return stream.err()
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

var errPeerEnded = errors.New("the peer ended the stream")

func streamEnd(stream outStream) error {
	if err := stream.err(); err != nil {
		return err
	}
	return errPeerEnded
}
