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
		first, _ := parseSegment(filepath.Base(path))
		return readSegment(path, first, false, f)
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
		err := readSegment(segmentPath(dir, s.first), s.first, i == len(segs)-1, f)
		if errors.Is(err, ErrNoRecords) { // of another release: the others can be read all the same
			err = f(Entry{Number: s.first, Err: err})
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // dropped meanwhile
			return err
		}
	}
	return nil
}

// readSegment reads one file. The newest of a ring may end in the middle of a frame: it is being written, or its writer was stopped.
func readSegment(path string, first uint64, newest bool, f func(Entry) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	frames, err := openFrames(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
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
