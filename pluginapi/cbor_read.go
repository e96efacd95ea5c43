package pluginapi

import (
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// maxDepth bounds the nesting of what the decoders read, and with it their stack.
const maxDepth = 32

// reader reads CBOR from front to back. It never looks behind the end of data, and what it allocates is bounded by the
// bytes that are really there, whatever a length says.
type reader struct {
	data  []byte
	pos   int
	alias bool // strings share data's memory: only for data that is never written again
}

func (r *reader) fail(msg string) error { return &DecodeError{Offset: r.pos, Message: msg} }

// indefinite is the info of a head without a length.
const indefinite = 31

// head reads an initial byte and its argument. For floats and simple values arg holds the bits.
func (r *reader) head() (major, info byte, arg uint64, err error) {
	if r.pos >= len(r.data) {
		return 0, 0, 0, r.fail("the input ends where a value should be")
	}
	b := r.data[r.pos]
	major, info = b&0xe0, b&0x1f
	width := 0
	switch {
	case info < 24:
		arg = uint64(info)
	case info <= 27:
		width = 1 << (info - 24)
		if len(r.data)-r.pos-1 < width {
			return 0, 0, 0, r.fail("the input ends inside a value")
		}
		for _, c := range r.data[r.pos+1 : r.pos+1+width] {
			arg = arg<<8 | uint64(c)
		}
	case info == indefinite && (major == majorArray || major == majorMap || b == 0xff):
	case info == indefinite && (major == majorBytes || major == majorText):
		return 0, 0, 0, r.fail("strings of indefinite length are not read: write them in one piece")
	default:
		return 0, 0, 0, r.fail("not well-formed CBOR")
	}
	r.pos += 1 + width
	return major, info, arg, nil
}

// peek returns the next initial byte; 0xff, which starts no value, at the end.
func (r *reader) peek() byte {
	if r.pos >= len(r.data) {
		return 0xff
	}
	return r.data[r.pos]
}

// kind names what the next value is, for messages.
func (r *reader) kind() string {
	if r.pos >= len(r.data) {
		return "nothing"
	}
	b := r.data[r.pos]
	switch b & 0xe0 {
	case majorUint:
		return "an integer"
	case majorNegint:
		return "a negative integer"
	case majorBytes:
		return "a byte string"
	case majorText:
		return "text"
	case majorArray:
		return "an array"
	case majorMap:
		return "a map"
	case majorTag:
		return "a tagged value"
	}
	switch b {
	case simpleFalse, simpleTrue:
		return "a boolean"
	case simpleNull:
		return "null"
	case float64Head, float64Head - 1, float64Head - 2:
		return "a float"
	}
	return "something else"
}

func (r *reader) want(what string) error { return r.fail("want " + what + ", got " + r.kind()) }

// null reads a null, if that is what comes next.
func (r *reader) null() bool {
	if r.peek() != simpleNull {
		return false
	}
	r.pos++
	return true
}

func (r *reader) uint() (uint64, error) {
	if b := r.peek(); b < 24 { // the short form first: a call costs much in a guest
		r.pos++
		return uint64(b), nil
	}
	if r.pos >= len(r.data) || r.data[r.pos]&0xe0 != majorUint {
		return 0, r.want("an unsigned integer")
	}
	_, _, arg, err := r.head()
	return arg, err
}

// bounded reads an unsigned integer below limit; what names it in the message.
func (r *reader) bounded(limit uint64, what string) (uint64, error) {
	start := r.pos
	n, err := r.uint()
	if err == nil && n >= limit {
		r.pos = start
		return 0, r.fail(what + " " + strconv.FormatUint(n, 10) + " is out of range: there are " + strconv.FormatUint(limit, 10))
	}
	return n, err
}

// bytes reads a byte string or text, and returns a part of data.
func (r *reader) bytes(major byte, what string) ([]byte, error) {
	if n := int(r.peek() - major); n < 24 && n < len(r.data)-r.pos { // the short form first, as in uint
		b := r.data[r.pos+1 : r.pos+1+n]
		r.pos += 1 + n
		return b, nil
	}
	if r.pos >= len(r.data) || r.data[r.pos]&0xe0 != major {
		return nil, r.want(what)
	}
	start := r.pos
	_, _, n, err := r.head()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(r.data)-r.pos) {
		r.pos = start
		return nil, r.fail("the input ends inside " + what)
	}
	b := r.data[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b, nil
}

func (r *reader) text() (string, error) {
	start := r.pos
	b, err := r.bytes(majorText, "text")
	if err != nil {
		return "", err
	}
	if !valid(b) {
		r.pos = start
		return "", r.fail("the text is not UTF-8")
	}
	if r.alias && len(b) > 0 {
		return unsafe.String(&b[0], len(b)), nil
	}
	return string(b), nil
}

// valid is utf8.Valid with a quick way for short ASCII, which is what most texts are.
func valid(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return utf8.Valid(b)
		}
	}
	return true
}

