package entity

import (
	"runtime"
	"sync"
	"time"
)

// Pool is the workers of a node, shared by all its types. It keeps as many as there are processors, and grows while all of them are
// held up by handlers that block: one blocking handler never stalls unrelated entities for longer than a few milliseconds.
//
// Goroutines: the workers, and one monitor, which sleeps while nothing waits. Close ends them all, once their present message is done.
type Pool struct {
	mu      sync.Mutex
	work    sync.Cond // queue is not empty, or closed
	watch   sync.Cond // the monitor's: something waits, or closed
	queue   []*cell   // from head on
	head    int
	idle    int
	workers int
	base    int
	max     int
	taken   uint64 // cells taken so far: shows progress to the monitor
	closed  bool
	wg      sync.WaitGroup
}

const (
	// growEvery is how long a waiting cell may see no progress before the pool grows.
	growEvery  = time.Millisecond
	maxWorkers = 16384
)

// NewPool starts an empty pool.
func NewPool() *Pool {
	p := &Pool{base: runtime.GOMAXPROCS(0), max: maxWorkers}
	p.work.L, p.watch.L = &p.mu, &p.mu
	p.wg.Add(1)
	go p.monitor()
	return p
}

// Close waits until no worker runs. Cells that wait are not run.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.watch.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}

// submit queues a cell, which is in no queue.
func (p *Pool) submit(c *cell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.queue = append(p.queue, c)
	switch {
	case p.idle > 0:
		p.work.Signal()
	case p.workers < p.base:
		p.spawn()
	default:
		p.watch.Signal()
	}
}

// spawn starts n workers; p.mu is held.
func (p *Pool) spawn() {
	p.workers++
	p.wg.Add(1)
	go p.run()
}

func (p *Pool) run() {
	defer p.wg.Done()
	for {
		p.mu.Lock()
		for p.head == len(p.queue) && !p.closed && p.workers <= p.base {
			p.idle++
			p.work.Wait()
			p.idle--
		}
		if p.closed || p.head == len(p.queue) { // closed, or nothing to do and more workers than needed
			p.workers--
			p.mu.Unlock()
			return
		}
		c := p.queue[p.head]
		p.queue[p.head] = nil
		p.head++
		p.taken++
		switch {
		case p.head == len(p.queue):
			p.queue, p.head = p.queue[:0], 0
		case p.head >= 1024 && p.head*2 >= len(p.queue): // no queue that is never empty may grow for ever
			p.queue = append(p.queue[:0], p.queue[p.head:]...)
			p.head = 0
		}
		p.mu.Unlock()
		c.run()
	}
}

// monitor adds workers while cells wait and none is taken.
func (p *Pool) monitor() {
	defer p.wg.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	for step := 1; !p.closed; {
		if p.head == len(p.queue) {
			step = 1
			p.watch.Wait()
			continue
		}
		before := p.taken
		p.mu.Unlock()
		time.Sleep(growEvery)
		p.mu.Lock()
		if p.taken != before {
			step = 1
			continue
		}
		for i := 0; i < step && p.workers < p.max && p.head < len(p.queue) && !p.closed; i++ {
			p.spawn()
		}
		step = min(2*step, 256)
	}
}
