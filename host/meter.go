package host

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// hostCallCost is what every call of a host function costs, beside one unit
// for each byte that it moves (spec 1.3). All host calls are charged, not just
// those that move bytes: crossing the boundary costs some 50 ns, and a guest
// that does nothing else must not run 500 times longer than its fuel says.
const hostCallCost = 100

// A guest gets its fuel in slices, and calls back when one is used up. What a
// unit takes is up to the guest: 0.2 ns for plain code, 150 where each one waits
// for memory. Between two call-backs nobody can stop it, not even Go's collector,
// for which all the rest of the process then waits. So a slice is
//
//   - at most maxSlice: a call-back takes 0.1 µs, less than a hundredth of what
//     even the quickest guest needs for that much, and the slowest is back in 8 ms,
//   - what takes sliceTime at the pace of the last one, at most twice as much as
//     that, at least minSlice,
//   - towards the end of the budget so little that it ends no more than slack
//     behind it even at the worst of paces.
//
// No guest can see a slice: it does not change what a call costs, or where it
// runs out.
const (
	maxSlice  = 40_000
	minSlice  = 1_000
	sliceTime = 250 * time.Microsecond
	slack     = time.Millisecond
	worstUnit = 200 * time.Nanosecond
)

// readByte is what it takes to read a byte of an answer, at most: one that is
// nothing but reasons that have to be escaped. Moves without a reason take a
// half. That cannot be stopped on the way, and so the budget has to leave as much.
const readByte = 8 * time.Nanosecond

// stop is what the host panics with inside a call-back to unwind the guest;
// wazero hands it back as the error of the call.
type stop struct {
	verdict Verdict
	detail  string
	cause   error
}

func (s *stop) Error() string { return s.detail }
func (s *stop) Unwrap() error { return s.cause }

// meter keeps the fuel and the clock of the one call that an instance runs.
type meter struct {
	left     api.MutableGlobal // the guest's counter: what is left of the slice
	slice    int64
	limit    int64 // of the whole call
	rest     int64 // of limit, not yet handed out
	ctx      context.Context
	budget   time.Duration // 0: only ctx ends the call
	deadline time.Time
	looked   time.Time // at the clock, the last time
	granted  int64     // what the guest could spend then
	size     int64     // of the slice that the pace allows
}

// begin starts a call with the given limit of fuel, and a budget from since on.
func (m *meter) begin(ctx context.Context, fuel int64, budget time.Duration, since time.Time) {
	m.ctx, m.limit, m.budget = ctx, fuel, budget
	m.size = m.slice
	first := int64(0) // so that the first charge looks at the clock
	if budget <= 0 {
		first = min(fuel, m.slice)
	} else {
		m.looked, m.deadline = time.Now(), since.Add(budget)
		if remaining := m.deadline.Sub(m.looked); remaining > 0 {
			first = min(fuel, m.nextSlice(remaining))
		}
	}
	m.granted, m.rest = first, fuel-first
	m.left.Set(uint64(first))
}

// used returns the fuel spent since begin; it is above the limit when the last
// charge of a call, which the guest does not check, went over it.
func (m *meter) used() int64 {
	return m.limit - m.rest - int64(m.left.Get())
}

// refill answers the guest's call-back: left is what remains of the slice, and
// negative when it was overdrawn. It returns what the guest may go on with, or
// panics with a *stop. Fuel is looked at before the clock, so that a call that
// is out of both has the verdict that every machine agrees on.
func (m *meter) refill(left int64) int64 {
	if m.rest+left < 0 {
		m.left.Set(uint64(left)) // what was spent stays on the books
		panic(m.outOfFuel())
	}
	now, s := m.clock()
	if s != nil {
		panic(s)
	}
	if left < 0 {
		slice := m.slice
		if m.budget > 0 {
			m.pace(m.granted-left, now.Sub(m.looked))
			slice = m.nextSlice(m.deadline.Sub(now))
		}
		grant := min(m.rest, slice-left)
		m.rest -= grant
		left += grant
	}
	m.looked, m.granted = now, left
	return left
}

// pace notes that so many units took so long.
func (m *meter) pace(units int64, took time.Duration) {
	if took > sliceTime {
		m.size = max(minSlice, min(units, m.slice)*int64(sliceTime)/int64(took))
		return
	}
	m.size = min(m.slice, 2*m.size)
}

// nextSlice is how much fuel to hand out when so much of the budget remains.
func (m *meter) nextSlice(remaining time.Duration) int64 {
	return min(m.size, int64((remaining+slack)/worstUnit))
}

// over looks at fuel and clock when the guest has returned: it does not check
// its last charge, and an answer that comes late is none.
func (m *meter) over() *stop {
	if m.used() > m.limit {
		return m.outOfFuel()
	}
	_, s := m.clock()
	return s
}

// timeToRead returns a *stop if what remains of the budget does not suffice to
// read an answer of so many bytes.
func (m *meter) timeToRead(bytes int) *stop {
	if m.budget <= 0 || time.Until(m.deadline) >= time.Duration(bytes)*readByte {
		return nil
	}
	return &stop{verdict: VerdictBudget, detail: fmt.Sprintf("the call took longer than %s, with what it takes to read an answer of %d bytes", m.budget, bytes)}
}

func (m *meter) outOfFuel() *stop {
	return &stop{verdict: VerdictFuel, detail: fmt.Sprintf("all %d units are used", m.limit)}
}

// clock returns what the time is if the call has a budget, and a *stop if that
// is used up or the caller gave up.
func (m *meter) clock() (now time.Time, s *stop) {
	if err := m.ctx.Err(); err != nil {
		cause := context.Cause(m.ctx)
		return now, &stop{verdict: VerdictBudget, detail: "the caller gave up: " + cause.Error(), cause: cause}
	}
	if m.budget <= 0 {
		return now, nil
	}
	if now = time.Now(); now.After(m.deadline) {
		return now, &stop{verdict: VerdictBudget, detail: fmt.Sprintf("the call took longer than %s", m.budget)}
	}
	return now, nil
}

// mustGoOn panics with a *stop if the call has to end here: host calls that can
// take long ask between pieces, as bulk operations do.
func (m *meter) mustGoOn() {
	if _, s := m.clock(); s != nil {
		panic(s)
	}
}

// charge takes the price of a host call before it does its work.
func (m *meter) charge(bytes uint32) {
	left := int64(m.left.Get()) - hostCallCost - int64(bytes)
	if left < 0 {
		left = m.refill(left)
	}
	m.left.Set(uint64(left))
}
