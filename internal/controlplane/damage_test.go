package controlplane

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/boottime"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
)

// writeLog makes a raft log of n entries in a data_dir's raft directory, as a process that was killed left it, and lets change work on it.
func writeLog(t *testing.T, dir string, n uint64, change func(*wal.WAL)) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "wal"), 0o700))
	log, err := wal.Open(filepath.Join(dir, "wal"))
	require.NoError(t, err)
	for i := uint64(1); i <= n; i++ {
		require.NoError(t, log.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogNoop, Data: bytes.Repeat([]byte("entry"), 20), AppendedAt: time.Unix(1, 0)}))
	}
	change(log)
	require.NoError(t, log.Close())
}

func openDir(t *testing.T, dir string) (*Plane, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return Open(Config{Dir: dir, Server: sharding.NewIncarnation(), Address: l.Addr().String(), Stream: tcp{l}, Machine: &recorder{}, Now: boottime.Now,
		Do: func(coordinator.Command) {}, Fatal: func(err error) { t.Error(err) }, Logger: slog.New(slog.DiscardHandler)})
}

// Spec 2.6: a follower whose last entries a new leader has replaced starts again after kill -9. raft-wal before 0.4.1 left such a log unreadable.
func TestStartsAfterEntriesWereReplaced(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, 10, func(log *wal.WAL) { require.NoError(t, log.DeleteRange(8, 10)) })
	p, err := openDir(t, dir)
	require.NoError(t, err)
	assert.Equal(t, uint64(7), p.raft.LastIndex())
	require.NoError(t, p.Close())
}

// A log that cannot be read ends the start with an error that names the directory and the next step, and not with raft's panic.
func TestDamagedLogEndsTheStart(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, 10, func(log *wal.WAL) { // two files, the first one sealed
		require.NoError(t, log.DeleteRange(8, 10))
		require.NoError(t, log.StoreLog(&raft.Log{Index: 8, Term: 2, Type: raft.LogNoop}))
	})
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	require.NoError(t, os.Truncate(files[0], 100))

	_, err = openDir(t, dir)
	require.Error(t, err)
	assert.Contains(t, err.Error(), dir)
	assert.Contains(t, err.Error(), "drover cluster forget")
	// Everything is let go of: the log's own lock would keep a second try waiting for ever.
	_, err = openDir(t, dir)
	require.Error(t, err)
}

// The log's index is one file of its own, with the votes in it. Whatever is left of it, the start ends with an error that names it and the next step:
// no panic, no fault of a mapping, and no log deleted because nothing names its files.
func TestDamagedIndexEndsTheStart(t *testing.T) {
	page := int64(os.Getpagesize())
	for name, damage := range map[string]func(index string) error{
		"gone":           os.Remove,
		"empty":          func(f string) error { return os.Truncate(f, 0) },
		"one byte":       func(f string) error { return os.Truncate(f, 1) },
		"two pages":      func(f string) error { return os.Truncate(f, 2*page) },
		"half of a page": func(f string) error { return os.Truncate(f, 2*page+page/2) },
		"zeros": func(f string) error {
			w, err := os.OpenFile(f, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = w.WriteAt(make([]byte, 6*page), 2*page)
			return errors.Join(err, w.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeLog(t, dir, 10, func(*wal.WAL) {})
			index := filepath.Join(dir, "wal", metadb.FileName)
			require.NoError(t, damage(index))
			_, err := openDir(t, dir)
			require.Error(t, err)
			assert.Contains(t, err.Error(), metadb.FileName)
			assert.Contains(t, err.Error(), "drover cluster forget")
			files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
			require.NoError(t, err)
			assert.Len(t, files, 1, "the log stays for whoever can mend its index")
		})
	}
}
