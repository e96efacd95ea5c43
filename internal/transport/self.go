package transport

import (
	"slices"
	"sync"
)

// selfLink takes frames from this node to itself, through the same queue and handler as any other.
type selfLink struct {
	mu     sync.Mutex
	cond   sync.Cond
	q      queue
	ended  chan struct{} // closed by runSelf
	ending bool          // ends once the queue is empty
	closed bool          // ends at once
}

// SelfPeer is how this node appears to its own handler.
func (t *Transport) SelfPeer() Peer {
	id := t.identity()
	return Peer{
		Member: t.cfg.Self, Roles: slices.Clone(t.cfg.Roles), Coordinator: slices.Contains(t.cfg.Roles, CoordinatorRole),
		ClusterID: id.self.clusterID, Version: t.cfg.Versions.Newest, Addr: t.cfg.Advertise,
	}
}

func (t *Transport) sendSelf(class Class, add func(*queue) bool) error {
	t.mu.Lock()
	l := t.self[class]
	if l == nil && !t.closed {
		l = &selfLink{ended: make(chan struct{})}
		l.cond.L = &l.mu
		l.q.maxFrames, l.q.maxBytes = t.cfg.QueueFrames, t.cfg.QueueBytes
		t.self[class] = l
		t.work.Go(func() { t.runSelf(l, class) })
	}
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.ending {
		return ErrClosed
	}
	if !add(&l.q) {
		t.counters.classes[class].rejected.Add(1)
		return ErrBackPressure
	}
	l.cond.Signal()
	return nil
}

func (t *Transport) runSelf(l *selfLink, class Class) {
	defer close(l.ended)
	me := t.SelfPeer()
	t.handler.Opened(me, class)
	t.handler.Up(me.Member, class)
	for {
		b, err := l.next()
		if b == nil {
			t.handler.Closed(me, class, err)
			t.handler.Down(me.Member, class, err)
			return
		}
		if b.bulk != nil {
			for frame := range b.bulk {
				if !l.isClosed() && len(frame) <= class.maxFrame() {
					t.handler.Frame(me, class, frame)
				}
			}
			continue
		}
		// The queue made these lengths: they fit.
		_ = eachFrame(*b.data, class.maxFrame(), func(frame []byte) { t.handler.Frame(me, class, frame) })
		freeBatchData(b.data)
	}
}

// next waits for a batch. nil is the end; the error tells whether anything was lost.
func (l *selfLink) next() (*batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.q.batches) == 0 && !l.closed && !l.ending {
		l.cond.Wait()
	}
	switch {
	case l.closed:
		l.q.drop()
		return nil, ErrClosed
	case len(l.q.batches) == 0:
		return nil, nil
	default:
		return l.q.pop(), nil
	}
}

func (l *selfLink) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *selfLink) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
	l.cond.Broadcast()
}

func (l *selfLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.cond.Broadcast()
}
