package controlplane

import (
	"sync"

	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// queue is an unbounded queue with one taker, which takes all there is. It is unbounded because raft, the transport and the strategies' workers must
// never wait for the owner while the owner waits for them; what fills it is bounded by those senders.
type queue[T any] struct {
	mu     sync.Mutex
	ready  sync.Cond
	items  []T
	closed bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.ready.L = &q.mu
	return q
}

// put adds an item; it returns false once the queue is closed.
func (q *queue[T]) put(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.items = append(q.items, v)
	q.ready.Signal()
	return true
}

// take waits for items and takes them all, in order. ok is false once the queue is closed and empty.
func (q *queue[T]) take() (items []T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.ready.Wait()
	}
	items, q.items = q.items, nil
	return items, len(items) > 0
}

func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
}

// item is an event for the machine, or a call to run beside it.
type item struct {
	event coordinator.Event
	call  func()
}

type (
	inbox     = queue[item]
	proposals = queue[*protocol.Entry]
)

func newInbox() *inbox         { return newQueue[item]() }
func newProposals() *proposals { return newQueue[*protocol.Entry]() }
