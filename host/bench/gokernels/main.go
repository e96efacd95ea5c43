// Package main is the standard Go kernels of the metering benchmark: what guests
// written in Go spend their time on, the runtime's own collector included.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

func main() {}

type generator uint32

func (g *generator) next() uint32 {
	*g ^= *g << 13
	*g ^= *g >> 17
	*g ^= *g << 5
	return uint32(*g)
}

//go:wasmexport go_sort
func sort() uint32 {
	g := generator(1)
	a := make([]uint32, 20_000)
	for i := range a {
		a[i] = g.next()
	}
	slices.Sort(a)
	return a[len(a)/2]
}

//go:wasmexport go_map
func maps() uint32 {
	g := generator(2)
	m := map[uint32]uint32{}
	for range 20_000 {
		m[g.next()&0x3FFF]++
	}
	sum := uint32(0)
	for k, v := range m {
		sum += k * v
	}
	return sum
}

//go:wasmexport go_sha256
func sha() uint32 {
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(i * 7)
	}
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint32(sum[:])
}

//go:wasmexport go_strings
func text() uint32 {
	var b strings.Builder
	for i := range 5_000 {
		b.WriteString(strconv.Itoa(i * i))
		b.WriteByte(',')
	}
	sum := uint32(0)
	for f := range strings.SplitSeq(b.String(), ",") {
		n, err := strconv.Atoi(f)
		if err == nil {
			sum = sum*31 + uint32(n)
		}
	}
	return sum
}
