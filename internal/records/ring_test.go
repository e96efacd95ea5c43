package records

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// open makes a ring without a goroutine; the test writes.
func open(t *testing.T, cfg Config) (*Ring, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "records")
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r := newRing(cfg)
	t.Cleanup(func() {
		if r.file != nil {
			r.file.Close()
		}
	})
	return r, &log
}

func readAll(t *testing.T, path string) (records []*host.Record, bad []error) {
	t.Helper()
	require.NoError(t, Read(path, func(e Entry) error {
		if e.Err != nil {
			bad = append(bad, e.Err)
		} else {
			records = append(records, e.Record)
		}
		return nil
	}))
	return records, bad
}

func numbers(t *testing.T, path string) (out []uint64) {
	t.Helper()
	require.NoError(t, Read(path, func(e Entry) error {
		require.NoError(t, e.Err)
		require.Equal(t, sample(int(e.Number)), e.Record)
		out = append(out, e.Number)
		return nil
	}))
	return out
}

// Spec 1.3: "a bounded ring on disk", by bytes and by number, across restarts.
func TestRingIsBounded(t *testing.T) {
	b, err := Encode(sample(1))
	require.NoError(t, err)
	frame := int64(len(b) + frameHead)
	for _, tc := range []struct {
		name  string
		cfg   Config
		least int // records kept at the end
		most  int
	}{
		{"by bytes", Config{Bytes: 20 * frame}, 14, 20},
		{"by number", Config{Records: 16}, 14, 16},
		{"one record", Config{Records: 1}, 1, 1},
		{"the bytes of one record", Config{Bytes: frame + int64(len(magic))}, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.Dir = filepath.Join(t.TempDir(), "records")
			r, log := open(t, tc.cfg)
			n := 0
			for range 5 {
				for range 20 {
					r.write(sample(n))
					n++
					segs, err := listSegments(r.cfg.Dir)
					require.NoError(t, err)
					var sum int64
					for _, s := range segs {
						sum += s.size
					}
					require.LessOrEqual(t, sum, r.cfg.Bytes)
					require.Equal(t, sum, r.Stats().Bytes)
				}
				kept := numbers(t, r.cfg.Dir)
				require.GreaterOrEqual(t, len(kept), min(tc.least, n))
				require.LessOrEqual(t, len(kept), tc.most)
				require.EqualValues(t, n-1, kept[len(kept)-1], "the latest are kept")
				require.EqualValues(t, n-len(kept), kept[0])
				if r.file != nil {
					require.NoError(t, r.file.Close()) // the next one goes on where this one ended
				}
				r, _ = open(t, tc.cfg)
			}
			require.Empty(t, log.String())
			info, err := os.Stat(r.cfg.Dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		})
	}
}

// The end of the newest segment may be torn anywhere: what is whole is kept, the rest is cut with a line in the log, and the ring goes on.
func TestTornEnd(t *testing.T) {
	const n = 3
	r, _ := open(t, Config{})
	var ends []int64
	for i := range n {
		r.write(sample(i))
		ends = append(ends, r.segs[0].size)
	}
	path := segmentPath(r.cfg.Dir, 0)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := range whole {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		left := 0
		clean := cut == 0 || cut == len(magic)
		for _, end := range ends {
			if int64(cut) >= end {
				left++
				clean = clean || int64(cut) == end
			}
		}
		require.Len(t, numbers(t, r.cfg.Dir), left, "a reader, cut to %d bytes", cut)
		again, log := open(t, Config{Dir: r.cfg.Dir})
		again.write(sample(left))
		require.Equal(t, clean, log.Len() == 0, "cut to %d bytes: %s", cut, log)
		require.Len(t, numbers(t, r.cfg.Dir), left+1, "cut to %d bytes", cut)
	}
}

