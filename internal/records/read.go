package records

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/droverhq/drover/host"
)

// Dir is the directory of the ring within a data_dir.
const Dir = "records"

// Entry is a record as it was read.
type Entry struct {
	Number uint64 // in the ring, from 0; in another file its place
	Record *host.Record
	// Err says why there is no record: it is damaged, or of another release.
	Err error
}

// Read hands the records at path to f, oldest first: those of a data_dir, of the directory of a ring, or of an exported file. A node may run on the
// data_dir; what it drops meanwhile is left out. An error of f's ends the reading and is returned. ErrNoRecords says that there is nothing of the kind.
func Read(path string, f func(Entry) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		s, err := openSegment(path)
		if err != nil {
			return err
		}
		first, _ := parseSegment(filepath.Base(path))
		return s.read(first, false, f)
	}
	dir := filepath.Join(path, Dir)
	segs, err := listSegments(dir)
	if err == nil && len(segs) == 0 {
		if _, serr := os.Stat(dir); serr == nil {
			return nil // a ring, and nothing in it yet
		}
		dir = path
		segs, err = listSegments(dir)
	}
	if err != nil {
		return err
	}
	if len(segs) == 0 {
		return fmt.Errorf("%s: %w: want a data_dir, or a file that drover strategy replay --export wrote", path, ErrNoRecords)
	}
	for i, s := range segs {
		open, err := openSegment(segmentPath(dir, s.first))
		switch {
		case errors.Is(err, fs.ErrNotExist): // dropped meanwhile
			continue
		case errors.Is(err, ErrNoRecords): // of another release: the others can be read all the same
			err = f(Entry{Number: s.first, Err: err})
		case err == nil:
			err = open.read(s.first, i == len(segs)-1, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// segmentFile is a file that begins as a segment does.
type segmentFile struct {
	*os.File
	frames *frames
}

func openSegment(path string) (*segmentFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	frames, err := openFrames(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return &segmentFile{file, frames}, nil
}

// read hands over the records and closes the file. The newest of a ring may end in the middle of a frame: it is being written, or its writer was stopped.
func (s *segmentFile) read(first uint64, newest bool, f func(Entry) error) error {
	defer s.Close()
	path, frames := s.Name(), s.frames
	for number := first; ; number++ {
		payload, err := frames.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errTorn) && newest:
			return nil
		case errors.Is(err, errTorn):
			return f(Entry{Number: number, Err: fmt.Errorf("%s: %w after %d bytes", path, err, frames.size)})
		case errors.Is(err, errDamaged):
			err = f(Entry{Number: number, Err: fmt.Errorf("%s: %w before byte %d", path, err, frames.size)})
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		default:
			e := Entry{Number: number}
			if e.Record, e.Err = Decode(payload); e.Err != nil {
				e.Err = fmt.Errorf("%s: %w", path, e.Err)
			}
			err = f(e)
		}
		if err != nil {
			return err
		}
	}
}

// Writer writes a file of records, for Read.
type Writer struct{ w io.Writer }

// NewWriter begins a file.
func NewWriter(w io.Writer) (*Writer, error) {
	if _, err := io.WriteString(w, magic); err != nil {
		return nil, err
	}
	return &Writer{w}, nil
}

// Write appends a record.
func (w *Writer) Write(r *host.Record) error {
	payload, err := Encode(r)
	if err != nil {
		return err
	}
	_, err = w.w.Write(appendFrame(nil, payload))
	return err
}
