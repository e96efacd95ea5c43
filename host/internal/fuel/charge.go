package fuel

import "github.com/droverhq/drover/host/internal/wasmbin"

// Charges are deferred. At every place of a body the price of what has been
// executed is what has been charged plus b.pend, which is known there and then:
//
//	entry          pend starts at the function's price; each operator adds its own
//	loop           remembers pend; a jump back charges what has come on top
//	other labels   the first edge decides on pend, the others charge the
//	               difference, or give it back
//	calls          pend stays the caller's, unless it is large
//	imports, exits charge all of it
//
// Nobody looks at the counter at an edge that leads forward. Whoever jumps back
// does, and so does whoever is called and calls in turn, when it is entered; a
// leaf has nothing to look at, unless it is long. The units between two looks
// are bounded (the most constants), so that a slice holds.
//
// A function with loops that call nothing keeps the counter in a local, and
// stores it where another function or the host can see it.
const (
	// A leaf that executes more than mostLeaf units since the last look takes
	// one at its end, and any other function that does more than mostOut itself,
	// or in leaves: each of the active calls can leave as many behind. A unit can
	// take 100 ns and more, where each waits for memory, and a hundred thousand of
	// them ten milliseconds.
	mostLeaf = 32
	mostOut  = 64
	// A caller that has more than mostPending units to charge does so before the
	// call: its callee looks, but not at what is pending, and each of the active
	// calls can hold as much back.
	mostPending = 32
	// Straight code is interrupted every mostStraight units.
	mostStraight = 4096
	// mostColds is how many jumps back to one loop have a cold block of their
	// own. More than one edge to a block cost wazero a move each.
	mostColds = 4
)

// frame is a block that is open while a body is emitted.
type frame struct {
	block
	abs int // its label, counted from outside in the emitted body

	// want is what pend has to be at the label, once wanted is set; seen is the
	// most units since the last look on an edge to it.
	want   int64
	wanted bool
	seen   int64
	blind  bool // on one of these edges nobody has looked since the loop began
	// What they are at the start of an if's arms.
	ifPend, ifUnseen int64
	ifBlind          bool
	// A wrapped loop's cold blocks: the label of the first, how many, how many
	// are taken. See openLoop.
	cold, colds, taken int
	way                int // 1 + the block around a br_table that leads to the label
}

// wrapped tells whether a loop can be left and entered again to ask for fuel.
func (f *frame) wrapped() bool { return f.colds > 0 }

// openFrame emits a block, loop or if.
func (b *body) openFrame(in wasmbin.Instr, info block, live bool) {
	f := frame{block: info}
	if live && f.op == wasmbin.OpLoop && f.backs > 0 {
		if f.byTable {
			b.chargeAll()
		}
		f.want, f.wanted = b.pend, true
		if f.params == 0 && !f.calls && !f.outer {
			b.openLoop(&f, in)
		}
		b.blind = true
	}
	if live && f.op != wasmbin.OpLoop && f.byTable {
		b.chargeAll()
		f.wanted = true
	}
	if live && f.op == wasmbin.OpIf {
		f.ifPend, f.ifUnseen, f.ifBlind = b.pend, b.unseen, b.blind
		if !f.inElse { // the edge past the only arm has no room for a charge
			b.arriveFree(&f)
		}
	}
	b.depth++
	f.abs = b.depth
	b.frames = append(b.frames, f)
	b.dst = wasmbin.AppendInstr(b.dst, in, nil)
}

// openLoop wraps a loop so that fuel is asked for outside of it and the loop
// entered anew, because a call within, taken or not, would cost the loop its
// registers:
//
//	block                    the way out
//	  loop                   the way back in
//	    block … block        one for each jump back
//	      loop
//	        …                jump back: charge; br_if a block if negative; br
//	      end
//	      br the way out
//	    end
//	    refill; br the way back in
//	    …
//
// Nothing but locals lives across the jump, as the loop has no parameters.
func (b *body) openLoop(f *frame, in wasmbin.Instr) {
	f.colds = min(f.backs, mostColds)
	b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: wasmbin.OpBlock, B: in.B}, nil)
	b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: wasmbin.OpLoop, B: in.B}, nil)
	for range f.colds {
		b.dst = append(b.dst, byte(wasmbin.OpBlock), 0x40)
	}
	b.depth += 2 + f.colds
	f.cold = b.depth // the innermost
}

// closeLoop emits what follows the end of a wrapped loop.
func (b *body) closeLoop(f *frame) {
	out := f.abs - f.colds - 2
	b.br(out)
	for range f.colds {
		b.end()
		b.refill()
		b.br(out + 1)
	}
	b.end()
	b.end()
}

