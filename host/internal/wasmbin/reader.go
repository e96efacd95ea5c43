package wasmbin

import (
	"fmt"
	"unicode/utf8"
)

// reader reads from buf[pos:end]. The first error sticks: it moves pos to end,
// and every later read returns zero, so that callers check once in a while
// instead of at each read.
type reader struct {
	buf []byte
	pos int
	end int
	err *Error
}

func (r *reader) fail(rule Rule, format string, args ...any) {
	r.failAt(r.pos, rule, format, args...)
}

func (r *reader) failAt(offset int, rule Rule, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Offset: offset, Rule: rule, Msg: fmt.Sprintf(format, args...)}
	}
	r.pos = r.end
}

func (r *reader) left() int { return r.end - r.pos }

func (r *reader) byte() byte {
	if r.pos >= r.end {
		r.fail(RuleMalformed, "unexpected end")
		return 0
	}
	b := r.buf[r.pos]
	r.pos++
	return b
}

func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(r.left()) {
		r.fail(RuleMalformed, "length %d is past the end", n)
		return nil
	}
	b := r.buf[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return b
}

func (r *reader) u32() uint32 {
	if r.pos < r.end {
		if b := r.buf[r.pos]; b < 0x80 {
			r.pos++
			return uint32(b)
		}
	}
	return uint32(r.unsigned(32))
}

// unsigned reads an unsigned LEB128 number of the given width in bits: no more
// bytes than the width needs, and no bit set above it.
func (r *reader) unsigned(width uint) uint64 {
	var v uint64
	start := r.pos
	for shift := uint(0); ; shift += 7 {
		if r.pos >= r.end {
			r.fail(RuleMalformed, "unexpected end in a number")
			return 0
		}
		b := r.buf[r.pos]
		r.pos++
		if shift+7 > width && b>>(width-shift) != 0 {
			r.failAt(start, RuleMalformed, "number is longer than %d bits", width)
			return 0
		}
		v |= uint64(b&0x7F) << shift
		if b < 0x80 {
			return v
		}
	}
}

// signed reads a signed LEB128 number of the given width in bits.
func (r *reader) signed(width uint) int64 {
	if r.pos < r.end {
		if b := r.buf[r.pos]; b < 0x80 {
			r.pos++
			return int64(int8(b<<1)) >> 1
		}
	}
	var v int64
	start := r.pos
	for shift := uint(0); ; shift += 7 {
		if r.pos >= r.end {
			r.fail(RuleMalformed, "unexpected end in a number")
			return 0
		}
		b := r.buf[r.pos]
		r.pos++
		if shift+7 > width {
			// The last byte: no continuation, and all bits from the sign bit
			// on must be equal.
			top := int8(b<<1) >> (width - shift) // bits width-shift-1.. with the sign
			if b >= 0x80 || (top != 0 && top != -1) {
				r.failAt(start, RuleMalformed, "number is longer than %d bits", width)
				return 0
			}
		}
		v |= int64(b&0x7F) << shift
		if b < 0x80 {
			if shift+7 < 64 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

func (r *reader) fixed(n int) uint64 {
	if r.left() < n {
		r.fail(RuleMalformed, "unexpected end in a constant")
		return 0
	}
	var v uint64
	for i := range n {
		v |= uint64(r.buf[r.pos+i]) << (8 * i)
	}
	r.pos += n
	return v
}

func (r *reader) name() string {
	start := r.pos
	b := r.bytes(r.u32())
	if r.err != nil {
		return ""
	}
	if !utf8.Valid(b) {
		r.failAt(start, RuleMalformed, "name is not UTF-8")
		return ""
	}
	return string(b)
}

// count reads the length of a vector whose elements take at least size bytes
// each: a count that the rest of the input cannot hold is refused before
// anything is allocated for it.
func (r *reader) count(size int) int {
	start := r.pos
	n := r.u32()
	if uint64(n)*uint64(size) > uint64(r.left()) {
		r.failAt(start, RuleMalformed, "count %d is past the end", n)
		return 0
	}
	return int(n)
}
