package pluginapi

import (
	"math"
	"unsafe"
)

// This file is written for the code that Go makes for wasm, where each branch between blocks is a jump through a table:
// four elements at a time, two to a word, and no branch on what they are.

const (
	lanes = 0x0000_0001_0000_0001 // a 1 in each half of a word
	low16 = 0xffff
)

// widen16 widens a column of indices below n, where all bits set mean none, and counts how often each occurs: counts has
// n+1 elements, the first one of none, then that of index 0. It gives up, with ok false, where there is another index.
func widen16(b []byte, n int) (column []uint32, counts []int, ok bool) {
	if n >= math.MaxUint16 {
		return nil, nil, false
	}
	column, counts = make([]uint32, len(b)/2), make([]int, n+1)
	from, to, count := unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(column)), unsafe.Pointer(unsafe.SliceData(counts))
	past := uint64(0x8000_0000-1-n) * lanes // added to a place in counts it sets the half's top bit where there is no such place
	whole := len(column) &^ 3
	for i := 0; i < whole; i += 4 {
		v := getLE64((*[8]byte)(unsafe.Add(from, 2*i))[:])
		x, y := v&low16|v&(low16<<16)<<16, v>>32&low16|v>>48<<32
		x1, y1 := x+lanes, y+lanes // of none 1<<16
		xAt, yAt := x1&(low16*lanes), y1&(low16*lanes)
		if ((xAt+past)|(yAt+past))&(lanes<<31) != 0 {
			return nil, nil, false
		}
		xNone, yNone := x1>>16&lanes, y1>>16&lanes
		putLE64((*[8]byte)(unsafe.Add(to, 4*i))[:], x|(xNone<<32-xNone<<16))
		putLE64((*[8]byte)(unsafe.Add(to, 4*i+8))[:], y|(yNone<<32-yNone<<16))
		*(*int)(unsafe.Add(count, uintptr(xAt&math.MaxUint32)*unsafe.Sizeof(0)))++
		*(*int)(unsafe.Add(count, uintptr(xAt>>32)*unsafe.Sizeof(0)))++
		*(*int)(unsafe.Add(count, uintptr(yAt&math.MaxUint32)*unsafe.Sizeof(0)))++
		*(*int)(unsafe.Add(count, uintptr(yAt>>32)*unsafe.Sizeof(0)))++
	}
	for i := whole; i < len(column); i++ {
		v := getLE16(b[2*i:])
		if at := v + 1; int(at) <= n {
			counts[at]++
		} else {
			return nil, nil, false
		}
		column[i] = uint32(v)
		if v == math.MaxUint16 {
			column[i] = NoOwner
		}
	}
	return column, counts, true
}
