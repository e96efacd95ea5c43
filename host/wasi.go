package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/host/internal/fuel"
)

// The modules that a strategy may import from (spec 1.1).
const (
	droverModule = "drover"
	wasiModule   = "wasi_snapshot_preview1"
)

// The result codes of WASI that the stubs use.
const (
	wasiOK      = 0
	wasiBadFile = 8
	wasiFault   = 21
	wasiInvalid = 28
)

// What a guest sees of the outside is the same at every call on every machine:
// this clock, no arguments, no environment, and the same random bytes.
const (
	fixedClock = 946_684_800_000_000_000 // 2000-01-01T00:00:00Z in nanoseconds
	randomSeed = 0x9E3779B97F4A7C15
)

// Bounds of what one WASI call may be asked to go through.
const (
	maxIovecs        = 16
	maxSubscriptions = 16
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// hostFunc is a function that the host offers to guests.
type hostFunc struct {
	params, results []api.ValueType
	call            func(in *instance, stack []uint64)
}

// errno wraps a stub that returns a WASI result code. Each stub takes the price
// of the call itself.
func errno(params []api.ValueType, f func(in *instance, stack []uint64) uint32) hostFunc {
	return hostFunc{params, []api.ValueType{i32}, func(in *instance, stack []uint64) {
		stack[0] = uint64(f(in, stack))
	}}
}

func sig(types ...api.ValueType) []api.ValueType { return types }

// answer is a stub with a fixed result code.
func answer(code uint32, params ...api.ValueType) hostFunc {
	return errno(params, func(in *instance, _ []uint64) uint32 {
		in.meter.charge(0)
		return code
	})
}

// hostFuncs are all functions that a strategy may import, by module and name.
var hostFuncs = map[string]map[string]hostFunc{
	droverModule: {
		"log": {sig(i32, i32, i32), nil, droverLog},
	},
	wasiModule: {
		"sched_yield":         answer(wasiOK),
		"proc_exit":           {sig(i32), nil, procExit},
		"args_get":            answer(wasiOK, i32, i32),
		"args_sizes_get":      errno(sig(i32, i32), zeroSizes),
		"environ_get":         answer(wasiOK, i32, i32),
		"environ_sizes_get":   errno(sig(i32, i32), zeroSizes),
		"clock_time_get":      errno(sig(i32, i64, i32), clockTimeGet),
		"random_get":          errno(sig(i32, i32), randomGet),
		"poll_oneoff":         errno(sig(i32, i32, i32, i32), pollOneoff),
		"fd_write":            errno(sig(i32, i32, i32, i32), fdWrite),
		"fd_close":            errno(sig(i32), fdKnown),
		"fd_fdstat_get":       errno(sig(i32, i32), fdstatGet),
		"fd_fdstat_set_flags": errno(sig(i32, i32), fdKnown),
		// No directory is open, which is where guests stop asking.
		"fd_prestat_get":      answer(wasiBadFile, i32, i32),
		"fd_prestat_dir_name": answer(wasiBadFile, i32, i32, i32),
	},
}

// instantiateHostModules makes what guests import available in a runtime. The
// functions find the instance that called them in the context of the call.
func instantiateHostModules(ctx context.Context, r wazero.Runtime) error {
	for module, funcs := range hostFuncs {
		b := r.NewHostModuleBuilder(module)
		names := make([]string, 0, len(funcs))
		for name := range funcs {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			f := funcs[name]
			b = b.NewFunctionBuilder().
				WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) { f.call(caller(ctx), stack) }), f.params, f.results).
				Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
	}
	_, err := r.NewHostModuleBuilder(fuel.Namespace).
		NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
			stack[0] = uint64(caller(ctx).meter.refill(int64(stack[0])))
		}), sig(i64), sig(i64)).Export("refill").
		NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(ctx context.Context, _ []uint64) {
			panic(&stop{verdict: VerdictDepth, detail: "the guest's calls nest too deeply"})
		}), nil, nil).Export("depth").
		Instantiate(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", fuel.Namespace, err)
	}
	return nil
}

type instanceKey struct{}

// caller returns the instance whose guest is running. There is always one: the
// host calls guests with such a context and in no other way.
func caller(ctx context.Context) *instance { return ctx.Value(instanceKey{}).(*instance) }

func procExit(in *instance, stack []uint64) {
	panic(&stop{verdict: VerdictTrap, detail: fmt.Sprintf("proc_exit(%d)", uint32(stack[0]))})
}

func zeroSizes(in *instance, stack []uint64) uint32 {
	in.meter.charge(8)
	mem := in.mod.Memory()
	if !mem.WriteUint32Le(uint32(stack[0]), 0) || !mem.WriteUint32Le(uint32(stack[1]), 0) {
		return wasiFault
	}
	return wasiOK
}