// closeFrame emits the end of a block that is not the body.
func (b *body) closeFrame(live bool) {
	f := &b.frames[len(b.frames)-1]
	if live && f.op != wasmbin.OpLoop && f.wanted {
		b.arrive(f)
	}
	b.end()
	if f.wrapped() {
		b.closeLoop(f)
	}
	if f.op != wasmbin.OpLoop && f.wanted {
		b.pend, b.unseen, b.blind = f.want, f.seen, f.blind
	}
	b.frames = b.frames[:len(b.frames)-1]
}

// arrive emits what an edge to a forward label owes.
func (b *body) arrive(f *frame) {
	if f.wanted {
		b.charge(b.pend - f.want)
	}
	b.arriveFree(f)
}

// arriveFree notes an edge to a forward label that owes nothing.
func (b *body) arriveFree(f *frame) {
	if !f.wanted {
		f.want, f.wanted = b.pend, true
	}
	f.seen = max(f.seen, b.unseen)
	f.blind = f.blind || b.blind
}

// elseArm emits an else.
func (b *body) elseArm(live bool) {
	f := &b.frames[len(b.frames)-1]
	if live {
		b.arrive(f)
	}
	b.op(wasmbin.OpElse)
	b.pend, b.unseen, b.blind = f.ifPend, f.ifUnseen, f.ifBlind
}

// label returns the frame of one of the guest's labels.
func (b *body) label(label uint32) *frame { return &b.frames[len(b.frames)-1-int(label)] }

// jump emits an edge that carries no values and can be told from others, and the
// branch at its end.
func (b *body) jump(f *frame) {
	switch {
	case f.abs == 0:
		b.leave()
		b.br(0)
	case f.wrapped():
		b.chargeAndLook(b.pend - f.want)
		b.index(wasmbin.OpBrIf, uint32(b.depth-(f.cold-min(f.taken, f.colds-1))))
		f.taken++
		b.br(f.abs)
	case f.op == wasmbin.OpLoop && b.seenOnce():
		b.charge(b.pend - f.want)
		b.br(f.abs)
	case f.op == wasmbin.OpLoop:
		b.chargeAndLook(b.pend - f.want)
		b.ifEmpty()
		b.refill()
		b.end()
		b.br(f.abs)
	default:
		b.arrive(f)
		b.br(f.abs)
	}
}

// free tells whether an edge to a label needs nothing but the branch.
func (b *body) free(f *frame) bool {
	return f.abs != 0 && f.op != wasmbin.OpLoop && (!f.wanted || f.want == b.pend)
}

// settle emits what edges owe that cannot be told from the way straight on: it
// is paid before, on both.
func (b *body) settle(f *frame) {
	if f.abs == 0 {
		b.leave()
		b.pend = 0
		return
	}
	if !f.wanted {
		f.want, f.wanted = b.pend, true
	}
	b.charge(b.pend - f.want)
	b.pend = f.want
	if f.op == wasmbin.OpLoop {
		if !b.seenOnce() {
			b.look()
			b.looked()
		}
		return
	}
	b.arriveFree(f)
}

// branch emits a br.
func (b *body) branch(in wasmbin.Instr) {
	f := b.label(in.A)
	if f.arity == 0 {
		b.jump(f)
		return
	}
	b.settle(f)
	b.br(f.abs)
}

// branchIf emits a br_if.
func (b *body) branchIf(in wasmbin.Instr) {
	f := b.label(in.A)
	switch {
	case b.free(f):
		b.arrive(f)
		b.index(wasmbin.OpBrIf, uint32(b.depth-f.abs))
	case f.arity == 0:
		b.ifEmpty()
		b.jump(f)
		b.end()
	default:
		b.settle(f)
		b.index(wasmbin.OpBrIf, uint32(b.depth-f.abs))
	}
}

