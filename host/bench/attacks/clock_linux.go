package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is how long the calling thread has run on a processor; ok is false
// where that cannot be had.
func threadTime() (d time.Duration, ok bool) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err == nil
}
