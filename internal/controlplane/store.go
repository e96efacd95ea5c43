package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/droverhq/drover/internal/loglimit"
)

// faults are what cannot be written to the disk at present, as when it is full. Its methods may be called from any goroutine.
type faults struct {
	logger *slog.Logger
	limit  loglimit.Limiter
	now    [faultKinds]atomic.Pointer[error]
}

type faultKind uint8

const (
	logFault faultKind = iota
	voteFault
	snapshotFault
	faultKinds
)

// String names the thing for logs and for GET /readyz.
func (k faultKind) String() string {
	return [...]string{"the raft log", "raft's term and vote", "a raft snapshot"}[k]
}

// effect is what follows while it lasts.
func (k faultKind) effect() string {
	if k == snapshotFault {
		return "the raft log grows until a snapshot is written"
	}
	return "this server keeps what it has, and neither leads nor votes"
}

func newFaults(l *slog.Logger) *faults {
	return &faults{logger: l, limit: loglimit.Limiter{Every: repeatAfter}}
}

// note takes the outcome of a write, tells what has changed, and repeats once in a while what has not. It returns err.
func (f *faults) note(k faultKind, err error) error {
	if err == nil {
		if f.now[k].Swap(nil) != nil {
			f.logger.Info(k.String() + " can be written again")
		}
		return nil
	}
	f.now[k].Store(&err)
	if ok, hidden := f.limit.Pass(k.String()); ok {
		f.logger.Warn(k.String()+" cannot be written", "error", err, "repeated", hidden, "effect", k.effect(),
			"hint", "make room on the disk of data_dir: it is tried again, and the node need not be started again")
	}
	return err
}

// present gives the gravest fault that keeps this server from its work; nil: none.
func (f *faults) present() error {
	for k := range snapshotFault {
		if err := f.now[k].Load(); err != nil {
			return fmt.Errorf("%s cannot be written: %w; %s", k, *err, k.effect())
		}
	}
	return nil
}

// store is raft's view of the log. A write that the disk does not take is refused, so that a leader steps down and a follower acknowledges nothing; the
// log is as it was before, and takes the next one once there is room (see disk.go). raft does not survive an error of a read, and of a write of its term:
// the first ends the node in good order, the second is tried until it succeeds, during which this server is silent.
type store struct {
	*wal.WAL
	faults  *faults
	fatal   func(error)
	live    atomic.Bool     // raft runs: before, an error ends the start
	closing <-chan struct{} // closed when raft is about to end
}

// retryEvery is how often a write is tried that raft does not survive the failure of.
const retryEvery = 250 * time.Millisecond

// StoreLogs implements raft.LogStore, as do the following. A gap before the first entry is one that raft has a snapshot of.
func (s *store) StoreLogs(logs []*raft.Log) error {
	err := s.closeGap(logs)
	if err == nil {
		err = s.WAL.StoreLogs(logs)
	}
	return s.outcome(err)
}

func (s *store) closeGap(logs []*raft.Log) error {
	last, err := s.WAL.LastIndex()
	if err != nil || last == 0 || len(logs) == 0 || logs[0].Index <= last+1 {
		return err
	}
	first, err := s.WAL.FirstIndex()
	if err != nil {
		return err
	}
	return s.WAL.DeleteRange(first, last)
}

func (s *store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

func (s *store) DeleteRange(from, to uint64) error { return s.outcome(s.WAL.DeleteRange(from, to)) }

func (s *store) outcome(err error) error {
	if s.live.Load() {
		return s.faults.note(logFault, err)
	}
	return err
}

func (s *store) GetLog(index uint64, log *raft.Log) error {
	err := s.WAL.GetLog(index, log)
	if err == nil || errors.Is(err, wal.ErrNotFound) || errors.Is(err, wal.ErrClosed) || !s.live.Load() {
		return err
	}
	s.fatal(fmt.Errorf("entry %d of the raft log cannot be read: %w; %s", index, err, restoreHint))
	s.await()
	return err
}

func (s *store) Set(key, value []byte) error {
	return s.insist(func() error { return s.WAL.Set(key, value) })
}

func (s *store) SetUint64(key []byte, value uint64) error {
	if old, err := s.WAL.GetUint64(key); err == nil && old == value {
		return nil
	}
	return s.insist(func() error { return s.WAL.SetUint64(key, value) })
}

func (s *store) insist(write func() error) error {
	for {
		err := write()
		if !s.live.Load() {
			return err
		}
		if s.faults.note(voteFault, err) == nil {
			return nil
		}
		select {
		case <-s.closing:
			s.await()
		case <-time.After(retryEvery):
		}
	}
}

// await keeps a goroutine of raft's from going on after an error that it would panic over. It ends with raft.
func (s *store) await() {
	<-s.closing
	runtime.Goexit()
}
