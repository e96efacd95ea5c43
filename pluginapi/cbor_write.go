package pluginapi

import (
	"math"
	"slices"
	"unsafe"
)

// CBOR major types (RFC 8949, 3.1), shifted into place.
const (
	majorUint   = 0 << 5
	majorNegint = 1 << 5
	majorBytes  = 2 << 5
	majorText   = 3 << 5
	majorArray  = 4 << 5
	majorMap    = 5 << 5
	majorTag    = 6 << 5
	majorSimple = 7 << 5
)

// Tags of typed arrays, little-endian (RFC 8746, 2.1).
const (
	tagUint16  = 69
	tagUint32  = 70
	tagUint64  = 71
	tagFloat64 = 86
)

const (
	simpleFalse = majorSimple | 20
	simpleTrue  = majorSimple | 21
	simpleNull  = majorSimple | 22
	float64Head = majorSimple | 27
)

// appendHead appends the shortest head of a major type with its argument.
func appendHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return append(dst, major|25, byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return append(dst, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return appendBE64(append(dst, major|27), n)
}

func appendUint(dst []byte, n uint64) []byte { return appendHead(dst, majorUint, n) }

func appendText(dst []byte, s string) []byte {
	return append(appendHead(dst, majorText, uint64(len(s))), s...)
}

// appendTarget appends an index, or null for NoTarget.
func appendTarget(dst []byte, node int) []byte {
	if node < 0 {
		return append(dst, simpleNull)
	}
	return appendUint(dst, uint64(node))
}

func appendFloat(dst []byte, f float64) []byte {
	return appendBE64(append(dst, float64Head), math.Float64bits(f))
}

// typedArray appends the head of a typed array of n elements and room for them, and returns the room. Callers fill it
// without bounds checks.
func typedArray(dst []byte, tag uint64, n, width int) (all, room []byte) {
	dst = appendHead(dst, majorTag, tag)
	dst = appendHead(dst, majorBytes, uint64(n)*uint64(width))
	dst = slices.Grow(dst, n*width)
	end := len(dst) + n*width
	return dst[:end], dst[len(dst):end]
}

func appendUint16s(dst []byte, vs []uint32) []byte {
	dst, room := typedArray(dst, tagUint16, len(vs), 2)
	start := unsafe.Pointer(unsafe.SliceData(room))
	for i, v := range vs {
		putLE16((*[2]byte)(unsafe.Add(start, 2*i))[:], uint16(v)) // NoOwner becomes all bits set
	}
	return dst
}

func appendUint32s(dst []byte, vs []uint32) []byte {
	dst, room := typedArray(dst, tagUint32, len(vs), 4)
	start := unsafe.Pointer(unsafe.SliceData(room))
	for i, v := range vs {
		putLE32((*[4]byte)(unsafe.Add(start, 4*i))[:], v)
	}
	return dst
}

func appendUint64s(dst []byte, vs []uint64) []byte {
	dst, room := typedArray(dst, tagUint64, len(vs), 8)
	start := unsafe.Pointer(unsafe.SliceData(room))
	for i, v := range vs {
		putLE64((*[8]byte)(unsafe.Add(start, 8*i))[:], v)
	}
	return dst
}

// appendValue appends a value of configuration: nil, bool, an integer, a float, string, a list or a table.
func appendValue(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, simpleNull), nil
	case bool:
		if v {
			return append(dst, simpleTrue), nil
		}
		return append(dst, simpleFalse), nil
	case int:
		return appendInt(dst, int64(v)), nil
	case int64:
		return appendInt(dst, v), nil
	case uint64:
		return appendUint(dst, v), nil
	case float64:
		return appendFloat(dst, v), nil
	case string:
		return appendText(dst, v), nil
	case []any:
		dst = appendHead(dst, majorArray, uint64(len(v)))
		for i, e := range v {
			var err error
			if dst, err = appendValue(dst, e); err != nil {
				return nil, atIndex(err, i)
			}
		}
		return dst, nil
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sortKeys(keys)
		dst = appendHead(dst, majorMap, uint64(len(v)))
		for _, k := range keys {
			var err error
			if dst, err = appendValue(appendText(dst, k), v[k]); err != nil {
				return nil, atKey(err, k)
			}
		}
		return dst, nil
	}
	return nil, &EncodeError{Message: "want nil, bool, int, int64, uint64, float64, string, []any or map[string]any"}
}

func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendHead(dst, majorNegint, uint64(-1-n))
	}
	return appendUint(dst, uint64(n))
}

func sortKeys(keys []string) {
	slices.SortFunc(keys, func(a, b string) int {
		switch {
		case keyLess(a, b):
			return -1
		case keyLess(b, a):
			return 1
		}
		return 0
	})
}
