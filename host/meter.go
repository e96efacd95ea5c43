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

// sliceUnits is how much fuel the guest gets before it has to call back. It
// stands for about a millisecond of work and is a constant for each engine, so
// that nothing a guest can see depends on a clock: the size of a slice does
// not change what a call costs, or where it runs out.
func (e Engine) sliceUnits() int64 {
	if e == Interpreter {
		return 100_000
	}
	return 5_000_000
}

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
	first := min(fuel, m.slice)
	if budget > 0 && time.Since(since) > budget {
		first = 0 // so that the first charge looks at the clock
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
		panic(&stop{verdict: VerdictFuel, detail: fmt.Sprintf("all %d units are used", m.limit)})
	}
	m.checkClock()
	if left >= 0 {
		return left
	}
	grant := min(m.rest, m.slice-left)
	m.rest -= grant
	return left + grant
}

// checkClock panics with a *stop if the caller gave up or the budget is over.
func (m *meter) checkClock() {
	if err := m.ctx.Err(); err != nil {
		cause := context.Cause(m.ctx)
		panic(&stop{verdict: VerdictBudget, detail: "the caller gave up: " + cause.Error(), cause: cause})
	}
	if m.budget > 0 && time.Now().After(m.deadline) {
		panic(&stop{verdict: VerdictBudget, detail: fmt.Sprintf("the call took longer than %s", m.budget)})
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
