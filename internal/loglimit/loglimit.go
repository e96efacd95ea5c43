// Package loglimit keeps repeated log lines down to one a while.
package loglimit

import (
	"sync"
	"time"
)

// most bounds the keys that are remembered: they may come from strangers. While there are more, the others share one line.
const most = 1024

// Limiter lets one line of each key pass in Every. Its methods may be called from any goroutine.
type Limiter struct {
	Every time.Duration

	mu     sync.Mutex
	seen   map[string]*line
	others line
	swept  time.Time
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
	if s == nil && len(l.seen) >= most {
		l.sweep(now)
	}
	switch {
	case s == nil && len(l.seen) < most:
		if l.seen == nil {
			l.seen = map[string]*line{}
		}
		l.seen[key] = &line{at: now}
		return true, 0
	case s == nil:
		s = &l.others
	}
	if !s.at.IsZero() && now.Sub(s.at) < l.Every {
		s.hidden++
		return false, 0
	}
	hidden = s.hidden
	s.at, s.hidden = now, 0
	return true, hidden
}

// sweep forgets keys that would pass, at most once a sixteenth of Every: a flood of new keys must not look at all of them each time.
func (l *Limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < l.Every/16 {
		return
	}
	l.swept = now
	for key, s := range l.seen { // unordered: each is judged alone
		if now.Sub(s.at) >= l.Every {
			delete(l.seen, key)
		}
	}
}
