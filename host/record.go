package host

import (
	"time"

	"github.com/droverhq/drover/pluginapi"
)

// Record is what one call of a strategy leaves behind: enough to run it again
// bit for bit (spec 1.3).
type Record struct {
	Strategy    string // a name for people: file, builtin:hash, native:hash
	Digest      Digest // of the module; zero for a native strategy
	CostModel   int
	Op          pluginapi.Op
	InputDigest Digest
	Input       []byte
	Output      []byte // nil unless the guest returned
	// Fuel is what the call spent: nil if it trapped or ran out of time, the
	// limit if it ran out of fuel.
	Fuel      *int64
	FuelLimit int64
	Pages     uint32 // peak memory; 0 for a native strategy
	Started   time.Time
	Elapsed   time.Duration
	Verdict   Verdict
	Error     string
	Log       []LogLine
}
