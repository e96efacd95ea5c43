// Package boottime reads CLOCK_BOOTTIME, the one clock by which leases are counted: it goes on while the machine is suspended, which Go's
// monotonic clock does not (spec 2.1).
package boottime

import (
	"golang.org/x/sys/unix"

	"github.com/droverhq/drover/sharding"
)

// Now gives the present instant of this machine.
func Now() sharding.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("CLOCK_BOOTTIME cannot be read, so no lease can be counted: " + err.Error()) // the kernel has it since 2.6.39
	}
	return sharding.Instant(ts.Nano())
}
