//go:build !race

// The race detector makes sync.Pool forget on purpose.

package records

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// Spec 1.3: a call allocates nothing beyond its decision, on a node that keeps records, too.
func TestRecordAllocatesNothing(t *testing.T) {
	r, _ := open(t, Config{})
	fuel := int64(7)
	rec := &host.Record{Type: "t", Input: make([]byte, 10_000), Output: make([]byte, 500), Fuel: &fuel, Log: []host.LogLine{{Message: "m"}}}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		r.Record(rec)
		p := <-r.queue // as the writer does
		r.pool.Put(p)
		r.waiting.Add(-int64(len(p.buf)))
	}))
	require.Zero(t, r.Stats().Dropped)
}
