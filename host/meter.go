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
// for memory. A slice is at most maxSlice, which bounds how long Go's collector
// can be kept waiting, and less towards the end of the budget, so that it ends
// about when the budget does even at the worst of paces; minSlice keeps the
// call-backs from costing more than what is between them. No guest can see a
// slice: it does not change what a call costs, or where it runs out.
const (
	maxSlice  = 200_000
	minSlice  = 10_000
	worstUnit = 200 * time.Nanosecond
)

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
}

// begin starts a call with the given limit of fuel, and a budget from since on.
func (m *meter) begin(ctx context.Context, fuel int64, budget time.Duration, since time.Time) {
	m.ctx, m.limit, m.budget = ctx, fuel, budget
	if budget > 0 {
		m.deadline = since.Add(budget)
	}
	first := int64(0) // so that the first charge looks at the clock
	if remaining := budget - time.Since(since); budget <= 0 || remaining > 0 {
		first = min(fuel, m.nextSlice(remaining))
	}
	m.rest = fuel - first
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
	remaining, s := m.clock()
	if s != nil {
		panic(s)
	}
	if left >= 0 {
		return left
	}
	grant := min(m.rest, m.nextSlice(remaining)-left)
	m.rest -= grant
	return left + grant
}

// nextSlice is how much fuel to hand out when so much of the budget remains.
func (m *meter) nextSlice(remaining time.Duration) int64 {
	if m.budget <= 0 {
		return m.slice
	}
	return min(m.slice, max(minSlice, int64(remaining/worstUnit)))
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

func (m *meter) outOfFuel() *stop {
	return &stop{verdict: VerdictFuel, detail: fmt.Sprintf("all %d units are used", m.limit)}
}

// clock returns what remains of the budget, and a *stop if that is nothing or
// the caller gave up.
func (m *meter) clock() (remaining time.Duration, s *stop) {
	if err := m.ctx.Err(); err != nil {
		cause := context.Cause(m.ctx)
		return 0, &stop{verdict: VerdictBudget, detail: "the caller gave up: " + cause.Error(), cause: cause}
	}
	if m.budget <= 0 {
		return 0, nil
	}
	if remaining = time.Until(m.deadline); remaining < 0 {
		return 0, &stop{verdict: VerdictBudget, detail: fmt.Sprintf("the call took longer than %s", m.budget)}
	}
	return remaining, nil
}

// charge takes the price of a host call before it does its work.
func (m *meter) charge(bytes uint32) {
	left := int64(m.left.Get()) - hostCallCost - int64(bytes)
	if left < 0 {
		left = m.refill(left)
	}
	m.left.Set(uint64(left))
}