// No flipped bit gives a wrong record, and none stops a node from writing (spec 1.3: replay is bit for bit).
func TestFlippedBits(t *testing.T) {
	const n = 2
	r, _ := open(t, Config{})
	for i := range n {
		r.write(sample(i))
	}
	path := segmentPath(r.cfg.Dir, 0)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for bit := range len(whole) * 8 {
		if at := bit / 8; at >= len(magic)+frameHead && at < len(whole)/2 && bit%8 != at%8 {
			continue // of the first payload one bit a byte will do
		}
		damaged := bytes.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		found := 0
		take := func(e Entry) error {
			if e.Err == nil {
				require.Equal(t, sample(int(e.Number)), e.Record, "bit %d", bit)
				found++
			}
			return nil
		}
		err := Read(path, take)
		if bit < 8*len(magic) {
			require.ErrorIs(t, err, ErrNoRecords)
		} else {
			require.NoError(t, err)
			require.Less(t, found, n, "bit %d", bit)
		}
		before := found
		again, _ := open(t, Config{Dir: r.cfg.Dir})
		again.write(sample(0)) // its number may be any
		require.EqualValues(t, 1, again.Stats().Written, "bit %d", bit)
		if bit >= 8*len(magic) {
			after, _ := readAll(t, r.cfg.Dir)
			require.Len(t, after, before+1, "bit %d", bit)
		}
		segs, err := listSegments(r.cfg.Dir)
		require.NoError(t, err)
		for _, s := range segs[1:] {
			require.NoError(t, os.Remove(segmentPath(r.cfg.Dir, s.first)))
		}
	}
}

