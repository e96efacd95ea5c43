package transport

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"
)

// grpc logs through one logger of the process, which has to be set before anything else of it is called; else it writes to stderr. What
// it has to say goes to the log of the newest transport that is open, and nowhere where there is none.
var grpcLog = func() *grpcLogger {
	l := &grpcLogger{}
	grpclog.SetLoggerV2(l)
	return l
}()

type grpcLogger struct{ to atomic.Pointer[slog.Logger] }

// open sends what grpc logs to log; close ends that.
func (g *grpcLogger) open(log *slog.Logger)  { g.to.Store(log) }
func (g *grpcLogger) close(log *slog.Logger) { g.to.CompareAndSwap(log, nil) }

// log writes one line. Lost connections, which grpc calls warnings and errors by turns, are reported by the transport itself.
func (g *grpcLogger) log(level slog.Level, text func() string) {
	to := g.to.Load()
	if to == nil || !to.Enabled(context.Background(), level) {
		return
	}
	to.Log(context.Background(), level, "grpc: "+strings.TrimSuffix(text(), "\n"))
}

func (g *grpcLogger) print(level slog.Level, args []any) {
	g.log(level, func() string { return fmt.Sprint(args...) })
}
func (g *grpcLogger) println(level slog.Level, args []any) {
	g.log(level, func() string { return fmt.Sprintln(args...) })
}
func (g *grpcLogger) printf(level slog.Level, format string, args []any) {
	g.log(level, func() string { return fmt.Sprintf(format, args...) })
}

// The methods of grpclog.LoggerV2: information and warnings at DEBUG, errors at WARN, as none of them is this process's own failure.

func (g *grpcLogger) Info(args ...any)             { g.print(slog.LevelDebug, args) }
func (g *grpcLogger) Infoln(args ...any)           { g.println(slog.LevelDebug, args) }
func (g *grpcLogger) Infof(f string, args ...any)  { g.printf(slog.LevelDebug, f, args) }
func (g *grpcLogger) Warning(args ...any)          { g.print(slog.LevelDebug, args) }
func (g *grpcLogger) Warningln(args ...any)        { g.println(slog.LevelDebug, args) }
func (g *grpcLogger) Warningf(f string, a ...any)  { g.printf(slog.LevelDebug, f, a) }
func (g *grpcLogger) Error(args ...any)            { g.print(slog.LevelWarn, args) }
func (g *grpcLogger) Errorln(args ...any)          { g.println(slog.LevelWarn, args) }
func (g *grpcLogger) Errorf(f string, args ...any) { g.printf(slog.LevelWarn, f, args) }
func (g *grpcLogger) Fatal(args ...any)            { g.print(slog.LevelError, args); os.Exit(1) }
func (g *grpcLogger) Fatalln(args ...any)          { g.println(slog.LevelError, args); os.Exit(1) }
func (g *grpcLogger) Fatalf(f string, args ...any) { g.printf(slog.LevelError, f, args); os.Exit(1) }
func (g *grpcLogger) V(level int) bool             { return level <= 0 }
