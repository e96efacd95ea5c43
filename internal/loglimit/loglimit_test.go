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

// Keys of strangers fill neither memory nor the log, and take no line from a key that is known.
func TestLimiterIsBounded(t *testing.T) {
	const flood = 2 * most
	synctest.Test(t, func(t *testing.T) {
		l := &Limiter{Every: time.Hour}
		l.Pass("known")
		for minute := range 60 {
			passed := 0
			for i := range flood {
				if ok, _ := l.Pass(fmt.Sprint(minute, "|", i)); ok {
					passed++
				}
			}
			assert.LessOrEqual(t, len(l.seen), most)
			if minute == 0 {
				assert.Equal(t, most, passed, "one of them is that of all others")
			} else {
				assert.Zero(t, passed)
			}
			time.Sleep(time.Minute)
		}
		ok, hidden := l.Pass("known")
		assert.True(t, ok)
		assert.Zero(t, hidden)
		passed, hiddenInAll := 0, 0
		for i := range flood {
			if ok, hidden := l.Pass(fmt.Sprint("later|", i)); ok {
				passed++
				hiddenInAll += hidden
			}
		}
		assert.Equal(t, most, passed, "room is made of what has not been said for long")
		assert.Equal(t, 60*flood-most, hiddenInAll)
	})
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
