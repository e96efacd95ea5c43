package logbridge

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLevels(t *testing.T) {
	for line, want := range map[string]string{
		"[WARN] serf: slow\n":                                            `level=INFO msg="serf: slow" from=gossip`,
		"[ERR] memberlist: no\n":                                         `level=WARN msg="memberlist: no" from=gossip`,
		"[INFO]  raft: hi\n":                                             `level=DEBUG msg="raft: hi" from=gossip`,
		"[ERROR] raft: failed to heartbeat to: peer=a\n":                 `level=INFO msg="raft: failed to heartbeat to: peer=a" from=gossip`,
		"[ERR] memberlist: Push/Pull with b failed: EOF\n":               `level=INFO msg="memberlist: Push/Pull with b failed: EOF" from=gossip`,
		"[ERROR] raft: failed to persist vote: error=\"disk is full\"\n": `level=WARN msg="raft: failed to persist vote: error=\"disk is full\"" from=gossip`,
		"[half\n": `level=DEBUG msg=[half from=gossip`,
		"\n":      `level=DEBUG msg="" from=gossip`,
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

// What is said again and again of the same peer passes once a minute; what is said of another one, or differs, at once.
func TestFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := New(slog.New(slog.NewTextHandler(&out, nil)), "raft")
		write := func(line string, passes bool, want string) {
			t.Helper()
			out.Reset()
			_, err := io.WriteString(w, line)
			require.NoError(t, err)
			assert.Equal(t, passes, out.Len() > 0, line)
			assert.Contains(t, out.String(), want)
		}
		beat := "[ERROR] raft: failed to heartbeat to: peer=127.0.0.1:%d backoff time=%dms error=\"dial tcp 127.0.0.1:%d: refused\"\n"
		write(fmt.Sprintf(beat, 1, 10, 1), true, "127.0.0.1:1")
		write(fmt.Sprintf(beat, 1, 20, 1), false, "")
		write(fmt.Sprintf(beat, 2, 20, 2), true, "127.0.0.1:2")
		write("[WARN]  raft: failed to contact: server-id=x time=500ms\n", true, "contact")
		write("[WARN]  raft: failed to contact: server-id=x time=900ms\n", false, "")
		write("[ERR] memberlist: Push/Pull with b failed: dial tcp 127.0.0.1:9: connection refused\n", true, "")
		write("[ERR] memberlist: Push/Pull with b failed: read tcp 127.0.0.1:81->127.0.0.1:9: reset\n", false, "")
		time.Sleep(time.Minute)
		write(fmt.Sprintf(beat, 1, 40, 1), true, "repeated=1")
	})
}

// A peer that takes a new name for each line fills no log.
func TestManySubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := New(slog.New(slog.NewTextHandler(&out, nil)), "gossip")
		for i := range 1000 {
			_, err := fmt.Fprintf(w, "[WARN] memberlist: ignoring alive message for 'node-%d': no more are taken\n", i)
			require.NoError(t, err)
		}
		assert.Equal(t, burst, bytes.Count(out.Bytes(), []byte("\n")))
		time.Sleep(time.Second)
		out.Reset()
		_, err := io.WriteString(w, "[WARN] memberlist: something else\n")
		require.NoError(t, err)
		assert.Contains(t, out.String(), "other_lines_lost=980")
	})
}
