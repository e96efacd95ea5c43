package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
)

// disk stands between raft's log (raft-wal) and its files, because the log by itself does not get over a full disk: it fills one file, seals it, and
// where the next one cannot be made it refuses every entry until the process starts again; a process killed in between never gets over it at all.
// Here the next file is made with its first entry, and what its index (the meta store) could not take is kept until it does; so the one thing that fails
// is the appending of entries, which raft deals with, and the next try may succeed.
type disk struct {
	types.MetaStore
	files types.SegmentFiler

	mu      sync.Mutex
	lenient bool // once raft runs; before, every error ends the start
	pending *types.PersistentState
	doomed  []types.SegmentInfo // files that the index on disk still names: they go once pending is written
	tail    *tail
}

// Load implements types.MetaStore. A last file that was sealed without a successor gets one here.
func (d *disk) Load(dir string) (types.PersistentState, error) {
	state, err := d.loadIndex(dir)
	if err != nil || len(state.Segments) == 0 {
		return state, err
	}
	last := &state.Segments[len(state.Segments)-1]
	if !last.SealTime.IsZero() {
		return state, nil
	}
	w, err := d.files.RecoverTail(*last)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	sealed, start, err := w.Sealed()
	entries := w.LastIndex()
	if err = errors.Join(err, w.Close()); err != nil || !sealed {
		return state, err
	}
	last.SealTime, last.MaxIndex, last.IndexStart = time.Now(), entries, start
	next := types.SegmentInfo{ID: state.NextSegmentID, BaseIndex: entries + 1, MinIndex: entries + 1, SizeLimit: last.SizeLimit, Codec: last.Codec, CreateTime: time.Now()}
	state.NextSegmentID++
	state.Segments = append(state.Segments, next)
	return state, d.MetaStore.CommitState(state)
}

// loadIndex reads the index. raft-wal takes an index that is gone for a new log and deletes the files of the old one, with the votes forgotten that lay
// in the index; and bbolt, in which it lies, panics or faults on pages that are damaged or cut off.
func (d *disk) loadIndex(dir string) (state types.PersistentState, err error) {
	index := filepath.Join(dir, metadb.FileName)
	if _, err := os.Stat(index); errors.Is(err, fs.ErrNotExist) {
		files, err := d.files.List()
		if err != nil {
			return state, err
		}
		if len(files) > 0 {
			return state, fmt.Errorf("%s is gone, though the log has entries", index)
		}
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // what is cut off is mapped all the same
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%s is damaged: %v", index, e)
		}
	}()
	return d.MetaStore.Load(dir)
}

// CommitState implements types.MetaStore. Once raft runs a state that cannot be written waits: no entry is appended before it is.
func (d *disk) CommitState(state types.PersistentState) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = &state
	if err := d.flush(); err != nil && !d.lenient {
		d.pending = nil
		return err
	}
	return nil
}

// flush writes the state that waits. d.mu is held.
func (d *disk) flush() error {
	if d.pending == nil {
		return nil
	}
	if err := d.MetaStore.CommitState(*d.pending); err != nil {
		return err
	}
	d.pending = nil
	for _, s := range d.doomed {
		_ = d.files.Delete(s.BaseIndex, s.ID) // the next start deletes what the index does not name
	}
	d.doomed = nil
	return nil
}

// SetStable implements types.MetaStore. A server that could append nothing gives no vote and asks for none.
func (d *disk) SetStable(key, value []byte) error {
	d.mu.Lock()
	err := d.flush()
	tail := d.tail
	d.mu.Unlock()
	if err == nil && tail != nil {
		_, err = tail.file()
	}
	if err != nil {
		return err
	}
	return d.MetaStore.SetStable(key, value)
}

// run says that raft runs.
func (d *disk) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lenient = true
}

// filer is the disk as raft-wal's filer.
type filer struct{ d *disk }

// Create implements types.SegmentFiler, as do the following.
func (f filer) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	return f.d.newTail(info, true)
}

func (f filer) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	return f.d.newTail(info, false)
}

func (f filer) Open(info types.SegmentInfo) (types.SegmentReader, error) { return f.d.files.Open(info) }

func (f filer) List() (map[uint64]uint64, error) { return f.d.files.List() }

func (f filer) Delete(base, id uint64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.pending != nil {
		f.d.doomed = append(f.d.doomed, types.SegmentInfo{BaseIndex: base, ID: id})
		return nil
	}
	err := f.d.files.Delete(base, id)
	if errors.Is(err, fs.ErrNotExist) { // it never had an entry
		return nil
	}
	return err
}

func (d *disk) newTail(info types.SegmentInfo, create bool) (types.SegmentWriter, error) {
	t := &tail{disk: d, info: info}
	d.mu.Lock()
	lenient := d.lenient
	d.mu.Unlock()
	var err error
	if create {
		_, err = t.file()
	} else {
		t.w, err = d.files.RecoverTail(info)
	}
	if err != nil && !(create && lenient) {
		return nil, err
	}
	d.mu.Lock()
	d.tail = t
	d.mu.Unlock()
	return t, nil
}

// tail is the file that entries are appended to, made when it is first needed and can be.
type tail struct {
	disk *disk
	info types.SegmentInfo

	mu     sync.RWMutex // held to exchange w
	w      types.SegmentWriter
	torn   bool // sealing failed: w takes itself for sealed, and the file may not be
	closed bool
}

// file gives the file, made or read anew where needed.
func (t *tail) file() (types.SegmentWriter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, types.ErrClosed
	}
	if t.w != nil && !t.torn {
		return t.w, nil
	}
	w, err := t.disk.files.RecoverTail(t.info) // a failed try to make it may have left one
	if errors.Is(err, fs.ErrNotExist) {
		w, err = t.disk.files.Create(t.info)
	}
	if err != nil {
		return nil, err
	}
	if t.w != nil {
		_ = t.w.Close() // everything in it that counts is in w
	}
	t.w, t.torn = w, false
	return w, nil
}

// present gives the file if there is one.
func (t *tail) present() types.SegmentWriter {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.w
}

// Append implements types.SegmentWriter, as do the following.
func (t *tail) Append(entries []types.LogEntry) error {
	t.disk.mu.Lock()
	err := t.disk.flush()
	t.disk.mu.Unlock()
	if err != nil {
		return err
	}
	w, err := t.file()
	if err != nil {
		return err
	}
	return w.Append(entries)
}

func (t *tail) ForceSeal() (uint64, error) {
	w, err := t.file()
	if err != nil {
		return 0, err
	}
	start, err := w.ForceSeal()
	if err != nil {
		t.mu.Lock()
		t.torn = true
		t.mu.Unlock()
	}
	return start, err
}

func (t *tail) Sealed() (bool, uint64, error) {
	if w := t.present(); w != nil {
		return w.Sealed()
	}
	return false, 0, nil
}

func (t *tail) LastIndex() uint64 {
	if w := t.present(); w != nil {
		return w.LastIndex()
	}
	return 0
}

func (t *tail) GetLog(index uint64) (*types.PooledBuffer, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.w == nil {
		return nil, types.ErrNotFound
	}
	return t.w.GetLog(index)
}

func (t *tail) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.w == nil {
		return nil
	}
	return t.w.Close()
}
