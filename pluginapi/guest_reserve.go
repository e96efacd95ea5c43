//go:build wasip1 && !tinygo

package pluginapi

import "runtime"

// reserve is heap that is there, and free, when the host takes the memory image that every call starts from. Without it
// a call on more than some thousand shards makes Go grow the memory, by half a megabyte at a time, which costs fuel, and
// a host has to take it back after each call. It covers an input, its owners and an answer of some 100 000 shards.
const reserve = 768 << 10

func init() {
	input = make([]byte, reserve)
	input = nil
	runtime.GC()
}
