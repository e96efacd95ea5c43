package simulation

// event is something that will happen at a virtual time. Where proc is set it happens inside that process: not at all once the process
// is dead, and late while it is stopped by SIGSTOP.
type event struct {
	at   int64 // virtual nanoseconds
	seq  uint64
	proc *process
	do   func()
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.seq < o.seq
}

// queue is a binary heap of events ordered by time, then by when they were scheduled, so that the order is total.
type queue struct{ heap []event }

func (q *queue) push(e event) {
	h := append(q.heap, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].before(&e) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	q.heap = h
}

func (q *queue) pop() event {
	h := q.heap
	top := h[0]
	last := h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if last.before(&h[child]) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	q.heap = h
	return top
}