// items counts the elements of an array or the entries of a map while they are read.
type items struct {
	left       uint64
	indefinite bool
	first      int // where the first one starts
}

func (r *reader) open(major byte, what string) (items, error) {
	if r.pos >= len(r.data) || r.data[r.pos]&0xe0 != major {
		return items{}, r.want(what)
	}
	start := r.pos
	_, info, n, err := r.head()
	if err != nil {
		return items{}, err
	}
	if info == indefinite {
		return items{indefinite: true, first: r.pos}, nil
	}
	if least := uint64(len(r.data) - r.pos); n > least { // each takes a byte at least
		r.pos = start
		return items{}, r.fail("the input ends inside " + what)
	}
	return items{left: n, first: r.pos}, nil
}

func (r *reader) array() (items, error) { return r.open(majorArray, "an array") }

// next tells whether another element follows; after false the array or map has been read to its end.
func (r *reader) next(it *items) bool {
	if it.indefinite {
		if r.pos < len(r.data) && r.data[r.pos] == 0xff {
			r.pos++
			return false
		}
		return true // at the end of data the element's own read fails
	}
	if it.left == 0 {
		return false
	}
	it.left--
	return true
}

// fields reads a map with text keys and calls field for each; field reads or skips the value. A key may come once:
// which of two values counts would be up to the reader. The key that field gets shares data's memory.
func (r *reader) fields(field func(key string) error) error {
	it, err := r.open(majorMap, "a map")
	if err != nil {
		return err
	}
	var last string
	var seen map[string]struct{} // only where keys do not come sorted, as they do from every host
	for n := 0; r.next(&it); n++ {
		start := r.pos
		b, err := r.bytes(majorText, "a text key")
		if err != nil {
			return err
		}
		if !valid(b) {
			r.pos = start
			return r.fail("a key is not UTF-8")
		}
		key := unsafe.String(unsafe.SliceData(b), len(b))
		if seen == nil && n > 0 && !keyLess(last, key) {
			seen = map[string]struct{}{}
			again := &reader{data: r.data[:start], pos: it.first}
			for range n {
				k, _ := again.bytes(majorText, "a text key") // read before
				seen[unsafe.String(unsafe.SliceData(k), len(k))] = struct{}{}
				_ = again.skip(0)
			}
		}
		if seen != nil {
			if _, found := seen[key]; found {
				r.pos = start
				return atKey(r.fail("the key comes twice"), clone(key))
			}
			seen[key] = struct{}{}
		}
		last = key
		if err := field(key); err != nil {
			return atKey(err, clone(key))
		}
	}
	return nil
}

// skip passes over one value of any kind.
func (r *reader) skip(depth int) error {
	if depth > maxDepth {
		return r.fail("nested too deep")
	}
	major, info, arg, err := r.head()
	if err != nil {
		return err
	}
	switch major {
	case majorBytes, majorText:
		if arg > uint64(len(r.data)-r.pos) {
			return r.fail("the input ends inside a string")
		}
		r.pos += int(arg)
	case majorArray, majorMap:
		it := items{left: arg, indefinite: info == indefinite}
		for r.next(&it) {
			if err := r.skip(depth + 1); err != nil {
				return err
			}
			if major == majorMap {
				if err := r.skip(depth + 1); err != nil {
					return err
				}
			}
		}
	case majorTag:
		return r.skip(depth + 1)
	case majorSimple:
		if info == indefinite {
			r.pos--
			return r.fail("a break without an open array or map")
		}
		if info == 24 && arg < 32 {
			return r.fail("not well-formed CBOR")
		}
	}
	return nil
}

// raw passes over one value and returns its bytes, a part of data.
func (r *reader) raw() ([]byte, error) {
	start := r.pos
	if err := r.skip(0); err != nil {
		return nil, err
	}
	return r.data[start:r.pos:r.pos], nil
}

// typed reads the head of a typed array and returns its bytes.
func (r *reader) typed(what string, tags ...uint64) (tag uint64, b []byte, err error) {
	if r.pos >= len(r.data) || r.data[r.pos]&0xe0 != majorTag {
		return 0, nil, r.want(what)
	}
	start := r.pos
	_, _, tag, err = r.head()
	if err != nil {
		return 0, nil, err
	}
	known := false
	for _, t := range tags {
		known = known || t == tag
	}
	if !known {
		r.pos = start
		return 0, nil, r.fail("want " + what + ", got tag " + strconv.FormatUint(tag, 10))
	}
	if b, err = r.bytes(majorBytes, "a byte string"); err != nil {
		return 0, nil, err
	}
	width := 8
	switch tag {
	case tagUint16:
		width = 2
	case tagUint32:
		width = 4
	}
	if len(b)%width != 0 {
		return 0, nil, r.fail("the length is no multiple of " + strconv.Itoa(width))
	}
	return tag, b, nil
}

