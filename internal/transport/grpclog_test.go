package transport

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/grpclog"
)

// What grpc has to say goes to the open transport's log, and never to stderr.
func TestGRPCLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	grpcLog.open(log)
	grpclog.Warning("lost ", 3)
	grpclog.Errorf("broken %s", "pipe")
	grpclog.Infoln("a", "b")
	require.Regexp(t, `level=DEBUG msg="grpc: lost 3"`, out.String())
	require.Regexp(t, `level=WARN msg="grpc: broken pipe"`, out.String())
	require.Regexp(t, `level=DEBUG msg="grpc: a b"`, out.String())
	said := out.Len()

	other := slog.New(slog.DiscardHandler)
	grpcLog.open(other)
	grpcLog.close(log) // not the newest any more: no effect
	require.Same(t, other, grpcLog.to.Load())
	grpcLog.close(other)
	grpclog.Error("after the end")
	require.Equal(t, said, out.Len())
}
