package host

import (
	"crypto/sha256"
	"time"

	"github.com/droverhq/drover/pluginapi"
)

// Record is what one call of a strategy leaves behind: enough to run it again
// bit for bit (spec 1.3).
type Record struct {
	Strategy    string // a name for people: file, builtin:hash, native:hash
	Digest      Digest // of the module; zero for a native strategy
	Type        string // the sharded type that was decided about
	CostModel   int
	Op          pluginapi.Op
	InputDigest Digest // zero until DigestInput has been asked for
	Input       []byte
	Output      []byte // nil unless the guest returned
	// Fuel is what the call spent: nil if it trapped or ran out of time, the
	// limit if it ran out of fuel.
	Fuel      *int64
	FuelLimit int64
	// MemoryLimit is in pages: what memory.grow answers depends on it.
	MemoryLimit uint32
	Pages       uint32        // peak memory; 0 for a native strategy
	Budget      time.Duration // what the call was given; no result but VerdictBudget depends on it
	Started     time.Time
	Elapsed     time.Duration
	Verdict     Verdict
	Error       string
	Log         []LogLine
	// Shadow: the call ran beside that of the strategy in force, and nothing came
	// of it (spec 1.4).
	Shadow bool
}

// DigestInput returns the SHA-256 of the input, which decisions in the
// replicated log carry. It is computed when it is first asked for: hashing the
// input of a large cluster costs more than encoding it.
func (r *Record) DigestInput() Digest {
	if r.InputDigest == (Digest{}) {
		r.InputDigest = sha256.Sum256(r.Input)
	}
	return r.InputDigest
}

// Recorder gets the record of every call of the strategies that it is given to,
// from the goroutine that makes the call, and so from several at a time. The
// record, its Input and its Output are valid until Record returns: a Recorder
// copies what it keeps. The decision waits for it.
type Recorder interface {
	Record(*Record)
}
