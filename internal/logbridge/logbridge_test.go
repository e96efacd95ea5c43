package logbridge

import (
	"bytes"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLevels(t *testing.T) {
	for line, want := range map[string]string{
		"[WARN] serf: slow\n":    `level=INFO msg="serf: slow" from=gossip`,
		"[ERR] memberlist: no\n": `level=WARN msg="memberlist: no" from=gossip`,
		"[INFO]  raft: hi\n":     `level=DEBUG msg="raft: hi" from=gossip`,
		"[half\n":                `level=DEBUG msg=[half from=gossip`,
		"\n":                     `level=DEBUG msg="" from=gossip`,
	} {
		var out bytes.Buffer
		l := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		n, err := io.WriteString(New(l, "gossip"), line)
		assert.NoError(t, err)
		assert.Equal(t, len(line), n)
		assert.Equal(t, want+"\n", out.String())
	}
}
