package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/sharding"
)

// Spec 5.1: a request that nobody answers, as an ask of five minutes may be, does not take the time of the goodbye: the others see a node that left, not one
// that failed.
func TestGoodbyeInSpiteOfAnOpenRequest(t *testing.T) {
	f := newFleet(t)
	c := f.config("b")
	c.ShutdownTimeout = time.Second // at the end it is alone, without a majority to hand its shards to
	b := f.start(c)
	f.settled()
	b.add(t, accountOn(3), 1)
	c = f.config("a")
	c.ShutdownTimeout = 5 * time.Second
	a := f.start(c)
	f.settled()
	require.Eventually(t, func() bool { return a.home(3).Owner == b.self }, patience, poll)

	ended := make(chan error, 1)
	go func() {
		r, err := http.Post("http://"+a.addr.HTTP+"/entities/ledger/"+accountOn(3)+"?timeout=5m", "application/json", strings.NewReader(`{"Account":"x","Do":"never"}`))
		if err == nil {
			r.Body.Close()
		}
		ended <- err
	}()
	require.Eventually(t, func() bool { return a.data.Counters().Asks.Load() == 1 }, patience, poll)
	require.NoError(t, f.stop(a))
	require.Error(t, <-ended)
	assert.NotEmpty(t, a.log.lines("requests were cut short"))
	assert.Empty(t, a.log.lines("no time is left for a goodbye"))
	require.Eventually(t, func() bool {
		m := b.memberList()
		return len(m) == 2 && m[0].Status == cluster.Left
	}, patience, poll)
}

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

// Spec 5.1: the end is bounded by shutdown_timeout, whatever the parts do: what is waited for in vain is given up, and named.
func TestEndInSpiteOfAPartThatHangs(t *testing.T) {
	f := newFleet(t)
	c := f.config("a")
	c.ShutdownTimeout = time.Second
	a := f.start(c)
	f.settled()
	held, hang := make(chan struct{}), make(chan struct{})
	viewed := make(chan struct{})
	go func() {
		defer close(viewed)
		a.plane.View(func() { close(held); <-hang })
	}()
	<-held
	began := time.Now()
	err := f.stop(a)
	assert.GreaterOrEqual(t, time.Since(began), c.ShutdownTimeout+endGrace)
	require.ErrorContains(t, err, "shutdown_timeout (1s)")
	require.ErrorContains(t, err, "given up while it waited for ")
	assert.Empty(t, a.log.lines("msg=stopped"))
	close(hang)
	<-viewed
	<-a.ended
}