// branchTable emits a br_table. Where it carries values, every label wants pend to
// be 0, since plan has told where it starts. Otherwise edges that owe anything lead to a
// block each around the table.
func (b *body) branchTable(in wasmbin.Instr, targets []uint32) {
	targets = targets[in.A : uint64(in.A)+in.B]
	b.out, b.ways = b.out[:0], b.ways[:0]
	if b.label(targets[0]).arity > 0 {
		for _, t := range targets {
			f := b.label(t)
			if f.way == 0 {
				b.settle(f)
				b.ways = append(b.ways, t)
				f.way = len(b.ways)
			}
			b.out = append(b.out, uint32(b.depth-f.abs))
		}
		for _, t := range b.ways {
			b.label(t).way = 0
		}
		b.table(b.out)
		return
	}
	for _, t := range targets {
		if f := b.label(t); b.free(f) {
			b.arrive(f)
		} else if f.way == 0 {
			b.ways = append(b.ways, t)
			f.way = len(b.ways)
		}
	}
	n := len(b.ways)
	if n > 0 {
		b.index(wasmbin.OpLocalSet, b.choice)
		for range n {
			b.dst = append(b.dst, byte(wasmbin.OpBlock), 0x40)
			b.depth++
		}
		b.index(wasmbin.OpLocalGet, b.choice)
	}
	for _, t := range targets {
		f := b.label(t)
		label := b.depth - f.abs
		if f.way > 0 {
			label = f.way - 1
		}
		b.out = append(b.out, uint32(label))
	}
	b.table(b.out)
	for _, t := range b.ways {
		b.end()
		f := b.label(t)
		f.way = 0
		b.jump(f)
	}
}

func (b *body) table(labels []uint32) {
	b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: wasmbin.OpBrTable, B: uint64(len(labels))}, labels)
}

// seenOnce tells that a jump back need not look: the way around the loop has, and
// not long ago, since what follows the start of the loop does not count what
// has been executed before a jump back to it.
func (b *body) seenOnce() bool { return !b.blind && b.unseen <= b.most() }

// most is what a function may have executed since the last look when it is left.
func (b *body) most() int64 {
	if b.p.calls {
		return mostOut
	}
	return mostLeaf
}

// leave emits what is owed where the function is left.
func (b *body) leave() {
	b.charge(b.pend)
	if b.unseen > b.most() {
		b.look()
	}
	b.share()
}

// chargeAll charges what is pending.
func (b *body) chargeAll() {
	b.charge(b.pend)
	b.pend = 0
}

// charge takes a fixed price, or gives it back.
func (b *body) charge(cost int64) {
	if cost == 0 {
		return
	}
	b.counter()
	b.i64(cost)
	b.op(wasmbin.OpI64Sub)
	b.setCounter()
}

// chargeAndLook takes a fixed price and pushes whether fuel is owed.
func (b *body) chargeAndLook(cost int64) {
	b.counter()
	b.i64(cost)
	b.op(wasmbin.OpI64Sub)
	b.index(wasmbin.OpLocalTee, b.left)
	if !b.p.tight {
		b.index(wasmbin.OpGlobalSet, b.r.globalLeft)
		b.index(wasmbin.OpLocalGet, b.left)
	}
	b.i64(0)
	b.op(wasmbin.OpI64LtS)
}

// counter pushes the fuel left.
func (b *body) counter() {
	if b.p.tight {
		b.index(wasmbin.OpLocalGet, b.left)
	} else {
		b.index(wasmbin.OpGlobalGet, b.r.globalLeft)
	}
}

func (b *body) setCounter() {
	if b.p.tight {
		b.index(wasmbin.OpLocalSet, b.left)
	} else {
		b.index(wasmbin.OpGlobalSet, b.r.globalLeft)
	}
}

// share stores the counter where a callee and the host find it, and unshare
// reads what they have left of it.
func (b *body) share() {
	if b.p.tight {
		b.index(wasmbin.OpLocalGet, b.left)
		b.index(wasmbin.OpGlobalSet, b.r.globalLeft)
	}
}

func (b *body) unshare() {
	if b.p.tight {
		b.index(wasmbin.OpGlobalGet, b.r.globalLeft)
		b.index(wasmbin.OpLocalSet, b.left)
	}
}

// negative pushes whether fuel is owed.
func (b *body) negative() {
	b.counter()
	b.i64(0)
	b.op(wasmbin.OpI64LtS)
}

// look calls the host if fuel is owed.
func (b *body) look() {
	b.negative()
	b.ifEmpty()
	b.refill()
	b.end()
}

// refill calls the host.
func (b *body) refill() {
	b.counter()
	b.index(wasmbin.OpCall, funcRefill)
	b.setCounter()
}

// spend counts the price of a reachable operator, and interrupts straight code
// that goes on for too long.
func (b *body) spend(in wasmbin.Instr) {
	if b.unseen > mostStraight {
		b.chargeAll()
		b.look()
		b.looked()
	}
	cost := int64(opCost(in.Op))
	b.pend += cost
	b.unseen += cost
	if in.Op == wasmbin.OpCallIndirect || in.Op == wasmbin.OpCall && !b.r.imported(in.A) {
		b.unseen += mostLeaf
	}
}

// looked notes that the counter has just been looked at.
func (b *body) looked() { b.unseen, b.blind = 0, false }
