// Package queue is the inbox of a goroutine that owns a machine.
package queue

import (
	"math"
	"sync"
)

// Queue has many senders and one taker, which takes all there is. Put never waits; PutWait waits while limit items are there, or items
// of a weight of mostWeight in all, and is for senders that the owner never waits for.
type Queue[T any] struct {
	mu         sync.Mutex
	ready      sync.Cond
	room       sync.Cond
	items      []T
	spare      []T
	weight     int // of items, of those that PutWait brought
	limit      int
	mostWeight int
	closed     bool
}

// New makes an empty queue. limit is PutWait's.
func New[T any](limit int) *Queue[T] { return NewWeighed[T](limit, math.MaxInt) }

// NewWeighed makes an empty queue. The bounds are PutWait's: a number of items, and a weight in whatever unit its callers use.
func NewWeighed[T any](limit, mostWeight int) *Queue[T] {
	q := &Queue[T]{limit: limit, mostWeight: mostWeight}
	q.ready.L, q.room.L = &q.mu, &q.mu
	return q
}

// Put adds an item; it returns false once the queue is closed.
func (q *Queue[T]) Put(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(v)
}

// PutWait adds an item once there is room; it returns false once the queue is closed. An item of any weight fits where there is any room.
func (q *Queue[T]) PutWait(v T, weight int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for (len(q.items) >= q.limit || q.weight >= q.mostWeight) && !q.closed {
		q.room.Wait()
	}
	if !q.add(v) {
		return false
	}
	q.weight += weight
	return true
}

func (q *Queue[T]) add(v T) bool {
	if q.closed {
		return false
	}
	q.items = append(q.items, v)
	if len(q.items) == 1 {
		q.ready.Signal()
	}
	return true
}

// Take waits for items and takes them all, in order; they are the taker's until it calls Take again. ok is false once the queue is closed
// and empty.
func (q *Queue[T]) Take() (items []T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.ready.Wait()
	}
	clear(q.spare)
	items, q.items, q.spare, q.weight = q.items, q.spare[:0], q.items, 0
	q.room.Broadcast()
	return items, len(items) > 0
}

// Len counts the items that wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Close lets the taker have what is there, and takes nothing more.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
	q.room.Broadcast()
}
