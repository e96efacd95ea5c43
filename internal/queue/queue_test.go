package queue

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Hammer: per sender the order holds, nothing is lost or doubled, whatever the mix of Put and PutWait.
func TestOrderUnderLoad(t *testing.T) {
	q := NewWeighed[[2]int](8, 100)
	const senders, each = 8, 5000
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if i%2 == 0 {
					assert.True(t, q.Put([2]int{s, i}))
				} else {
					assert.True(t, q.PutWait([2]int{s, i}, i%40))
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
	assert.False(t, q.PutWait([2]int{}, 0))
}

func TestPutWaitWaitsForRoom(t *testing.T) {
	for name, bounds := range map[string][2]int{"items": {1, 100}, "weight": {100, 7}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewWeighed[int](bounds[0], bounds[1])
				q.PutWait(1, 9)
				done := false
				go func() { q.PutWait(2, 0); done = true }()
				synctest.Wait()
				assert.False(t, done, "it did not wait")
				assert.True(t, q.Put(3), "Put never waits")
				items, _ := q.Take()
				assert.Equal(t, []int{1, 3}, items)
				synctest.Wait()
				assert.True(t, done)
				items, _ = q.Take()
				assert.Equal(t, []int{2}, items)

				q.PutWait(4, 9)
				go func() { assert.False(t, q.PutWait(5, 0)) }()
				synctest.Wait()
				q.Close()
				items, ok := q.Take()
				assert.Equal(t, []int{4}, items)
				assert.True(t, ok)
			})
		})
	}
}
