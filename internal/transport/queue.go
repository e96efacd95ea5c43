package transport

import (
	"encoding/binary"
	"fmt"
	"sync"
)

const (
	batchSize  = 64 << 10 // frames are coalesced up to this
	smallBatch = 4 << 10  // below this the writer yields once, so that more senders get in (figures.md: three times the asks)
)

// batch is a row of frames, each with its length (uvarint) before it.
type batch struct {
	data   *[]byte
	frames int
	bytes  int // of the frames alone
}

var batchPool = sync.Pool{New: func() any {
	b := make([]byte, 0, batchSize)
	return &b
}}

func newBatch(need int) *batch {
	if need > batchSize {
		b := make([]byte, 0, need)
		return &batch{data: &b}
	}
	b := batchPool.Get().(*[]byte)
	*b = (*b)[:0]
	return &batch{data: b}
}

func freeBatchData(b *[]byte) {
	if cap(*b) == batchSize {
		batchPool.Put(b)
	}
}

// queue holds frames in order, already in batches, within bounds. It has no lock of its own.
type queue struct {
	batches   []*batch
	frames    int
	bytes     int
	maxFrames int
	maxBytes  int
}

// add copies a frame in. It says no when a bound would be passed; a single frame always fits an empty queue.
func (q *queue) add(frame []byte) bool {
	if q.frames > 0 && (q.frames >= q.maxFrames || q.bytes+len(frame) > q.maxBytes) {
		return false
	}
	need := len(frame) + binary.MaxVarintLen32
	var tail *batch
	if n := len(q.batches); n > 0 {
		tail = q.batches[n-1]
	}
	if tail == nil || len(*tail.data)+need > batchSize {
		tail = newBatch(need)
		q.batches = append(q.batches, tail)
	}
	*tail.data = binary.AppendUvarint(*tail.data, uint64(len(frame)))
	*tail.data = append(*tail.data, frame...)
	tail.frames++
	tail.bytes += len(frame)
	q.frames++
	q.bytes += len(frame)
	return true
}

// head is the size of the next batch, 0 when there is none.
func (q *queue) head() int {
	if len(q.batches) == 0 {
		return 0
	}
	return len(*q.batches[0].data)
}

func (q *queue) pop() *batch {
	b := q.batches[0]
	q.batches[0] = nil
	if q.batches = q.batches[1:]; len(q.batches) == 0 {
		q.batches = nil
	}
	q.frames -= b.frames
	q.bytes -= b.bytes
	return b
}

// drop empties the queue and says how many frames were in it.
func (q *queue) drop() int {
	n := q.frames
	for _, b := range q.batches {
		freeBatchData(b.data)
	}
	q.batches, q.frames, q.bytes = nil, 0, 0
	return n
}

// eachFrame takes a batch apart.
func eachFrame(data []byte, do func(frame []byte)) error {
	for len(data) > 0 {
		n, used := binary.Uvarint(data)
		if used <= 0 || n > uint64(len(data)-used) {
			return fmt.Errorf("malformed batch: frame of %d bytes, %d left", n, len(data))
		}
		do(data[used : used+int(n) : used+int(n)])
		data = data[used+int(n):]
	}
	return nil
}
