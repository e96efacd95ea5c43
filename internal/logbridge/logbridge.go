// Package logbridge gives the loggers of libraries that write "[LEVEL] text" lines (Serf, memberlist, raft) a place in slog.
package logbridge

import (
	"bytes"
	"context"
	"io"
	"log/slog"
)

// New returns a writer of log lines. Each goes one level down, because libraries think more of themselves than their users do: ERR becomes
// WARN, WARN becomes INFO, the rest DEBUG. from is the value of the key "from".
func New(l *slog.Logger, from string) io.Writer { return writer{l.With("from", from)} }

type writer struct{ l *slog.Logger }

// Write implements io.Writer for one line.
func (w writer) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, bytes.TrimSpace(line)
	if rest, ok := bytes.CutPrefix(text, []byte("[")); ok {
		if name, rest, ok := bytes.Cut(rest, []byte("]")); ok {
			level, text = levelOf(string(name)), bytes.TrimSpace(rest)
		}
	}
	w.l.Log(context.Background(), level, string(text))
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
