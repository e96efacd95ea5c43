package main

import (
	"context"
	"time"
)

// watch is the context of one call. The host asks a context whether it has ended
// at each look at the clock, and so the watch sees when the looks are, on the
// thread of the call. Between two of them a guest can be stopped by nobody, not
// even by Go's collector.
//
// What it counts is the time of the thread where that can be had: a machine that
// gives its processors to others in between is not the host's doing.
type watch struct {
	context.Context
	started  time.Time
	deadline time.Time
	thread   time.Duration // of the last look
	looks    int
	unlooked time.Duration // the longest between two looks
	// The last look before the deadline.
	inTime       time.Time
	inTimeThread time.Duration
}

func newWatch(ctx context.Context, budget time.Duration) *watch {
	now := time.Now()
	thread := clock(now)
	return &watch{Context: ctx, started: now, deadline: now.Add(budget), thread: thread, inTime: now, inTimeThread: thread}
}

// clock is the thread's time, or else the wall's.
func clock(now time.Time) time.Duration {
	if d, ok := threadTime(); ok {
		return d
	}
	return time.Duration(now.UnixNano())
}

// Err implements context.Context.
func (w *watch) Err() error {
	now := time.Now()
	thread := clock(now)
	if w.looks++; w.looks > 1 { // before is what makes the instance ready
		w.unlooked = max(w.unlooked, thread-w.thread)
	}
	w.thread = thread
	if now.Before(w.deadline) {
		w.inTime, w.inTimeThread = now, thread
	}
	return nil
}

// timing is what one call took.
type timing struct {
	took    time.Duration
	overrun time.Duration // of the budget, by the wall's clock
	// own is what the overrun would have been had the thread not lost its
	// processor since its last look in time; counts is false where it would
	// have looked once more before the deadline, so that there is no telling.
	own      time.Duration
	counts   bool
	unlooked time.Duration
	tail     time.Duration // the thread's, from the last look to the end
}

// end tells what the call took that has just ended.
func (w *watch) end() timing {
	now := time.Now()
	thread := clock(now)
	own := w.inTime.Add(thread - w.inTimeThread).Sub(w.deadline)
	return timing{
		took:     now.Sub(w.started),
		overrun:  max(0, now.Sub(w.deadline)),
		own:      own,
		counts:   own > 0,
		unlooked: w.unlooked,
		tail:     thread - w.thread,
	}
}
