package cluster

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// newLogBridge gives Serf's and memberlist's *log.Logger a place in slog: their "[LEVEL] text" lines keep their level, INFO becomes DEBUG because
// gossip's chatter is of no use to most.
func newLogBridge(l *slog.Logger) *log.Logger { return log.New(bridge{l}, "", 0) }

type bridge struct{ l *slog.Logger }

// Write implements io.Writer for one line of log output.
func (b bridge) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, bytes.TrimSpace(line)
	for prefix, l := range levels {
		if rest, ok := bytes.CutPrefix(text, []byte(prefix)); ok {
			level, text = l, bytes.TrimSpace(rest)
			break
		}
	}
	b.l.Log(context.Background(), level, string(text), "from", "gossip")
	return len(line), nil
}

var levels = map[string]slog.Level{
	"[DEBUG]": slog.LevelDebug, "[INFO]": slog.LevelDebug, "[WARN]": slog.LevelWarn, "[ERR]": slog.LevelWarn, "[ERROR]": slog.LevelWarn,
}
