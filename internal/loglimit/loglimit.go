// Package loglimit keeps repeated log lines down to one a while.
package loglimit

import (
	"sync"
	"time"
)

// most bounds what is remembered: keys may come from strangers.
const most = 1024

// Limiter lets one line of each key pass in Every. Its methods may be called from any goroutine.
type Limiter struct {
	Every time.Duration

	mu   sync.Mutex
	seen map[string]*line
}

type line struct {
	at     time.Time
	hidden int
}

// Pass says whether a line may be written now, and how many of its key were held back since the last one.
func (l *Limiter) Pass(key string) (ok bool, hidden int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[key]
	switch {
	case s == nil:
		if l.seen == nil || len(l.seen) >= most {
			l.seen = map[string]*line{}
		}
		l.seen[key] = &line{at: now}
		return true, 0
	case now.Sub(s.at) < l.Every:
		s.hidden++
		return false, 0
	}
	hidden = s.hidden
	s.at, s.hidden = now, 0
	return true, hidden
}
