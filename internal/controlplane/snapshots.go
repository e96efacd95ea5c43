package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// keep is how many snapshots stay.
const keep = 2

// snapshots is raft's store of snapshots. It says when one cannot be written, and leaves nothing of such a one behind: on a disk that is full what is
// half written is what there is too much of.
type snapshots struct {
	*raft.FileSnapshotStore
	dir    string
	faults *faults
}

// unfinished ends the name of a snapshot that is being written.
const unfinished = ".tmp"

func openSnapshots(dir string, f *faults, logger hclog.Logger) (*snapshots, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, keep, logger)
	if err != nil {
		return nil, err
	}
	s := &snapshots{FileSnapshotStore: files, dir: filepath.Join(dir, "snapshots"), faults: f}
	return s, s.remove("*") // what a process was at when it was killed
}

func (s *snapshots) remove(name string) error {
	found, err := filepath.Glob(filepath.Join(s.dir, name+unfinished))
	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// Create implements raft.SnapshotStore.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, cIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, c, cIndex, t)
	if err != nil {
		return nil, s.faults.note(snapshotFault, errors.Join(err, s.remove(fmt.Sprintf("%d-%d-*", term, index))))
	}
	return &snapshotSink{SnapshotSink: sink, of: s}, nil
}

type snapshotSink struct {
	raft.SnapshotSink
	of     *snapshots
	closed bool
}

// Write implements raft.SnapshotSink.
func (s *snapshotSink) Write(b []byte) (int, error) {
	n, err := s.SnapshotSink.Write(b)
	if err != nil {
		err = s.of.faults.note(snapshotFault, err)
	}
	return n, err
}

// Close implements raft.SnapshotSink; as there, a second one does nothing.
func (s *snapshotSink) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.SnapshotSink.Close()
	if err != nil {
		err = errors.Join(err, s.of.remove(s.ID()))
	}
	return s.of.faults.note(snapshotFault, err)
}

// Cancel implements raft.SnapshotSink.
func (s *snapshotSink) Cancel() error {
	s.closed = true
	return errors.Join(s.SnapshotSink.Cancel(), s.of.remove(s.ID()))
}
