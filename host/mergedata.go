package host

import (
	"cmp"
	"slices"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// mergeGap is the most zeros that are written to join two data segments.
const mergeGap = 256

// mergeData joins active data segments that lie close to each other. Standard
// Go's linker leaves out every run of zeros and so writes some 25 000 segments,
// which cost each new instance a millisecond. Memory begins as zeros, so that
// neither writing those between two segments nor the order of segments makes a
// difference, where all have known places, fit, do not overlap, and no
// instruction knows one by number. In any other module they stay as they are.
func mergeData(m *wasmbin.Module) {
	if len(m.Data) < 2 || len(m.Mems) != 1 || usesDataIndices(m) {
		return
	}
	for i := range m.Data {
		if d := &m.Data[i]; d.Mode != wasmbin.Active || d.Offset.Op != wasmbin.OpI32Const {
			return
		}
	}
	data := slices.Clone(m.Data)
	slices.SortStableFunc(data, func(a, b wasmbin.Data) int { return cmp.Compare(dataStart(a), dataStart(b)) })
	var end uint64
	for _, d := range data {
		if dataStart(d) < end {
			return
		}
		end = dataStart(d) + uint64(len(d.Init))
	}
	if end > uint64(m.Mems[0].Min)*PageBytes {
		return // instantiation fails; let it fail in the engine's words
	}
	var out []wasmbin.Data
	for _, d := range data {
		if n := len(out); n > 0 {
			last := &out[n-1]
			if gap := dataStart(d) - dataStart(*last) - uint64(len(last.Init)); gap <= mergeGap {
				last.Init = append(append(last.Init, make([]byte, gap)...), d.Init...)
				continue
			}
		}
		// A copy: Init aliases the module's bytes, and may be appended to.
		d.Init = slices.Clone(d.Init)
		out = append(out, d)
	}
	m.Data = out
}

func dataStart(d wasmbin.Data) uint64 { return uint64(uint32(d.Offset.B)) }

func usesDataIndices(m *wasmbin.Module) bool {
	if !m.HasDataCount {
		return false // memory.init and data.drop need that section
	}
	for i := range m.Code {
		for _, in := range m.Code[i].Body {
			if in.Op == wasmbin.OpMemoryInit || in.Op == wasmbin.OpDataDrop {
				return true
			}
		}
	}
	return false
}
