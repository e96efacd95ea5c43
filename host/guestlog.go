package host

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"
)

// What is kept of a guest's log. The guest pays for every byte and is never
// told what became of it, so that no setting here changes a result or its fuel.
const (
	maxLogLines     = 64   // of one call
	maxLogLine      = 1024 // bytes
	logLinesASecond = 100  // of one strategy, handed to the logger
	maxLogBurst     = 2 * maxLogLines
)

// LogLine is one line that a guest logged.
type LogLine struct {
	Level   slog.Level
	Message string
}

// guestLog collects what one call logs.
type guestLog struct {
	lines   []LogLine
	dropped int
	partial [3][]byte // of a standard stream, by file descriptor: an unfinished line
}

func (l *guestLog) reset() {
	l.lines, l.dropped = nil, 0
	for i := range l.partial {
		l.partial[i] = l.partial[i][:0]
	}
}

// guestLevel maps the contract's levels, whose values are those of log/slog.
func guestLevel(level int32) slog.Level {
	switch l := slog.Level(level); {
	case l < slog.LevelInfo:
		return slog.LevelDebug
	case l < slog.LevelWarn:
		return slog.LevelInfo
	case l < slog.LevelError:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// add takes one line. What is too much is counted.
func (l *guestLog) add(level slog.Level, line []byte) {
	if len(l.lines) >= maxLogLines {
		l.dropped++
		return
	}
	l.lines = append(l.lines, LogLine{level, clean(string(line[:min(len(line), maxLogLine+1)]), maxLogLine)})
}

// stream takes bytes of a standard stream, and adds a line at each line end.
// Once there are enough lines the rest is only counted: a guest may write 64 MiB
// of line ends in one call.
func (l *guestLog) stream(fd uint32, b []byte) {
	level := slog.LevelInfo
	if fd == 2 {
		level = slog.LevelWarn
	}
	for len(b) > 0 {
		if len(l.lines) >= maxLogLines {
			if last := bytes.LastIndexByte(b, '\n'); last >= 0 {
				l.dropped += bytes.Count(b, []byte{'\n'})
				l.partial[fd], b = l.partial[fd][:0], b[last+1:]
			}
		}
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		b = rest
		p := l.partial[fd]
		if room := maxLogLine + 1 - len(p); room > 0 {
			p = append(p, line[:min(room, len(line))]...)
		}
		if ended {
			l.add(level, p)
			p = p[:0]
		}
		l.partial[fd] = p
	}
}

// finish makes lines of those that a guest has left unfinished.
func (l *guestLog) finish() {
	for fd := uint32(1); fd <= 2; fd++ {
		if len(l.partial[fd]) > 0 {
			l.stream(fd, []byte{'\n'})
		}
	}
}

// take returns what was logged, with unfinished lines, and starts afresh.
func (l *guestLog) take() (lines []LogLine, dropped int) {
	l.finish()
	lines, dropped = l.lines, l.dropped
	l.reset()
	return lines, dropped
}

// logRelay hands guests' lines to a logger, at a bounded rate. A mutex guards
// it: calls of one strategy run concurrently.
type logRelay struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	tokens float64
	last   time.Time
}

func newLogRelay(log *slog.Logger) *logRelay {
	return &logRelay{log: log, now: time.Now, tokens: maxLogBurst}
}

// relay logs what the rate admits, and one line about what it did not.
func (r *logRelay) relay(ctx context.Context, lines []LogLine, dropped int) {
	if len(lines) == 0 && dropped == 0 {
		return
	}
	n := r.admit(len(lines))
	for _, line := range lines[:n] {
		r.log.LogAttrs(ctx, line.Level, "strategy says", slog.String("message", line.Message))
	}
	if dropped += len(lines) - n; dropped > 0 && r.admit(1) == 1 {
		r.log.LogAttrs(ctx, slog.LevelWarn, "strategy logs too much", slog.Int("dropped", dropped))
	}
}

func (r *logRelay) admit(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if !r.last.IsZero() {
		r.tokens = min(maxLogBurst, r.tokens+now.Sub(r.last).Seconds()*logLinesASecond)
	}
	r.last = now
	n = min(n, int(r.tokens))
	r.tokens -= float64(n)
	return n
}
