package host

import (
	"context"
	"errors"
	"fmt"
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
	ctx   context.Context // leads host functions back to the instance
	mod   api.Module
	meter meter
	depth api.MutableGlobal
	limit uint64 // of the depth
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
	mod, err := m.rt.wazero.InstantiateModule(experimental.WithMemoryAllocator(in.ctx, mem), m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
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
// something to say.
const (
	outputBase     = 64 << 10 // descriptions included
	outputPerShard = 160      // a move or a home, and a reason
	maxOutput      = 16 << 20
)

// mostOutput is the longest answer about so many shards, in bytes.
func mostOutput(shards int) uint32 {
	return uint32(min(outputBase+int64(shards)*outputPerShard, maxOutput))
}

// take returns a copy of what a packed ptr<<32|len points to, if it is at most
// so long.
func (in *instance) take(packed uint64, most uint32) ([]byte, error) {
	ptr, n := uint32(packed>>32), uint32(packed)
	if n > most {
		return nil, badOutput("an answer of %d bytes: at most %d are taken, see docs/strategy-rules.md", n, most)
	}
	b, ok := in.mod.Memory().Read(ptr, n)
	if !ok {
		return nil, badOutput("%d bytes at %d lie outside a memory of %d bytes", n, ptr, in.mod.Memory().Size())
	}
	return append([]byte(nil), b...), nil
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

// image is what an instance is brought back to before each call: its memory and
// mutable globals after initialisation.
type image struct {
	memory  []byte // without the zeros at its end
	bytes   uint32 // of memory, zeros included
	globals []uint64
}

func (in *instance) snapshot() *image {
	mem := in.mod.Memory()
	b, _ := mem.Read(0, mem.Size())
	img := &image{bytes: mem.Size()}
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	img.memory = append([]byte(nil), b[:n]...)
	for _, g := range in.globals {
		img.globals = append(img.globals, g.Get())
	}
	return img
}

// restore brings the instance to the image; false if it cannot be: memory does
// not shrink.
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
	clear(b[copy(b, img.memory):])
	for i, g := range in.globals {
		g.Set(img.globals[i])
	}
	return true
}
