package records

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// magic begins each segment; its last byte is the version of the file format.
const magic = "DRVRREC\x01"

const (
	frameHead = 12
	suffix    = ".rec"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the frame of a payload.
func appendFrame(dst, payload []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:at+4], castagnoli))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(payload, castagnoli))
	return append(dst, payload...)
}

// ErrNoRecords says that a file is no segment of records.
var ErrNoRecords = errors.New("no file of strategy records")

// errTorn says that a segment ends in the middle of a frame, or goes on with what is none.
var errTorn = errors.New("the file goes on with what is no record")

// errDamaged says that a frame's payload is another than was written; the next frame can be read.
var errDamaged = errors.New("a damaged record")

// frames reads the frames of a segment.
type frames struct {
	r    io.Reader
	size int64 // of all that was read and is sound as a frame, its payload aside
	buf  bytes.Buffer
}

// openFrames reads the head of a segment. What is too short for one is an empty segment if it is the head's beginning: its writer was stopped.
func openFrames(r io.Reader) (*frames, error) {
	r = bufio.NewReaderSize(r, 64<<10)
	var head [len(magic)]byte
	n, err := io.ReadFull(r, head[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if string(head[:n]) != magic[:n] {
		if n == len(magic) && string(head[:n-1]) == magic[:n-1] {
			return nil, fmt.Errorf("%w that this drover reads: it has format %d, this drover reads %d", ErrNoRecords, head[n-1], magic[n-1])
		}
		return nil, ErrNoRecords
	}
	f := &frames{r: r}
	if n == len(magic) {
		f.size = int64(n)
	}
	return f, nil
}

// next gives the next payload, which is valid until the next call. io.EOF ends a sound segment, errTorn any other; after errDamaged there may be
// more.
func (f *frames) next() ([]byte, error) {
	if f.size == 0 {
		return nil, io.EOF
	}
	var head [frameHead]byte
	switch _, err := io.ReadFull(f.r, head[:]); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errTorn
	case err != nil:
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if crc32.Checksum(head[:4], castagnoli) != binary.LittleEndian.Uint32(head[4:]) || n > MaxRecord {
		return nil, errTorn
	}
	f.buf.Reset()
	// Memory is taken as it is filled: what a file says of its length need not be so.
	if m, err := io.CopyN(&f.buf, f.r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) && m < int64(n) {
			err = errTorn
		}
		return nil, err
	}
	f.size += frameHead + int64(n)
	if crc32.Checksum(f.buf.Bytes(), castagnoli) != binary.LittleEndian.Uint32(head[8:]) {
		return nil, errDamaged
	}
	return f.buf.Bytes(), nil
}

// segment is one file of a ring.
type segment struct {
	first uint64 // number of its first record
	size  int64
}

func segmentName(first uint64) string { return fmt.Sprintf("%016x%s", first, suffix) }

func parseSegment(name string) (first uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 16, 64)
	return first, err == nil && segmentName(first) == name
}

// listSegments gives the segments in dir, oldest first. A directory that is not there has none.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, e := range entries {
		first, ok := parseSegment(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // a node has dropped it meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, segment{first, info.Size()})
	}
	slices.SortFunc(out, func(a, b segment) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	return out, nil
}

// recoverSegment cuts what a stopped writer left behind the last whole frame of a segment, and gives what is left: its size and the number of its frames. A
// file that is no segment keeps its bytes, and is an error.
func recoverSegment(path string) (size int64, count uint64, cut int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, 0, err
	}
	f, err := openFrames(file)
	if err != nil {
		return 0, 0, 0, err
	}
	for {
		_, err := f.next()
		if err == nil || errors.Is(err, errDamaged) {
			count++
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, errTorn) {
			return 0, 0, 0, err
		}
		break
	}
	if cut = info.Size() - f.size; cut > 0 {
		err = file.Truncate(f.size)
	}
	return f.size, count, cut, err
}

func segmentPath(dir string, first uint64) string { return filepath.Join(dir, segmentName(first)) }