// A damaged payload costs one record; a damaged length those behind it, of its file alone. Neither goes unsaid.
func TestDamageIsTold(t *testing.T) {
	r, _ := open(t, Config{Records: 2 * segments})
	for i := range 6 {
		r.write(sample(i))
	}
	segs, err := listSegments(r.cfg.Dir)
	require.NoError(t, err)
	require.Len(t, segs, 3)
	flip := func(first uint64, at int) {
		path := segmentPath(r.cfg.Dir, first)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		b[at] ^= 1
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	flip(0, len(magic)+frameHead)
	flip(2, len(magic))
	var got []uint64
	var bad []error
	require.NoError(t, Read(r.cfg.Dir, func(e Entry) error {
		if e.Err == nil {
			got = append(got, e.Number)
		} else {
			bad = append(bad, e.Err)
		}
		return nil
	}))
	require.Equal(t, []uint64{1, 4, 5}, got)
	require.Len(t, bad, 2)
	require.ErrorIs(t, bad[0], errDamaged)
	require.ErrorContains(t, bad[1], segmentName(2))
	require.ErrorIs(t, bad[1], errTorn)
}

// The reader's own error ends the reading and is told, whatever it is.
func TestReadEndsWithAnError(t *testing.T) {
	r, _ := open(t, Config{})
	r.write(sample(0))
	r.write(sample(1))
	for _, mine := range []error{os.ErrNotExist, ErrNoRecords, errTorn} {
		calls := 0
		require.ErrorIs(t, Read(r.cfg.Dir, func(Entry) error { calls++; return mine }), mine)
		require.Equal(t, 1, calls)
	}
}

// brokenFile takes some bytes of each write and fails; it counts what it was asked.
type brokenFile struct {
	ringFile
	room      int
	noTrunc   bool
	truncated int
}

var errFull = errors.New("no space left on device")

func (b *brokenFile) Write(p []byte) (int, error) {
	if len(p) <= b.room {
		b.room -= len(p)
		return b.ringFile.Write(p)
	}
	n, _ := b.ringFile.Write(p[:b.room])
	b.room = 0
	return n, errFull
}

func (b *brokenFile) Truncate(size int64) error {
	b.truncated++
	if b.noTrunc {
		return errFull
	}
	return b.ringFile.Truncate(size)
}

// A full disk loses records, counted and told once a minute; once there is room the ring goes on, and nothing is hidden behind half a record.
func TestFullDisk(t *testing.T) {
	for _, noTrunc := range []bool{false, true} {
		r, log := open(t, Config{})
		at := time.Unix(0, 0)
		r.now = func() time.Time { return at }
		var file *brokenFile
		r.openSegment = func(path string, flag int) (ringFile, error) {
			f, err := openFile(path, flag)
			file = &brokenFile{ringFile: f, room: 1 << 20, noTrunc: noTrunc}
			return file, err
		}
		r.write(sample(0))
		file.room = 50
		r.write(sample(1))
		r.write(sample(1)) // not tried
		require.Equal(t, 1, file.truncated)
		at = at.Add(retryAfter)
		if !noTrunc {
			file.room = 0
			r.write(sample(1))
		}
		at = at.Add(retryAfter)
		file.room, file.noTrunc = 1<<20, false
		r.write(sample(1))
		r.write(sample(2))
		st := r.Stats()
		require.EqualValues(t, 3, st.Written)
		require.EqualValues(t, map[bool]int{false: 3, true: 2}[noTrunc], st.Failed)
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")), log)
		require.Contains(t, log.String(), errFull.Error())
		got, _ := readAll(t, r.cfg.Dir)
		require.Equal(t, []*host.Record{sample(0), sample(1), sample(2)}, got)
		require.NoError(t, r.file.Close())
	}
}

// The first record of a segment may be the one that does not fit, and its half cannot be cut either.
func TestFullDiskAtTheBeginning(t *testing.T) {
	r, _ := open(t, Config{})
	at := time.Unix(0, 0)
	r.now = func() time.Time { return at }
	room := len(magic) + 50
	r.openSegment = func(path string, flag int) (ringFile, error) {
		f, err := openFile(path, flag)
		return &brokenFile{ringFile: f, room: room, noTrunc: true}, err
	}
	r.write(sample(0))
	at = at.Add(retryAfter)
	room = 1 << 20
	r.write(sample(1))
	require.EqualValues(t, 1, r.Stats().Written)
	got, bad := readAll(t, r.cfg.Dir)
	require.Equal(t, []*host.Record{sample(1)}, got)
	require.Len(t, bad, 1)
}

// A directory that cannot be had is no reason not to start, nor one that goes away.
func TestNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	r, log := open(t, Config{Dir: dir, Records: segments})
	at := time.Unix(0, 0)
	r.now = func() time.Time { return at }
	r.write(sample(0))
	require.Equal(t, Stats{Failed: 1}, r.Stats())
	require.Contains(t, log.String(), "are not kept")
	require.NoError(t, os.Remove(dir))
	at = at.Add(retryAfter)
	r.write(sample(0))
	require.Equal(t, []uint64{0}, numbers(t, dir))
	require.NoError(t, os.RemoveAll(dir))
	r.write(sample(1)) // the next segment
	require.EqualValues(t, 2, r.Stats().Failed)
	at = at.Add(retryAfter)
	r.write(sample(0))
	require.Equal(t, []uint64{0}, numbers(t, dir))
}

// Recording never waits: what does not fit into the queue is dropped and counted, and what was queued is written by Close.
func TestRecordNeverWaits(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "records"), Logger: slog.New(slog.DiscardHandler)}
	r := newRing(cfg)
	for i := range queueRecords + 10 {
		r.Record(sample(i))
	}
	require.Equal(t, Stats{Dropped: 10}, r.Stats())
	go r.run()
	r.Close()
	r.Record(sample(0)) // after the end
	require.EqualValues(t, queueRecords, r.Stats().Written)
	require.EqualValues(t, 11, r.Stats().Dropped)
	require.Len(t, numbers(t, cfg.Dir), queueRecords)
	require.Zero(t, r.waiting.Load())
	r.Close()

	r = newRing(cfg)
	big := sample(0)
	big.Input = make([]byte, queueBytes+1)
	r.Record(big) // any size, where nothing waits
	r.Record(sample(1))
	require.Equal(t, Stats{Dropped: 1}, r.Stats())
}

