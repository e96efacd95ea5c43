package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// A drain with nobody to drain to is carried out, warned of, and named as the cause where somebody then waits for a home in vain. What an operator has
// changed is in the log, and a pause in the metrics.
func TestDrainToNowhere(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	op := api{a.Node}
	require.NoError(t, op.Drain(t.Context(), "a", true))
	require.Len(t, a.log.lines("level=WARN"), 1)
	assert.Contains(t, a.log.lines("level=WARN")[0], "types=[ledger]")
	require.Eventually(t, func() bool { m := a.data.Members(); return len(m) == 1 && m[0].Draining }, patience, poll)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	_, err := a.region().Ask(ctx, entry{Account: accountOn(3), Amount: 1})
	cancel()
	require.ErrorIs(t, err, sharding.ErrUnavailable)
	assert.Contains(t, err.Error(), "shard 3 of ledger")
	assert.Contains(t, err.Error(), "every node that hosts the type is draining")
	require.NoError(t, op.Drain(t.Context(), "a", false))
	a.add(t, accountOn(3), 1)

	paused := func() string {
		for line := range strings.SplitSeq(scrape(t, a.addr.HTTP), "\n") {
			if v, ok := strings.CutPrefix(line, "drover_rebalancing_paused "); ok {
				return v
			}
		}
		return ""
	}
	assert.Equal(t, "0", paused())
	require.NoError(t, op.Pause(t.Context(), true))
	require.Eventually(t, func() bool { return paused() == "1" }, patience, poll)
	require.NoError(t, op.Pause(t.Context(), false))
	require.Eventually(t, func() bool { return paused() == "0" }, patience, poll)
	assert.Len(t, a.log.lines("an operator's request is carried out"), 4)
}
