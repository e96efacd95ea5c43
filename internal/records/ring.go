package records

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/loglimit"
)

// The bounds of a node's ring. A cluster of 100 shards writes about 1 kB each interval of 2 s: more than a day; one of 100 000 shards some 250 kB:
// ten minutes.
const (
	defaultBytes   = 64 << 20
	defaultRecords = 100_000

	segments = 8 // that a full ring has: so much of it goes at once

	// What waits for the disk.
	queueRecords = 256
	queueBytes   = 64 << 20
	// keepBuffer is the largest buffer that is used again.
	keepBuffer = 1 << 20

	// retryAfter is the pause after a write that failed; what comes meanwhile is lost. A full disk is not tried with each record.
	retryAfter = time.Second
	// closePatience bounds the wait for a disk that hangs.
	closePatience = 2 * time.Second
	logEvery      = time.Minute
	// nameTries bounds the search for the name of a new segment; the next record goes on with it.
	nameTries = 64
)

// Config opens a Ring.
type Config struct {
	Dir     string // is made, mode 0700, where needed
	Bytes   int64  // most bytes of all files; 0: 64 MiB
	Records uint64 // most records; 0: 100 000
	Logger  *slog.Logger
}

// Ring keeps the latest records on disk. Its methods may be called from any goroutine.
type Ring struct {
	cfg         Config
	now         func() time.Time
	openSegment func(path string, flag int) (ringFile, error) // to append to it
	limit       loglimit.Limiter
	queue       chan *pending
	done        chan struct{} // closed once the writer has ended
	pool        sync.Pool
	waiting     atomic.Int64 // bytes in the queue
	written     atomic.Uint64
	dropped     atomic.Uint64
	failed      atomic.Uint64
	size        atomic.Int64

	mu     sync.RWMutex // held for reading while a record is queued
	closed bool

	// Of the writer's goroutine alone.
	opened  bool
	file    ringFile  // of the newest segment; nil until the next record
	segs    []segment // oldest first
	next    uint64    // number of the next record
	frame   []byte
	retryAt time.Time
}

var _ host.Recorder = (*Ring)(nil)

// ringFile is what is needed of an *os.File; tests have one whose disk is full.
type ringFile interface {
	io.WriteCloser
	Truncate(size int64) error
}

// Open starts the writer of a ring. Trouble with the directory stops nobody: it is logged, counted, and tried again.
func Open(cfg Config) *Ring {
	r := newRing(cfg)
	go r.run()
	return r
}

func newRing(cfg Config) *Ring {
	if cfg.Bytes == 0 {
		cfg.Bytes = defaultBytes
	}
	if cfg.Records == 0 {
		cfg.Records = defaultRecords
	}
	return &Ring{cfg: cfg, now: time.Now, openSegment: openFile, limit: loglimit.Limiter{Every: logEvery}, queue: make(chan *pending, queueRecords), done: make(chan struct{}),
		pool: sync.Pool{New: func() any { return new(pending) }}}
}

func openFile(path string, flag int) (ringFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|flag, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Stats counts since the ring was opened.
type Stats struct {
	Written uint64
	Dropped uint64 // because too many waited for the disk
	Failed  uint64 // to be written
	Bytes   int64  // on disk
}

// Stats gives the counters.
func (r *Ring) Stats() Stats {
	return Stats{Written: r.written.Load(), Dropped: r.dropped.Load(), Failed: r.failed.Load(), Bytes: r.size.Load()}
}

// Record implements host.Recorder: it copies the record and returns.
func (r *Ring) Record(rec *host.Record) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := int64(len(rec.Input) + len(rec.Output))
	if waiting := r.waiting.Add(n); r.closed || waiting-n > queueBytes { // one of any size fits where there is any room
		r.drop(n)
		return
	}
	p := r.pool.Get().(*pending)
	p.clone(rec)
	select {
	case r.queue <- p:
	default:
		r.pool.Put(p)
		r.drop(n)
	}
}

func (r *Ring) drop(n int64) {
	r.waiting.Add(-n)
	r.dropped.Add(1)
}

// Close writes what waits and ends the writer. It waits for a disk that hangs no longer than closePatience.
func (r *Ring) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	r.mu.Unlock()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		r.cfg.Logger.Warn("the latest records of strategy calls are lost: the disk does not answer", "dir", r.cfg.Dir, "waited", closePatience)
	}
}

func (r *Ring) run() {
	defer close(r.done)
	r.open()
	for p := range r.queue {
		n := int64(len(p.buf))
		r.write(&p.rec)
		if cap(p.buf) > keepBuffer {
			*p = pending{}
		}
		r.pool.Put(p)
		r.waiting.Add(-n)
	}
	if r.file != nil {
		r.warn(r.file.Close())
	}
}

func (r *Ring) warn(err error) {
	if err == nil {
		return
	}
	if ok, hidden := r.limit.Pass("write"); ok {
		r.cfg.Logger.Warn("records of strategy calls are not kept: free space or correct the permissions; decisions go on", "dir", r.cfg.Dir, "error", err, "hidden", hidden)
	}
}

