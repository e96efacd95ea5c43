package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Check names what a strategy was checked for. The names are stable.
type Check uint8

// The checks.
const (
	CheckAdmitted      Check = iota + 1 // the module and its configuration are admitted
	CheckValid                          // the host can act on the answer
	CheckDeterministic                  // the same input, the same answer
	CheckPure                           // the snapshot is left as it was
	CheckOrder                          // lists that mean sets may have any order
	CheckForward                        // what a later contract adds is passed over
	CheckSettles                        // it comes to an end
	CheckOscillates                     // it does not come back to where it was
	CheckMoves                          // it decides as wanted
	CheckHomes                          // likewise
	CheckMostMoves                      // it moves no more than so many
	CheckFuel                           // it stays within so much fuel
	CheckBudget                         // it stays within so much time
	CheckPins                           // pinned shards stay, or come, where they are pinned
	CheckZones                          // zones have equal parts
	CheckEven                           // nodes have equal parts
	CheckVerdict                        // it ends as wanted
	CheckReason                         // it says why as wanted
	CheckOwners                         // shards are where they are wanted
	CheckLeastMoves                     // it moves no fewer than so many
)

var checkNames = [...]string{"", "admitted", "valid", "deterministic", "pure", "order", "forward", "settles", "oscillates",
	"moves", "homes", "most-moves", "fuel", "budget", "pins", "zones", "even", "verdict", "reason", "owners", "least-moves"}

// String returns the check's name.
func (c Check) String() string {
	if c >= CheckAdmitted && int(c) < len(checkNames) {
		return checkNames[c]
	}
	return fmt.Sprintf("check(%d)", uint8(c))
}

// MarshalText implements encoding.TextMarshaler.
func (c Check) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Fault is what a check found. Its text has several lines: what is wrong, what would have been right, the snapshot, the
// decision, and the input in the form that `drover strategy run --input` reads.
type Fault struct {
	Check    Check
	Strategy string
	What     string // is wrong
	Right    string // would have been right
	Cluster  *Cluster
	Shards   []uint32 // that allocate was asked for
	Answer   *Answer  // nil where it is not about one
	Trail    []string // rounds before, one line each
}

// mostInput is how many shards a cluster has at most whose input is shown for machines too.
const mostInput = 200

// Error implements error.
func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s\n", f.Strategy, f.Check, f.What)
	fmt.Fprintf(&b, "right would have been: %s\n", f.Right)
	if f.Answer != nil {
		fmt.Fprintf(&b, "decision: %s\n", f.Answer)
	}
	for _, line := range f.Trail {
		fmt.Fprintf(&b, "%s\n", line)
	}
	if f.Cluster == nil {
		return b.String()
	}
	fmt.Fprintf(&b, "snapshot: %s", f.Cluster)
	if len(f.Shards) > 0 {
		fmt.Fprintf(&b, "allocate was asked for: %s\n", shardsText(f.Shards))
	}
	if len(f.Cluster.s.Owners) <= mostInput {
		if input, err := json.Marshal(f.Cluster); err == nil {
			fmt.Fprintf(&b, "input: %s\n", input)
		}
	}
	return b.String()
}

// IsFault returns the fault in an error, nil where it is something else: trouble of the host's own, or a cluster that is
// none.
func IsFault(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// fault is what a check found about one answer.
func (s *Strategy) fault(check Check, c *Cluster, a *Answer, right, format string, args ...any) error {
	return &Fault{Check: check, Strategy: s.name, What: fmt.Sprintf(format, args...), Right: right, Cluster: c, Answer: a}
}
