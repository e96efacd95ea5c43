package node

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// endable is a log handler that falls silent once the node has said its last word: goroutines of libraries outlive their Close by a moment.
type endable struct {
	slog.Handler
	ended *atomic.Bool
}

func (e endable) Enabled(ctx context.Context, l slog.Level) bool {
	return !e.ended.Load() && e.Handler.Enabled(ctx, l)
}

func (e endable) WithAttrs(attrs []slog.Attr) slog.Handler {
	return endable{e.Handler.WithAttrs(attrs), e.ended}
}

func (e endable) WithGroup(name string) slog.Handler {
	return endable{e.Handler.WithGroup(name), e.ended}
}