// open finds what is there, cuts a torn end, and appends to the newest segment where it can.
func (r *Ring) open() bool {
	if r.opened {
		return true
	}
	if err := r.recover(); err != nil {
		r.retryAt = r.now().Add(retryAfter)
		r.warn(err)
		return false
	}
	r.opened = true
	return true
}

func (r *Ring) recover() error {
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return err
	}
	segs, err := listSegments(r.cfg.Dir)
	if err != nil {
		return err
	}
	r.segs, r.next = segs, 0
	if n := len(segs); n > 0 {
		newest := &r.segs[n-1]
		path := segmentPath(r.cfg.Dir, newest.first)
		size, count, cut, err := recoverSegment(path)
		switch {
		case errors.Is(err, ErrNoRecords):
			// It goes when it is the oldest; nothing is appended to it. A segment holds fewer records than its name leaves numbers for.
			r.cfg.Logger.Warn("a file among the records of strategy calls is none", "file", path, "error", err)
			r.next = newest.first + r.segmentRecords()
		case err != nil:
			return err
		default:
			if cut > 0 {
				r.cfg.Logger.Warn("the end of the records of strategy calls was torn, and is cut", "file", path, "bytes", cut)
			}
			newest.size, r.next = size, newest.first+count
			if size == 0 { // not even its head was written
				if err := os.Remove(path); err != nil {
					return err
				}
				r.segs = r.segs[:n-1]
			} else if !r.full(*newest) {
				if r.file, err = r.openSegment(path, 0); err != nil {
					return err
				}
			}
		}
	}
	r.measure()
	return nil
}

func (r *Ring) segmentRecords() uint64 { return max(r.cfg.Records/segments, 1) }

func (r *Ring) full(s segment) bool {
	return s.size >= r.cfg.Bytes/segments || r.next-s.first >= r.segmentRecords()
}

func (r *Ring) measure() {
	var sum int64
	for _, s := range r.segs {
		sum += s.size
	}
	r.size.Store(sum)
}

// write appends a record, or counts it as failed.
func (r *Ring) write(rec *host.Record) {
	if r.now().Before(r.retryAt) || !r.open() {
		r.failed.Add(1)
		return
	}
	payload, err := encodeUpTo(rec, int(min(MaxRecord, r.cfg.Bytes-int64(len(magic))-frameHead)))
	if err == nil {
		r.frame = appendFrame(r.frame[:0], payload)
		err = r.append()
		if cap(r.frame) > keepBuffer {
			r.frame = nil
		}
		if err != nil {
			r.retryAt = r.now().Add(retryAfter)
		}
	}
	if err != nil {
		r.failed.Add(1)
		r.warn(err)
		return
	}
	r.written.Add(1)
}

func (r *Ring) append() error {
	if r.file != nil && r.full(r.segs[len(r.segs)-1]) {
		err := r.file.Close()
		r.file = nil
		if err != nil {
			return err
		}
	}
	need := int64(len(r.frame))
	if r.file == nil {
		need += int64(len(magic))
	}
	if err := r.makeRoom(need); err != nil {
		return err
	}
	if r.file == nil {
		if err := r.begin(); err != nil {
			return err
		}
	}
	last := &r.segs[len(r.segs)-1]
	n, err := r.file.Write(r.frame)
	if err != nil {
		if n > 0 { // half a frame would hide all that follow
			if terr := r.file.Truncate(last.size); terr != nil {
				err = errors.Join(err, terr, r.abandon())
				r.next++ // the next segment needs a name of its own
			}
		}
		return err
	}
	last.size += int64(n)
	r.next++
	r.measure()
	return nil
}

// makeRoom removes the oldest segments until there is room for so many bytes and one record. It may take the one that is appended to.
func (r *Ring) makeRoom(need int64) error {
	for len(r.segs) > 0 && (r.size.Load()+need > r.cfg.Bytes || r.next-r.segs[0].first >= r.cfg.Records) {
		if len(r.segs) == 1 && r.file != nil {
			if err := r.abandon(); err != nil {
				return err
			}
		}
		if err := os.Remove(segmentPath(r.cfg.Dir, r.segs[0].first)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		r.segs = r.segs[1:]
		r.measure()
	}
	return nil
}

// abandon appends no more to the newest segment.
func (r *Ring) abandon() error {
	err := r.file.Close()
	r.file = nil
	return err
}

// begin makes a new segment.
func (r *Ring) begin() error {
	path := segmentPath(r.cfg.Dir, r.next)
	file, err := r.openSegment(path, os.O_CREATE|os.O_EXCL)
	for range nameTries { // a name that somebody has taken, with what is no segment or the last number there is
		if !errors.Is(err, os.ErrExist) {
			break
		}
		r.next += r.segmentRecords()
		path = segmentPath(r.cfg.Dir, r.next)
		file, err = r.openSegment(path, os.O_CREATE|os.O_EXCL)
	}
	if errors.Is(err, os.ErrNotExist) { // somebody has removed the directory
		r.opened, r.segs = false, nil
		return err
	}
	if err != nil {
		return err
	}
	if _, err := io.WriteString(file, magic); err != nil {
		return errors.Join(err, file.Close(), os.Remove(path))
	}
	r.file = file
	r.segs = append(r.segs, segment{first: r.next, size: int64(len(magic))})
	r.measure()
	return nil
}
