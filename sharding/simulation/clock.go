package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
)

// maxDrift bounds how far a clock's rate is from 1. Two clocks then differ by less than the lease margin of TTL/10 (spec 2.1):
// 1.04/0.96 = 1.083.
const maxDrift = 0.04

// clock is one computer's CLOCK_BOOTTIME (offset and rate of its own, going on while processes are stopped) and its wall clock, which also jumps.
type clock struct {
	offset int64
	rate   float64
	jump   time.Duration // of the wall clock
}

// at gives the boot time at a virtual time.
func (c *clock) at(global int64) sharding.Instant {
	return sharding.Instant(c.offset + int64(float64(global)*c.rate))
}

// span gives the virtual nanoseconds in which this clock runs for d.
func (c *clock) span(d time.Duration) int64 {
	return int64(float64(d) / c.rate)
}

// wall gives milliseconds since 1970.
func (c *clock) wall(global int64) int64 {
	const epoch = 1_700_000_000_000
	return epoch + (int64(float64(global)*c.rate)+int64(c.jump))/int64(time.Millisecond)
}
