package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/droverhq/drover/host/internal/fuel"
)

// startExport is where the rewrite puts the start section.
const startExport = fuel.Namespace + ".start"

// instance is one instance of a module. It is single-threaded.
type instance struct {
	ctx    context.Context // leads host functions back to the instance
	mod    api.Module
	memory *linearMemory // what mod's memory lies in
	meter  meter
	depth  api.MutableGlobal
	limit  uint64 // of the depth
	// globals are the guest's mutable ones, which an image holds.
	globals     []api.MutableGlobal
	buffer      api.Function
	allocate    api.Function
	rebalance   api.Function
	logs        guestLog
	randomState uint64
	stack       [2]uint64
}

// instantiate makes an instance whose guest has not run yet. The error is a
// *CallError if the module is at fault: its segments do not fit.
func (m *Module) instantiate(mem *memories) (*instance, error) {
	in := &instance{}
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	allocator := experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		in.memory = mem.allocate(most)
		return in.memory
	})
	mod, err := m.in.InstantiateModule(experimental.WithMemoryAllocator(in.ctx, allocator), m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, guestError(err)
	}
	in.mod = mod
	global := func(name string) (api.MutableGlobal, error) {
		g, ok := mod.ExportedGlobal(name).(api.MutableGlobal)
		if !ok {
			return nil, fmt.Errorf("rewritten module lacks the mutable global %s", name)
		}
		return g, nil
	}
	if in.meter.left, err = global(fuel.Namespace + ".left"); err != nil {
		return nil, err
	}
	if in.depth, err = global(fuel.Namespace + ".depth"); err != nil {
		return nil, err
	}
	if !m.fresh() {
		for _, name := range m.rewrite.MutableGlobals {
			g, err := global(name)
			if err != nil {
				return nil, err
			}
			in.globals = append(in.globals, g)
		}
	}
	in.limit = uint64(m.rewrite.Depth)
	in.meter.slice = maxSlice
	in.buffer = mod.ExportedFunction(exportBuffer)
	in.allocate = mod.ExportedFunction(exportAllocate)
	in.rebalance = mod.ExportedFunction(exportRebalance)
	return in, nil
}

func (in *instance) close() error { return in.mod.Close(in.ctx) }

// invoke calls one export with one or two i32 arguments, or none, and returns
// its result, if it has one. The meter must have begun. The error is a
// *CallError.
func (in *instance) invoke(f api.Function, args ...uint32) (uint64, error) {
	in.depth.Set(in.limit)
	for i, a := range args {
		in.stack[i] = uint64(a)
	}
	if err := f.CallWithStack(in.ctx, in.stack[:]); err != nil {
		return 0, guestError(err)
	}
	if s := in.meter.over(); s != nil {
		return 0, guestError(s)
	}
	return in.stack[0], nil
}

// give copies input to where the guest wants it, and returns where that is.
func (in *instance) give(input []byte) (ptr uint32, err error) {
	got, err := in.invoke(in.buffer, uint32(len(input)))
	if err != nil {
		return 0, err
	}
	ptr = uint32(got)
	if !in.mod.Memory().Write(ptr, input) {
		return 0, badOutput("%s(%d) returned %d, which does not leave room in a memory of %d bytes", exportBuffer, len(input), ptr, in.mod.Memory().Size())
	}
	return ptr, nil
}

// How long an answer may be. Reading one costs the host time, which the budget
// covers by an estimate alone, and memory: it may be no longer than there is
// something to say, and than can be read in two thirds of the default budget.
const (
	outputBase     = 64 << 10 // descriptions included
	outputPerShard = 160      // a move or a home, and a reason
	maxOutput      = 8 << 20
)

// mostOutput is the longest answer about so many shards, in bytes.
func mostOutput(shards int) uint32 {
	return uint32(min(outputBase+int64(shards)*outputPerShard, maxOutput))
}

// take returns what a packed ptr<<32|len points to, if it is at most so long: a
// part of the guest's memory, that lasts until the guest runs again.
func (in *instance) take(packed uint64, most uint32) ([]byte, error) {
	ptr, n := uint32(packed>>32), uint32(packed)
	if n > most {
		return nil, badOutput("an answer of %d bytes: at most %d are taken, see docs/strategy-rules.md", n, most)
	}
	b, ok := in.mod.Memory().Read(ptr, n)
	if !ok {
		return nil, badOutput("%d bytes at %d lie outside a memory of %d bytes", n, ptr, in.mod.Memory().Size())
	}
	return b, nil
}

