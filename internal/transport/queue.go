package transport

import (
	"encoding/binary"
	"fmt"
	"iter"
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
	bytes  int              // of the frames alone
	bulk   iter.Seq[[]byte] // instead of data: frames that are made when their turn has come
}

// maxBulks is how many bulks may wait in a queue: they keep in memory what they are made from.
const maxBulks = 1

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
	bulks     int
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
	if tail == nil || tail.bulk != nil || len(*tail.data)+need > batchSize {
		tail = newBatch(need)
		q.batches = append(q.batches, tail)
	}
	tail.add(frame)
	q.frames++
	q.bytes += len(frame)
	return true
}

func (b *batch) add(frame []byte) {
	*b.data = binary.AppendUvarint(*b.data, uint64(len(frame)))
	*b.data = append(*b.data, frame...)
	b.frames++
	b.bytes += len(frame)
}

// single makes a batch of one frame.
func single(frame []byte) *batch {
	b := newBatch(len(frame) + binary.MaxVarintLen32)
	b.add(frame)
	return b
}

// addBulk puts a bulk at the end. It says no when there is one already.
func (q *queue) addBulk(frames iter.Seq[[]byte]) bool {
	if q.bulks >= maxBulks {
		return false
	}
	q.batches = append(q.batches, &batch{bulk: frames})
	q.bulks++
	return true
}

// head is the size of the next batch, 0 when there is none; a bulk is as large as one gets.
func (q *queue) head() int {
	switch {
	case len(q.batches) == 0:
		return 0
	case q.batches[0].bulk != nil:
		return batchSize
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
	if b.bulk != nil {
		q.bulks--
	}
	return b
}

// drop empties the queue and says how many frames were in it, a bulk counted as one.
func (q *queue) drop() int {
	n := q.frames + q.bulks
	for _, b := range q.batches {
		if b.bulk == nil {
			freeBatchData(b.data)
		}
	}
	q.batches, q.frames, q.bytes, q.bulks = nil, 0, 0, 0
	return n
}

// eachFrame takes a batch apart. A frame above most bytes is an error, as is what is no batch.
func eachFrame(data []byte, most int, do func(frame []byte)) error {
	for len(data) > 0 {
		n, used := binary.Uvarint(data)
		switch {
		case used <= 0 || n > uint64(len(data)-used):
			return fmt.Errorf("malformed batch: frame of %d bytes, %d left", n, len(data))
		case n > uint64(most):
			return fmt.Errorf("the peer sent a frame of %d bytes, at most %d are allowed: it runs another release", n, most)
		}
		do(data[used : used+int(n) : used+int(n)])
		data = data[used+int(n):]
	}
	return nil
}
