package host

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/droverhq/drover/pluginapi"
)

// Record is what one call of a strategy leaves behind: enough to run it again
// bit for bit (spec 1.3).
type Record struct {
	Strategy    string       `json:"strategy"` // a name for people: file, builtin:hash, native:hash
	Digest      Digest       `json:"digest"`   // of the module; zero for a native strategy
	CostModel   int          `json:"costModel"`
	Op          pluginapi.Op `json:"-"` // see MarshalJSON
	InputDigest Digest       `json:"inputDigest"`
	Input       []byte       `json:"input"`
	Output      []byte       `json:"output"` // nil unless the guest returned
	// Fuel is what the call spent: nil if it trapped or ran out of time, the
	// limit if it ran out of fuel.
	Fuel      *int64        `json:"fuel"`
	FuelLimit int64         `json:"fuelLimit"`
	Pages     uint32        `json:"memoryPages"` // peak memory; 0 for a native strategy
	Started   time.Time     `json:"started"`
	Elapsed   time.Duration `json:"elapsed"`
	Verdict   Verdict       `json:"verdict"`
	Error     string        `json:"error,omitempty"`
	Log       []LogLine     `json:"log,omitempty"`
}

// MarshalJSON writes the operation by its name.
func (r *Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return json.Marshal(struct {
		Op string `json:"op"`
		*plain
	}{r.Op.String(), (*plain)(r)})
}

// size is about how much memory the record holds on to.
func (r *Record) size() int {
	n := 512 + len(r.Input) + len(r.Output) + len(r.Error)
	for _, l := range r.Log {
		n += 32 + len(l.Message)
	}
	return n
}

// Recorder takes the record of each call, as soon as it has ended. Metrics and
// decision logs hang on it. It is called from the goroutines of the calls, and
// must neither block nor change the record.
type Recorder interface {
	Record(*Record)
}

// RecorderFunc is a function that is a Recorder.
type RecorderFunc func(*Record)

// Record implements Recorder.
func (f RecorderFunc) Record(r *Record) { f(r) }

// Ring keeps the latest records in memory, bounded by number and by bytes. It
// is safe for concurrent use.
type Ring struct {
	maxRecords, maxBytes int

	mu      sync.Mutex
	records []*Record // oldest first
	bytes   int
}

// NewRing returns a ring. A record that alone is larger than maxBytes is kept
// without its input and output.
func NewRing(maxRecords, maxBytes int) *Ring {
	return &Ring{maxRecords: max(1, maxRecords), maxBytes: max(1024, maxBytes)}
}

// Record implements Recorder.
func (g *Ring) Record(r *Record) {
	if r.size() > g.maxBytes {
		c := *r
		c.Input, c.Output = nil, nil
		r = &c
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = append(g.records, r)
	g.bytes += r.size()
	drop := 0
	for len(g.records)-drop > g.maxRecords || (g.bytes > g.maxBytes && len(g.records)-drop > 1) {
		g.bytes -= g.records[drop].size()
		drop++
	}
	if drop > 0 {
		n := copy(g.records, g.records[drop:])
		clear(g.records[n:])
		g.records = g.records[:n]
	}
}

// Records returns the records, oldest first. They must not be changed.
func (g *Ring) Records() []*Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*Record(nil), g.records...)
}

func digestOfInput(b []byte) Digest { return sha256.Sum256(b) }
