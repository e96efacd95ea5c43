package records

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

const (
	// Version is that of the records that are written, and the only one that is read.
	Version = 1
	// MaxRecord is the longest encoded record in bytes: the input of as many shards as a cluster has, every load known, takes some 12 MB.
	MaxRecord = 32 << 20

	maxArray = 256 // lines of a guest's log; the host keeps 64
	maxMap   = 64  // keys of a record, those of later releases included
	maxDepth = 8
)

// ErrVersion says that a record was written by a release whose version this one does not read.
var ErrVersion = errors.New("unreadable record version")

// wire is the encoding of a record: core-deterministic CBOR, integer keys. A later release may add keys, which readers skip; what changes the
// meaning of one takes another version.
type wire struct {
	V           uint64  `cbor:"0,keyasint"`
	Type        string  `cbor:"1,keyasint"`
	Strategy    string  `cbor:"2,keyasint"`
	Digest      []byte  `cbor:"3,keyasint"`
	CostModel   uint64  `cbor:"4,keyasint"`
	Op          uint64  `cbor:"5,keyasint"`
	InputDigest []byte  `cbor:"6,keyasint"`
	Input       []byte  `cbor:"7,keyasint"` // null: too long to be kept
	Output      []byte  `cbor:"8,keyasint"` // null: the guest did not return
	Fuel        *uint64 `cbor:"9,keyasint"`
	FuelLimit   uint64  `cbor:"10,keyasint"`
	MemoryLimit uint32  `cbor:"11,keyasint"` // pages
	Pages       uint32  `cbor:"12,keyasint"`
	Budget      int64   `cbor:"13,keyasint"` // ns
	Started     int64   `cbor:"14,keyasint"` // ns since 1970
	Elapsed     int64   `cbor:"15,keyasint"` // ns
	Verdict     string  `cbor:"16,keyasint"`
	Error       string  `cbor:"17,keyasint"`
	Log         []line  `cbor:"18,keyasint"`
	Shadow      bool    `cbor:"19,keyasint,omitempty"` // nothing came of the call
}

type line struct {
	_       struct{} `cbor:",toarray"`
	Level   int64
	Message string
}

var (
	encMode = must(cbor.EncOptions{Sort: cbor.SortCoreDeterministic, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden}.EncMode())
	decMode = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: maxDepth, MaxArrayElements: maxArray, MaxMapPairs: maxMap, IntDec: cbor.IntDecConvertNone}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

// Encode gives the bytes of a record. One that would be longer than MaxRecord is without its input, and output if need be: its digest stays,
// and is computed here where nobody has done so.
func Encode(r *host.Record) ([]byte, error) { return encodeUpTo(r, MaxRecord) }

func encodeUpTo(r *host.Record, most int) ([]byte, error) {
	w := wire{V: Version, Type: text(r.Type), Strategy: text(r.Strategy), Digest: r.Digest[:], CostModel: uint64(r.CostModel), Op: uint64(r.Op),
		InputDigest: r.InputDigest[:], Input: r.Input, Output: r.Output, FuelLimit: uint64(r.FuelLimit), MemoryLimit: r.MemoryLimit, Pages: r.Pages,
		Budget: int64(r.Budget), Started: r.Started.UnixNano(), Elapsed: int64(r.Elapsed), Verdict: r.Verdict.String(), Error: text(r.Error), Shadow: r.Shadow}
	if r.InputDigest == (host.Digest{}) {
		digest := sha256.Sum256(r.Input)
		w.InputDigest = digest[:]
	}
	if r.Fuel != nil {
		fuel := uint64(*r.Fuel)
		w.Fuel = &fuel
	}
	for _, l := range r.Log {
		w.Log = append(w.Log, line{Level: int64(l.Level), Message: text(l.Message)})
	}
	if len(w.Input)+len(w.Output) > most {
		w.Input = nil
	}
	if len(w.Output) > most {
		w.Output = nil
	}
	b, err := encMode.Marshal(&w)
	if err == nil && len(b) > most && w.Input != nil {
		w.Input = nil
		b, err = encMode.Marshal(&w)
	}
	if err == nil && len(b) > most {
		err = fmt.Errorf("a record of %d bytes without its input: at most %d are kept", len(b), most)
	}
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b, nil
}