func clockTimeGet(in *instance, stack []uint64) uint32 {
	in.meter.charge(8)
	if !in.mod.Memory().WriteUint64Le(uint32(stack[2]), fixedClock) {
		return wasiFault
	}
	return wasiOK
}

// randomGet fills with a SplitMix64 stream that starts anew at each call.
func randomGet(in *instance, stack []uint64) uint32 {
	n := uint32(stack[1])
	in.meter.charge(n)
	buf, ok := in.mod.Memory().Read(uint32(stack[0]), n)
	if !ok {
		return wasiFault
	}
	var word [8]byte
	for len(buf) > 0 {
		in.meter.mustGoOn()
		piece := buf[:min(len(buf), fuel.Piece)]
		buf = buf[len(piece):]
		for len(piece) > 0 {
			binary.LittleEndian.PutUint64(word[:], in.random())
			piece = piece[copy(piece, word[:]):]
		}
	}
	return wasiOK
}

func (in *instance) random() uint64 {
	in.randomState += randomSeed
	z := in.randomState
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// pollOneoff reports every subscription as due: no time passes in a guest.
func pollOneoff(in *instance, stack []uint64) uint32 {
	const subscriptionBytes, eventBytes = 48, 32
	n := uint32(stack[2])
	if n == 0 || n > maxSubscriptions {
		in.meter.charge(0)
		return wasiInvalid
	}
	in.meter.charge(n * eventBytes)
	mem := in.mod.Memory()
	subs, ok := mem.Read(uint32(stack[0]), n*subscriptionBytes)
	if !ok {
		return wasiFault
	}
	var events [maxSubscriptions][eventBytes]byte // the two may overlap in the guest
	for i := range events[:n] {
		sub := subs[i*subscriptionBytes:]
		copy(events[i][:8], sub[:8]) // user data
		events[i][10] = sub[8]       // kind: clock, read, write
	}
	due, ok := mem.Read(uint32(stack[1]), n*eventBytes)
	if !ok {
		return wasiFault
	}
	for i := range events[:n] {
		copy(due[i*eventBytes:], events[i][:])
	}
	if !mem.WriteUint32Le(uint32(stack[3]), n) {
		return wasiFault
	}
	return wasiOK
}

// fdKnown accepts the three standard streams.
func fdKnown(in *instance, stack []uint64) uint32 {
	in.meter.charge(0)
	if uint32(stack[0]) > 2 {
		return wasiBadFile
	}
	return wasiOK
}

// fdstatGet describes the standard streams as character devices.
func fdstatGet(in *instance, stack []uint64) uint32 {
	in.meter.charge(24)
	if uint32(stack[0]) > 2 {
		return wasiBadFile
	}
	stat := [24]byte{0: 2}
	if !in.mod.Memory().Write(uint32(stack[1]), stat[:]) {
		return wasiFault
	}
	return wasiOK
}

// fdWrite hands what is written to standard output and error to the log.
func fdWrite(in *instance, stack []uint64) uint32 {
	fd, iovs, n, written := uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	if n > maxIovecs {
		in.meter.charge(0)
		return wasiInvalid
	}
	mem := in.mod.Memory()
	list, ok := mem.Read(iovs, n*8)
	if !ok {
		in.meter.charge(0)
		return wasiFault
	}
	var total uint64
	for i := range int(n) {
		total += uint64(binary.LittleEndian.Uint32(list[i*8+4:]))
	}
	if total > uint64(mem.Size()) {
		in.meter.charge(0)
		return wasiFault
	}
	in.meter.charge(uint32(total))
	if fd != 1 && fd != 2 {
		return wasiBadFile
	}
	for i := range int(n) {
		buf, ok := mem.Read(binary.LittleEndian.Uint32(list[i*8:]), binary.LittleEndian.Uint32(list[i*8+4:]))
		if !ok {
			return wasiFault
		}
		for len(buf) > 0 {
			in.meter.mustGoOn()
			piece := buf[:min(len(buf), fuel.Piece)]
			buf = buf[len(piece):]
			in.logs.stream(fd, piece)
		}
	}
	if !mem.WriteUint32Le(written, uint32(total)) {
		return wasiFault
	}
	return wasiOK
}

// droverLog is drover.log(level, ptr, len).
func droverLog(in *instance, stack []uint64) {
	level, ptr, n := int32(stack[0]), uint32(stack[1]), uint32(stack[2])
	in.meter.charge(n)
	buf, ok := in.mod.Memory().Read(ptr, n)
	if !ok {
		panic(&stop{verdict: VerdictTrap, detail: fmt.Sprintf("drover.log: %d bytes at %d are outside the memory", n, ptr)})
	}
	in.logs.add(guestLevel(level), buf)
}
