package host

import "sync"

// memories is where the instances of one strategy get their memory from, and
// give it back to. The first touch of a page costs more than all else in making
// an instance: the pages are kept. Growing within a buffer copies nothing.
type memories struct {
	mu   sync.Mutex
	free [][]byte // zero up to their capacity
}

// allocate returns the memory of an instance, of at most so many bytes.
func (m *memories) allocate(most uint64) *linearMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &linearMemory{from: m, most: most}
	if n := len(m.free); n > 0 {
		l.buf = m.free[n-1][:0]
		m.free[n-1] = nil
		m.free = m.free[:n-1]
	}
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
		clear(l.buf[l.cut:])
		l.buf = l.buf[:l.cut]
		return l.buf
	}
	if size > l.most {
		return nil
	}
	if size > uint64(cap(l.buf)) {
		next := make([]byte, size, min(l.most, 2*size))
		copy(next, l.buf)
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
	clear(l.buf)
	l.from.mu.Lock()
	defer l.from.mu.Unlock()
	if len(l.from.free) < poolSize() {
		l.from.free = append(l.from.free, l.buf)
	}
	l.buf = nil
}
