package host

import (
	"errors"
	"fmt"
)

// Verdict says how one call of a strategy ended (spec 1.6).
type Verdict uint8

// The verdicts. Budget is the only one that depends on a clock: the others are
// the same on every machine for the same module and input.
const (
	VerdictOK      Verdict = iota
	VerdictRefused         // the module never became callable
	VerdictTrap            // the guest trapped, or exited
	VerdictFuel            // the call's fuel was used up
	VerdictDepth           // calls nested beyond the depth limit
	VerdictBudget          // the wall clock ran out, or the caller gave up
	VerdictOutput          // the answer was not one that the host can act on
)

var verdictNames = [...]string{"ok", "refused", "trap", "fuel", "depth", "budget", "output"}

// String returns the name that CLI, HTTP and metrics use.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Verdict) UnmarshalText(b []byte) error {
	for i, name := range verdictNames {
		if name == string(b) {
			*v = Verdict(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", b)
}

// One sentinel a verdict, for errors.Is.
var (
	ErrRefused = errors.New("module refused")
	ErrTrap    = errors.New("strategy trapped")
	ErrFuel    = errors.New("fuel used up")
	ErrDepth   = errors.New("call depth exceeded")
	ErrBudget  = errors.New("time budget used up")
	ErrOutput  = errors.New("bad answer")
)

var verdictSentinels = [...]error{nil, ErrRefused, ErrTrap, ErrFuel, ErrDepth, ErrBudget, ErrOutput}

// CallError is a call that ended in another verdict than ok. errors.Is finds
// the sentinel of its verdict, and its cause.
type CallError struct {
	Verdict Verdict
	Detail  string // one line, deterministic except for VerdictBudget
	Cause   error  // may be nil
}

// Error implements error.
func (e *CallError) Error() string {
	if int(e.Verdict) < len(verdictSentinels) && e.Verdict != VerdictOK {
		return verdictSentinels[e.Verdict].Error() + ": " + e.Detail
	}
	return e.Detail
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Cause }

// Is reports whether target is the sentinel of the verdict.
func (e *CallError) Is(target error) bool {
	return target != nil && int(e.Verdict) < len(verdictSentinels) && verdictSentinels[e.Verdict] == target
}

// VerdictOf returns the verdict that err stands for: VerdictOK for nil,
// VerdictRefused for a *RefusedError, the verdict of a *CallError. The second
// result is false for any other error, which is then the host's own trouble.
func VerdictOf(err error) (Verdict, bool) {
	if err == nil {
		return VerdictOK, true
	}
	refused := errors.Is(err, ErrRefused)
	var call *CallError
	if errors.As(err, &call) && (!refused || errors.Is(call, ErrRefused)) { // else it is the cause of a refusal
		return call.Verdict, true
	}
	return VerdictRefused, refused
}