// owners reads a column of node indices and returns it with one more than the highest of them. As far as it is known that
// there are so many nodes the limit may be 0 instead, and counts tell how often there is none, and then of each.
func (r *reader) owners(nodes int) (column []uint32, counts []int, limit uint32, err error) {
	tag, b, err := r.typed("a typed array of uint16 or uint32 (tag 69 or 70)", tagUint16, tagUint32)
	if err != nil {
		return nil, nil, 0, err
	}
	if tag == tagUint32 {
		column = widen32(b)
		for _, v := range column {
			if v != NoOwner && v >= limit {
				limit = v + 1
			}
		}
		return column, nil, limit, nil
	}
	if column, counts, ok := widen16(b, nodes); ok {
		return column, counts, 0, nil
	}
	column = make([]uint32, len(b)/2)
	start := unsafe.Pointer(unsafe.SliceData(b))
	for i := range column {
		v := uint32(getLE16((*[2]byte)(unsafe.Add(start, 2*i))[:]))
		if v == math.MaxUint16 {
			v = NoOwner
		} else if v >= limit {
			limit = v + 1
		}
		column[i] = v
	}
	return column, nil, limit, nil
}

func (r *reader) uint32s() ([]uint32, error) {
	_, b, err := r.typed("a typed array of uint32 (tag 70)", tagUint32)
	if err != nil {
		return nil, err
	}
	return widen32(b), nil
}

func (r *reader) uint64s() ([]uint64, error) {
	_, b, err := r.typed("a typed array of uint64 (tag 71)", tagUint64)
	if err != nil {
		return nil, err
	}
	dst := make([]uint64, len(b)/8)
	start := unsafe.Pointer(unsafe.SliceData(b))
	for i := range dst {
		dst[i] = getLE64((*[8]byte)(unsafe.Add(start, 8*i))[:])
	}
	return dst, nil
}

func (r *reader) float64s() ([]float64, error) {
	_, b, err := r.typed("a typed array of float64 (tag 86)", tagFloat64)
	if err != nil {
		return nil, err
	}
	vs := make([]float64, len(b)/8)
	for i := range vs {
		vs[i] = math.Float64frombits(getLE64(b[8*i:]))
	}
	return vs, nil
}

// widen32 and its like above index without bounds checks: dst is made as long as b is, in elements.
func widen32(b []byte) []uint32 {
	dst := make([]uint32, len(b)/4)
	start := unsafe.Pointer(unsafe.SliceData(b))
	for i := range dst {
		dst[i] = getLE32((*[4]byte)(unsafe.Add(start, 4*i))[:])
	}
	return dst
}

// float reads a float of any width.
func (r *reader) float() (float64, error) {
	start := r.pos
	major, info, arg, err := r.head()
	if err != nil {
		return 0, err
	}
	if major == majorSimple {
		switch info {
		case 25:
			return half(uint16(arg)), nil
		case 26:
			return float64(math.Float32frombits(uint32(arg))), nil
		case 27:
			return math.Float64frombits(arg), nil
		}
	}
	r.pos = start
	return 0, r.want("a float")
}

// half widens a binary16 float.
func half(h uint16) float64 {
	exp, frac := int(h>>10&0x1f), float64(h&0x3ff)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(frac, -24)
	case 31:
		f = math.Inf(1)
		if frac != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(frac+1024, exp-25)
	}
	if h>>15 != 0 {
		f = math.Copysign(f, -1)
	}
	return f
}

// value reads a value of configuration: nil, bool, int64, uint64 (above the range of int64), float64, string, []byte,
// []any or map[string]any.
func (r *reader) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, r.fail("nested too deep")
	}
	start := r.pos
	b := r.peek()
	switch b & 0xe0 {
	case majorUint:
		n, err := r.uint()
		if err != nil {
			return nil, err
		}
		if n > math.MaxInt64 {
			return n, nil
		}
		return int64(n), nil
	case majorNegint:
		_, _, n, err := r.head()
		if err == nil && n > math.MaxInt64 {
			r.pos = start
			err = r.fail("the integer is below the range of 64 bits")
		}
		return -1 - int64(n), err
	case majorBytes:
		raw, err := r.bytes(majorBytes, "a byte string")
		return append([]byte{}, raw...), err
	case majorText:
		return r.text()
	case majorArray:
		it, err := r.array()
		if err != nil {
			return nil, err
		}
		list := []any{}
		for i := 0; r.next(&it); i++ {
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, atIndex(err, i)
			}
			list = append(list, v)
		}
		return list, nil
	case majorMap:
		table := map[string]any{}
		err := r.fields(func(key string) error {
			v, err := r.value(depth + 1)
			table[clone(key)] = v
			return err
		})
		return table, err
	case majorTag:
		return nil, r.want("a value of configuration")
	}
	switch b {
	case simpleFalse, simpleTrue:
		r.pos++
		return b == simpleTrue, nil
	case simpleNull:
		r.pos++
		return nil, nil
	}
	return r.float()
}

// end tells that nothing may follow.
func (r *reader) end() error {
	if r.pos < len(r.data) {
		return r.fail(strconv.Itoa(len(r.data)-r.pos) + " bytes follow the value")
	}
	return nil
}
