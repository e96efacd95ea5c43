package queue

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Hammer: per sender the order holds, nothing is lost or doubled, whatever the mix of Put and PutWait.
func TestOrderUnderLoad(t *testing.T) {
	q := New[[2]int](8)
	const senders, each = 8, 5000
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if i%2 == 0 {
					assert.True(t, q.Put([2]int{s, i}))
				} else {
					assert.True(t, q.PutWait([2]int{s, i}))
				}
			}
		})
	}
	go func() { wg.Wait(); q.Close() }()
	var next [senders]int
	for {
		items, ok := q.Take()
		if !ok {
			break
		}
		for _, it := range items {
			require.Equal(t, next[it[0]], it[1])
			next[it[0]]++
		}
	}
	for _, n := range next {
		require.Equal(t, each, n)
	}
	assert.False(t, q.Put([2]int{}))
	assert.False(t, q.PutWait([2]int{}))
}

func TestPutWaitWaitsForRoom(t *testing.T) {
	q := New[int](1)
	q.Put(1)
	done := make(chan struct{})
	go func() { q.PutWait(2); close(done) }()
	select {
	case <-done:
		t.Fatal("it did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	items, _ := q.Take()
	assert.Equal(t, []int{1}, items)
	<-done
	items, _ = q.Take()
	assert.Equal(t, []int{2}, items)
}
