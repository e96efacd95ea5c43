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
// n+1 elements, and the last one counts none. It gives up, with ok false, where there is another index.
func widen16(b []byte, n int) (column []uint32, counts []int, ok bool) {
	if n >= math.MaxUint16 {
		return nil, nil, false
	}
	column, counts = make([]uint32, len(b)/2), make([]int, n+1)
	from, to, count := unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(column)), unsafe.Pointer(unsafe.SliceData(counts))
	past := uint64(0x8000_0000-1-n) * lanes // added to an index plus 1 it sets the half's top bit where that is above n
	last := uint64(n) * lanes
	var none uint64 // in each half
	whole := len(column) &^ 3
	for i := 0; i < whole; i += 4 {
		v := getLE64((*[8]byte)(unsafe.Add(from, 2*i))[:])
		x := v&low16 | v&(low16<<16)<<16
		y := v>>32&low16 | v>>48<<32
		x1, y1 := x+lanes, y+lanes
		xNone, yNone := x1>>16&lanes, y1>>16&lanes
		none += xNone + yNone
		putLE64((*[8]byte)(unsafe.Add(to, 4*i))[:], x|(xNone<<32-xNone<<16))
		putLE64((*[8]byte)(unsafe.Add(to, 4*i+8))[:], y|(yNone<<32-yNone<<16))
		xOver, yOver := (x1+past)>>31&lanes, (y1+past)>>31&lanes
		xMask, yMask := xOver<<32-xOver, yOver<<32-yOver
		x, y = x&^xMask|last&xMask, y&^yMask|last&yMask
		*(*int)(unsafe.Add(count, uintptr(x&math.MaxUint32)*unsafe.Sizeof(0)))++
		*(*int)(unsafe.Add(count, uintptr(x>>32)*unsafe.Sizeof(0)))++
		*(*int)(unsafe.Add(count, uintptr(y&math.MaxUint32)*unsafe.Sizeof(0)))++
		*(*int)(unsafe.Add(count, uintptr(y>>32)*unsafe.Sizeof(0)))++
	}
	nones := int(none&math.MaxUint32 + none>>32)
	for i := whole; i < len(column); i++ {
		v := uint32(getLE16(b[2*i:]))
		if v == math.MaxUint16 {
			v = NoOwner
			nones++
		}
		column[i] = v
		counts[min(v, uint32(n))]++
	}
	return column, counts, counts[n] == nones
}
