package loglimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Limiter{Every: time.Minute}
		pass := func(key string, want bool, hidden int) {
			t.Helper()
			ok, n := l.Pass(key)
			assert.Equal(t, want, ok)
			assert.Equal(t, hidden, n)
		}
		pass("a", true, 0)
		pass("a", false, 0)
		pass("b", true, 0)
		time.Sleep(59 * time.Second)
		pass("a", false, 0)
		time.Sleep(time.Second)
		pass("a", true, 2)
		pass("a", false, 0)
		time.Sleep(time.Minute)
		pass("a", true, 1)
	})
}

// Keys of strangers fill no memory.
func TestLimiterIsBounded(t *testing.T) {
	l := &Limiter{Every: time.Hour}
	for i := range 10 * most {
		l.Pass(fmt.Sprint(i))
		assert.LessOrEqual(t, len(l.seen), most)
	}
}

func TestLimiterHammer(t *testing.T) {
	l := &Limiter{Every: time.Hour}
	var passed atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if ok, _ := l.Pass("k"); ok {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, passed.Load())
}
