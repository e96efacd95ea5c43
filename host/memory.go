package host

import (
	"sync"

	"github.com/droverhq/drover/host/internal/fuel"
)

// memories is where the instances of one strategy get their memory from, and
// give it back to. The first touch of a page costs more than all else in making
// an instance: the pages are kept. Growing within a buffer copies nothing.
type memories struct {
	mu   sync.Mutex
	free [][]byte // as long as they were used; zero from there up to their capacity
}

// allocate returns the memory of an instance, of at most so many bytes.
func (m *memories) allocate(most uint64) *linearMemory {
	l := &linearMemory{from: m, most: most}
	m.mu.Lock()
	if n := len(m.free); n > 0 {
		l.buf = m.free[n-1]
		m.free[n-1] = nil
		m.free = m.free[:n-1]
	}
	m.mu.Unlock()
	// It is cleared for the call that wants it and from that one's budget: the
	// call that left it may have used up all of its own.
	clearInPieces(l.buf)
	l.buf = l.buf[:0]
	return l
}

// linearMemory is the memory of one instance. What lies between length and
// capacity is zero.
type linearMemory struct {
	from *memories
	most uint64
	buf  []byte
	cut  uint64 // unless 0, Reallocate cuts to so many bytes instead; see instance.shrink
}

// Reallocate implements experimental.LinearMemory.
func (l *linearMemory) Reallocate(size uint64) []byte {
	if l.cut > 0 {
		clearInPieces(l.buf[l.cut:])
		l.buf = l.buf[:l.cut]
		return l.buf
	}
	if size > l.most {
		return nil
	}
	if size > uint64(cap(l.buf)) {
		// What grows gets all the room there is: copying takes as long as it takes,
		// with nobody looking at the clock, and pages that are not touched cost
		// nothing.
		room := l.most
		if l.buf == nil {
			room = min(l.most, 2*size)
		}
		next := make([]byte, size, room)
		copyInPieces(next, l.buf)
		l.buf = next
	}
	l.buf = l.buf[:size]
	return l.buf
}

// Free implements experimental.LinearMemory.
func (l *linearMemory) Free() {
	if l.buf == nil {
		return
	}
	l.from.mu.Lock()
	defer l.from.mu.Unlock()
	if len(l.from.free) < poolSize() {
		l.from.free = append(l.from.free, l.buf)
	}
	l.buf = nil
}

// copyInPieces is copy, in pieces like those of a guest's bulk operations: Go
// stops nobody in the middle of one, and whoever collects garbage, or waits for
// that, would wait for 64 MiB.
func copyInPieces(dst, src []byte) int {
	n := min(len(dst), len(src))
	for at := 0; at < n; at += fuel.Piece {
		end := min(at+fuel.Piece, n)
		copy(dst[at:end], src[at:end])
	}
	return n
}

// clearInPieces is clear likewise.
func clearInPieces(b []byte) {
	for len(b) > 0 {
		n := min(len(b), fuel.Piece)
		clear(b[:n])
		b = b[n:]
	}
}