// Reading is safe while a node writes and drops (a reader takes no lock): what is read is whole and in order.
func TestReadWhileWriting(t *testing.T) {
	r := Open(Config{Dir: filepath.Join(t.TempDir(), "records"), Records: 64, Logger: slog.New(slog.DiscardHandler)})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				rec := sample(i % 256)
				r.Record(rec)
			}
		}
	})
	seen := 0
	for seen < 5000 {
		last := int64(-1)
		err := Read(r.cfg.Dir, func(e Entry) error {
			if e.Err != nil {
				return e.Err
			}
			require.Greater(t, int64(e.Number), last)
			require.Equal(t, sample(int(e.Record.Input[6])), e.Record)
			last = int64(e.Number)
			seen++
			return nil
		})
		if errors.Is(err, ErrNoRecords) || errors.Is(err, os.ErrNotExist) {
			continue // nothing yet
		}
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
	r.Close()
}

// A file of another format keeps its bytes, and the ring goes on beside it.
func TestForeignFile(t *testing.T) {
	r, log := open(t, Config{})
	require.NoError(t, os.MkdirAll(r.cfg.Dir, 0o700))
	newer := []byte("DRVRREC\x02 and so on")
	path := segmentPath(r.cfg.Dir, 7)
	require.NoError(t, os.WriteFile(path, newer, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(r.cfg.Dir, "7.rec"), nil, 0o600)) // no name of a segment
	r.write(sample(0))
	require.EqualValues(t, 1, r.Stats().Written)
	require.Contains(t, log.String(), "it has format 2, this drover reads 1")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, newer, b)
	got, bad := readAll(t, r.cfg.Dir)
	require.Equal(t, []*host.Record{sample(0)}, got)
	require.Len(t, bad, 1)
	require.ErrorIs(t, bad[0], ErrNoRecords)
	require.ErrorContains(t, bad[0], path)
	require.ErrorIs(t, Read(path, nil), ErrNoRecords)
}

// What has the name of the next segment, or the last name there is, does not end the ring.
func TestNamesThatAreTaken(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a directory":  func(dir string) error { return os.Mkdir(segmentPath(dir, 0), 0o700) },
		"a link":       func(dir string) error { return os.Symlink("nowhere", segmentPath(dir, 0)) },
		"the last one": func(dir string) error { return os.WriteFile(segmentPath(dir, math.MaxUint64), []byte(magic), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Dir: t.TempDir(), Bytes: 8 << 10}
			require.NoError(t, spoil(cfg.Dir))
			for range 4 { // starts
				r, log := open(t, cfg)
				for i := range 20 {
					r.write(sample(i))
				}
				require.EqualValues(t, 20, r.Stats().Written, log.String())
				require.LessOrEqual(t, r.Stats().Bytes, cfg.Bytes)
				if r.file != nil {
					require.NoError(t, r.file.Close())
					r.file = nil
				}
			}
			got, bad := readAll(t, cfg.Dir)
			require.Empty(t, bad)
			require.NotEmpty(t, got)
		})
	}
}

func FuzzSegment(f *testing.F) {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	require.NoError(f, err)
	for i := range 2 {
		require.NoError(f, w.Write(sample(i)))
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-1])
	f.Add([]byte(magic))
	f.Add(append([]byte(magic), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := openFrames(bytes.NewReader(b))
		if err != nil {
			require.ErrorIs(t, err, ErrNoRecords)
			return
		}
		for {
			payload, err := frames.next()
			require.LessOrEqual(t, frames.size, int64(len(b)))
			if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
				return
			}
			if err == nil {
				require.Equal(t, payload, appendFrame(nil, payload)[frameHead:])
			} else {
				require.ErrorIs(t, err, errDamaged)
			}
		}
	})
}
