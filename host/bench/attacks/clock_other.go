//go:build !linux

package main

import "time"

// threadTime is how long the calling thread has run on a processor; ok is false
// where that cannot be had.
func threadTime() (d time.Duration, ok bool) { return 0, false }