// ask hands input to an operation and returns the answer's bytes, at most so
// many.
func (in *instance) ask(f api.Function, input []byte, most uint32) ([]byte, error) {
	ptr, err := in.give(input)
	if err != nil {
		return nil, err
	}
	packed, err := in.invoke(f, ptr, uint32(len(input)))
	if err != nil {
		return nil, err
	}
	out, err := in.take(packed, most)
	if err != nil {
		return nil, err
	}
	if s := in.meter.timeToRead(len(out)); s != nil {
		return nil, guestError(s)
	}
	return out, nil
}

func (in *instance) pages() uint32 { return in.mod.Memory().Size() / PageBytes }

// begin readies the instance for a call whose budget runs from since.
func (in *instance) begin(ctx context.Context, l Limits, since time.Time) {
	in.logs.reset()
	in.randomState = randomSeed
	in.meter.begin(ctx, l.Fuel, l.Budget, since)
}

func badOutput(format string, args ...any) *CallError {
	return &CallError{Verdict: VerdictOutput, Detail: fmt.Sprintf(format, args...)}
}

// guestError turns what wazero returned from a guest into a *CallError.
func guestError(err error) *CallError {
	var s *stop
	if errors.As(err, &s) {
		return &CallError{Verdict: s.verdict, Detail: s.detail, Cause: s.cause}
	}
	text := strings.TrimPrefix(firstLine(err), "wasm error: ")
	verdict := VerdictTrap
	if text == "stack overflow" {
		verdict = VerdictDepth
	}
	return &CallError{Verdict: verdict, Detail: text}
}

// imagePage is the unit in which an image is compared with a memory. A call
// changes few of them; comparing reads what copying would read and write.
const imagePage = 4096

var zeroPage [imagePage]byte

// image is what an instance is brought back to before each call: its memory and
// mutable globals after initialisation.
type image struct {
	bytes   uint32   // of memory
	pages   [][]byte // of imagePage bytes each; all those of zeros are zeroPage, which stays in the processor's cache
	globals []uint64
}

func (in *instance) snapshot() *image {
	mem := in.mod.Memory()
	b, _ := mem.Read(0, mem.Size())
	img := &image{bytes: mem.Size(), pages: make([][]byte, 0, len(b)/imagePage)}
	n := 0
	for page := range slices.Chunk(b, imagePage) {
		if !bytes.Equal(page, zeroPage[:]) {
			n++
		}
	}
	room := make([]byte, 0, n*imagePage) // in one piece, for the sake of reading ahead
	for page := range slices.Chunk(b, imagePage) {
		if bytes.Equal(page, zeroPage[:]) {
			img.pages = append(img.pages, zeroPage[:])
			continue
		}
		room = append(room, page...)
		img.pages = append(img.pages, room[len(room)-imagePage:])
	}
	for _, g := range in.globals {
		img.globals = append(img.globals, g.Get())
	}
	return img
}

// restore brings the instance to the image; false if it cannot be.
func (in *instance) restore(img *image) bool {
	mem := in.mod.Memory()
	if size := mem.Size(); size < img.bytes {
		if _, ok := mem.Grow((img.bytes - size) / PageBytes); !ok {
			return false
		}
	} else if size > img.bytes {
		return false
	}
	b, ok := mem.Read(0, img.bytes)
	if !ok {
		return false
	}
	for i, want := range img.pages {
		if got := b[i*imagePage:][:imagePage]; !bytes.Equal(got, want) {
			copy(got, want)
		}
	}
	for i, g := range in.globals {
		g.Set(img.globals[i])
	}
	return true
}

// shrink takes from the instance what memory it has beyond so many bytes, and
// tells whether it has as many then. wazero's API has no way to do so, but its
// memory is whatever slice the allocator returns when it is to grow. Making
// another instance instead costs 20 times as much for a guest in Go, which grows
// at each call on a large cluster.
func (in *instance) shrink(size uint32) bool {
	mem := in.mod.Memory()
	if mem.Size() > size {
		in.memory.cut = uint64(size)
		mem.Grow(1) // refused where memory is at its limit
		in.memory.cut = 0
	}
	return mem.Size() == size
}
