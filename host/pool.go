package host

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// pool hands out instances. It makes them as they are asked for, keeps idle
// ones, and bounds how many there are: each may hold as much memory as its
// limit.
type pool struct {
	slots chan struct{} // one token for each instance in use
	make  func(ctx context.Context, budget time.Duration) (*instance, error)

	mu     sync.Mutex
	idle   []*instance
	closed bool
}

// poolSize is how many calls of one strategy run at a time.
func poolSize() int { return max(2, runtime.GOMAXPROCS(0)) }

func newPool(make_ func(context.Context, time.Duration) (*instance, error)) *pool {
	return &pool{slots: make(chan struct{}, poolSize()), make: make_}
}

var errClosed = errors.New("strategy is closed")

// get waits for a slot and returns an instance, and when the wait was over:
// that other calls were under way is not for the call's budget to pay. Making
// an instance may take as long as the budget; 0 sets no bound.
func (p *pool) get(ctx context.Context, budget time.Duration) (in *instance, since time.Time, err error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, time.Time{}, context.Cause(ctx)
	}
	since = time.Now()
	in, err = p.pop()
	if in == nil && err == nil {
		in, err = p.make(ctx, budget)
	}
	if err != nil {
		<-p.slots
		return nil, since, err
	}
	return in, since, nil
}

func (p *pool) pop() (*instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	in := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return in, nil
}

// put gives an instance back; one that cannot be used again is closed.
func (p *pool) put(in *instance, reusable bool) error {
	p.mu.Lock()
	reusable = reusable && !p.closed
	if reusable {
		p.idle = append(p.idle, in)
	}
	p.mu.Unlock()
	<-p.slots
	if reusable {
		return nil
	}
	return in.close()
}

// close closes the idle instances; those in use are closed as they come back.
func (p *pool) close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var errs []error
	for _, in := range idle {
		errs = append(errs, in.close())
	}
	return errors.Join(errs...)
}