// text is s as CBOR can hold it: what is no UTF-8 would make the record unreadable.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// Decode reads one record, strictly: what is no record of this version, or has an input of another digest than it says, is an error, which wraps
// ErrVersion where that is the reason. Nothing of the result shares b's memory.
func Decode(b []byte) (*host.Record, error) {
	if len(b) > MaxRecord {
		return nil, fmt.Errorf("record of %d bytes: at most %d are read", len(b), MaxRecord)
	}
	// The version first: what another one means by the rest is not known.
	var v struct {
		V *uint64 `cbor:"0,keyasint"`
	}
	if err := decMode.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	if v.V == nil {
		return nil, errors.New("decode record: it has no version")
	}
	if *v.V != Version {
		return nil, fmt.Errorf("decode record: %w %d, this drover reads %d", ErrVersion, *v.V, Version)
	}
	var w wire
	if err := decMode.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	r, err := w.record()
	if err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return r, nil
}

func (w *wire) record() (*host.Record, error) {
	r := &host.Record{Type: w.Type, Strategy: w.Strategy, CostModel: int(w.CostModel), Op: pluginapi.Op(w.Op), Input: w.Input, Output: w.Output,
		FuelLimit: int64(w.FuelLimit), MemoryLimit: w.MemoryLimit, Pages: w.Pages, Budget: time.Duration(w.Budget), Started: time.Unix(0, w.Started),
		Elapsed: time.Duration(w.Elapsed), Error: w.Error, Shadow: w.Shadow}
	switch {
	case len(w.Digest) != len(r.Digest):
		return nil, fmt.Errorf("a module digest of %d bytes, want %d", len(w.Digest), len(r.Digest))
	case len(w.InputDigest) != len(r.InputDigest):
		return nil, fmt.Errorf("an input digest of %d bytes, want %d", len(w.InputDigest), len(r.InputDigest))
	case w.Op != uint64(pluginapi.OpAllocate) && w.Op != uint64(pluginapi.OpRebalance):
		return nil, fmt.Errorf("unknown operation %d", w.Op)
	case w.CostModel > 1<<31-1:
		return nil, fmt.Errorf("cost model %d is out of range", w.CostModel)
	case w.FuelLimit > host.MaxFuel:
		return nil, fmt.Errorf("fuel limit %d: at most %d", w.FuelLimit, int64(host.MaxFuel))
	case w.MemoryLimit > host.MaxMemoryPages:
		return nil, fmt.Errorf("memory limit of %d pages: at most %d", w.MemoryLimit, host.MaxMemoryPages)
	case w.Budget < 0 || w.Elapsed < 0:
		return nil, errors.New("a time below zero")
	}
	copy(r.Digest[:], w.Digest)
	copy(r.InputDigest[:], w.InputDigest)
	if err := r.Verdict.UnmarshalText([]byte(w.Verdict)); err != nil {
		return nil, err
	}
	if w.Fuel != nil {
		if *w.Fuel > 2*host.MaxFuel {
			return nil, fmt.Errorf("fuel %d: at most %d", *w.Fuel, int64(2*host.MaxFuel))
		}
		fuel := int64(*w.Fuel)
		r.Fuel = &fuel
	}
	if r.Input != nil && sha256.Sum256(r.Input) != r.InputDigest {
		return nil, errors.New("the input is not the one that its digest is of")
	}
	for _, l := range w.Log {
		r.Log = append(r.Log, host.LogLine{Level: slog.Level(l.Level), Message: l.Message})
	}
	return r, nil
}

// clone copies a record into c, whose memory is used again where it suffices.
func (c *pending) clone(r *host.Record) {
	logs := c.rec.Log[:0]
	c.rec = *r
	c.rec.Log = append(logs, r.Log...)
	if r.Fuel != nil {
		c.fuel = *r.Fuel
		c.rec.Fuel = &c.fuel
	}
	c.buf = append(append(c.buf[:0], r.Input...), r.Output...)
	c.rec.Input, c.rec.Output = kept(r.Input, c.buf[:len(r.Input)]), kept(r.Output, c.buf[len(r.Input):])
}

// kept gives the copy of b, nil for nil: a guest that returned nothing did return.
func kept(b, copied []byte) []byte {
	switch {
	case b == nil:
		return nil
	case copied == nil:
		return []byte{}
	}
	return copied
}

// pending is a record on its way to the disk.
type pending struct {
	rec  host.Record
	fuel int64
	buf  []byte
}

// sameBytes tells nil, which is none, from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
