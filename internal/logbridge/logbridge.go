// Package logbridge gives the loggers of libraries that write "[LEVEL] text" lines (Serf, memberlist, raft) a place in slog.
package logbridge

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/droverhq/drover/internal/loglimit"
)

// New returns a writer of log lines. Each goes one level down, because libraries think more of themselves than their users do: ERR becomes
// WARN, WARN becomes INFO, the rest DEBUG; errors that only say that a peer is away, as happens whenever a node ends, are INFO. Lines of INFO and above that
// say the same of the same peer pass once a minute, the first at once; whatever they say, no more than burst pass in a second, because peers choose their
// names and with them what is said of them. from is the value of the key "from".
func New(l *slog.Logger, from string) io.Writer {
	return &writer{l: l.With("from", from), limit: loglimit.Limiter{Every: time.Minute}}
}

// burst is how many lines of INFO and above pass in a second.
const burst = 20

type writer struct {
	l     *slog.Logger
	limit loglimit.Limiter

	mu     sync.Mutex
	second time.Time // in which passed is counted
	passed int
	lost   int // lines beyond burst since the last one that passed
}

// pass says whether this second has room for a line, and how many were lost since the last one.
func (w *writer) pass() (ok bool, lost int) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.second) >= time.Second {
		w.second, w.passed = now, 0
	}
	if w.passed >= burst {
		w.lost++
		return false, 0
	}
	w.passed++
	lost, w.lost = w.lost, 0
	return true, lost
}

// Write implements io.Writer for one line.
func (w *writer) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, string(bytes.TrimSpace(line))
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if name, rest, ok := strings.Cut(rest, "]"); ok {
			level, text = levelOf(name), strings.TrimSpace(rest)
		}
	}
	if level == slog.LevelWarn && isAbsence(text) {
		level = slog.LevelInfo
	}
	if !w.l.Enabled(context.Background(), level) {
		return len(line), nil
	}
	var attrs []any
	if level >= slog.LevelInfo {
		ok, hidden := w.limit.Pass(subject(text))
		if !ok {
			return len(line), nil
		}
		if hidden > 0 {
			attrs = []any{"repeated", hidden}
		}
		ok, lost := w.pass()
		if !ok {
			return len(line), nil
		}
		if lost > 0 {
			attrs = append(attrs, "other_lines_lost", lost)
		}
	}
	w.l.Log(context.Background(), level, text, attrs...)
	return len(line), nil
}

func levelOf(name string) slog.Level {
	switch name {
	case "WARN":
		return slog.LevelInfo // an election, a retry: what a healthy cluster does now and then
	case "ERR", "ERROR":
		return slog.LevelWarn // the library goes on; what ends a node is an error of ours
	}
	return slog.LevelDebug
}

// absences are what the libraries say when a peer does not answer, or its connection ends; the text after their own name.
var absences = []string{
	// raft
	"failed to heartbeat to", "failed to appendEntries to", "failed to pipeline appendEntries", "failed to start pipeline replication to",
	"failed to make requestVote RPC", "failed to decode incoming command", "failed to flush response", "failed to accept connection",
	"peer has newer term, stopping replication", "failed to send snapshot to", "failed to install snapshot: peer=",
	// Serf and memberlist
	"Failed to send ", "Failed fallback TCP ping", "Push/Pull with", "failed to receive:", "Failed to read remote state", "Failed to push local state",
	"Failed to forward ack", "Error accepting TCP connection", "Failed to re-join any previously known node", "Error forwarding message to",
	"Failed to respond to", "failed to send ack",
}

func isAbsence(text string) bool {
	_, text, _ = strings.Cut(text, ": ")
	for _, a := range absences {
		if strings.HasPrefix(text, a) {
			return true
		}
	}
	return false
}

// values are what differs from one line to the next about the same thing; a peer's name and address do not.
var values = regexp.MustCompile(`( error=| backoff time=| time=| next=| last-|: (dial|read|write|EOF|i/o|remote|lookup) ?).*`)

// subject is what a line is about.
func subject(text string) string { return values.ReplaceAllString(text, "") }
