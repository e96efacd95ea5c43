// Package failurepolicy decides when a strategy that keeps failing gives way to
// the last one that worked (spec 1.3). It is pure, and a State is a value that
// can be stored, so that the coordinator keeps it in the replicated state and
// every node counts alike. It imports nothing of this module.
package failurepolicy

import "fmt"

// DefaultMaxFailures is how many failures in a row are taken before going back.
const DefaultMaxFailures = 3

// Outcome is what one decision of the active strategy came to.
type Outcome uint8

// The outcomes.
const (
	Worked     Outcome = iota + 1 // an answer that passed every check
	Failed                        // trap, fuel, depth or bad answer: the same on every machine
	OverBudget                    // the clock ran out: one noisy machine must not change the cluster
)

// String returns a name for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Worked:
		return "worked"
	case Failed:
		return "failed"
	case OverBudget:
		return "over_budget"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Step is what follows from an outcome.
type Step uint8

// The steps.
const (
	Stay   Step = iota // the active strategy goes on
	Revert             // the previous one is active again; State.Rejected names the other
	Stuck              // as many failures, but no other strategy that ever worked
)

// String returns a name for logs and metrics.
func (s Step) String() string {
	switch s {
	case Stay:
		return "stay"
	case Revert:
		return "revert"
	case Stuck:
		return "stuck"
	}
	return fmt.Sprintf("step(%d)", uint8(s))
}

// State is the standing of one type's strategies. R identifies a strategy with
// all that makes it behave as it does: digest, config and limits.
type State[R comparable] struct {
	Active R
	Proven bool // Active has answered at least once
	InARow int  // failures since Active last worked

	Previous    R // the last other strategy that worked
	HasPrevious bool
	Rejected    R // the last one that was taken off, kept for inspection
	HasRejected bool

	Failures   uint64 // of Active
	OverBudget uint64 // of Active; these never count towards going back
}

// New returns the state of a type whose first strategy is active.
func New[R comparable](active R) State[R] { return State[R]{Active: active} }

// Swap returns the state after another strategy was activated. The one before
// becomes the way back only if it ever worked; otherwise the way back stays.
// Swapping to the active strategy changes nothing.
func (s State[R]) Swap(next R) State[R] {
	if next == s.Active {
		return s
	}
	out := State[R]{Active: next, Previous: s.Previous, HasPrevious: s.HasPrevious, Rejected: s.Rejected, HasRejected: s.HasRejected}
	if s.Proven {
		out.Previous, out.HasPrevious = s.Active, true
	}
	if out.HasPrevious && out.Previous == next {
		var none R
		out.Previous, out.HasPrevious, out.Proven = none, false, true
	}
	return out
}

// After returns the state after an outcome of the active strategy, and what
// follows. maxFailures is the number of failures in a row that end its turn;
// below 1 it is DefaultMaxFailures.
func (s State[R]) After(o Outcome, maxFailures int) (State[R], Step) {
	if maxFailures < 1 {
		maxFailures = DefaultMaxFailures
	}
	switch o {
	case Worked:
		s.Proven, s.InARow = true, 0
	case OverBudget:
		s.OverBudget++
	case Failed:
		s.Failures++
		s.InARow++
		if s.InARow >= maxFailures {
			if next, ok := s.Rollback(); ok {
				return next, Revert
			}
			return s, Stuck
		}
	}
	return s, Stay
}

// Rollback returns the state in which the previous strategy is active again;
// false if there is none.
func (s State[R]) Rollback() (State[R], bool) {
	if !s.HasPrevious {
		return s, false
	}
	return State[R]{Active: s.Previous, Proven: true, Rejected: s.Active, HasRejected: true}, true
}
