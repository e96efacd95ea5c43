package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// class is a connection class (ADR 2). Raft's messages are modelled as datagrams, since raft repeats what gets lost.
type class uint8

const (
	classControl class = iota
	classData
)

// streamKey names the one-way stream of one class between two processes.
type streamKey struct {
	from, to int // process ids
	class    class
}

// stream carries messages in order. A break loses a suffix of what is in flight.
type stream struct {
	key       streamKey
	from, to  *process
	lastAt    int64 // arrival of the last message so far
	cutAt     int64 // once broken: nothing arrives after this
	broken    bool
	stalledAt int64
	stalled   []protocol.Message // sent while the link was cut: TCP repeats them when it heals
	stallEnds bool               // the time-out that breaks a stalled stream is running
}

const never = int64(1) << 62

// network joins the processes. Links are one-way and between computers, not processes.
type network struct {
	w       *world
	blocked [][]int // [from][to]: number of partitions that cut this way now
	slow    [][]int64
	streams map[streamKey]*stream
	down    map[streamKey]bool // told PeerDown, a reconnection is being tried
}

func newNetwork(w *world, nodes int) *network {
	n := &network{w: w, streams: map[streamKey]*stream{}, down: map[streamKey]bool{}}
	n.blocked = make([][]int, nodes)
	n.slow = make([][]int64, nodes)
	for i := range n.blocked {
		n.blocked[i] = make([]int, nodes)
		n.slow[i] = make([]int64, nodes)
	}
	return n
}

func (n *network) open(a, b *process) bool { return n.blocked[a.node.slot][b.node.slot] == 0 }

// delay draws how long a message takes from a to b.
func (n *network) delay(a, b *process) int64 {
	w := n.w
	d := int64(100*time.Microsecond) + w.rng.Int64N(int64(1200*time.Microsecond))
	switch w.rng.IntN(200) {
	case 0:
		d += w.rng.Int64N(int64(300 * time.Millisecond))
	case 1, 2, 3:
		d += w.rng.Int64N(int64(20 * time.Millisecond))
	}
	if s := n.slow[a.node.slot][b.node.slot]; s > 0 {
		d += w.rng.Int64N(s)
	}
	return d
}

// datagram delivers f at b after a while, at times twice, or loses it.
func (n *network) datagram(a, b *process, f func()) {
	if !b.alive || !n.open(a, b) || n.w.rng.IntN(500) == 0 {
		return
	}
	n.w.schedule(n.w.now+n.delay(a, b), b, f)
	if n.w.rng.IntN(200) == 0 {
		n.w.schedule(n.w.now+n.delay(a, b), b, f)
	}
}

// send puts a message on the stream from a to b. False: there is none, so surely nothing was sent.
func (n *network) send(a, b *process, c class, m protocol.Message) bool {
	m = n.w.overWire(m)
	key := streamKey{a.id, b.id, c}
	s := n.streams[key]
	if s == nil {
		if n.down[key] {
			return false
		}
		if s = n.dial(key, a, b); s == nil {
			n.lost(key, a, b)
			return true // lost with the attempt
		}
	}
	if s.broken {
		return true // not noticed yet
	}
	if !n.open(a, b) || len(s.stalled) > 0 {
		if len(s.stalled) == 0 {
			s.stalledAt = n.w.now
		}
		s.stalled = append(s.stalled, m)
		n.stall(s)
		return true
	}
	n.carry(s, m)
	return true
}

func (n *network) carry(s *stream, m protocol.Message) {
	at := max(s.lastAt+1, n.w.now+n.delay(s.from, s.to))
	s.lastAt = at
	n.w.schedule(at, s.to, func() {
		if at > s.cutAt { // by arrival: a stopped process reads later what had arrived before the break
			return
		}
		s.to.receive(s.from, s.key.class, m)
	})
}

// stall runs the time-out of a stream whose link is cut.
func (n *network) stall(s *stream) {
	if s.stallEnds {
		return
	}
	s.stallEnds = true
	wait := int64(300*time.Millisecond) + n.w.rng.Int64N(int64(3*time.Second))
	n.w.schedule(n.w.now+wait, nil, func() {
		s.stallEnds = false
		if len(s.stalled) > 0 && !s.broken {
			n.breakStream(s)
		}
	})
}

// healed lets stalled streams from a to b go on, in order.
func (n *network) healed(a, b int) {
	for _, s := range n.sorted() {
		if s.from.node.slot != a || s.to.node.slot != b || s.broken {
			continue
		}
		stalled := s.stalled
		s.stalled = nil
		if late := n.w.now - s.stalledAt; len(stalled) > 0 && s.key.class == classData && late > int64(n.w.holdFor)-int64(time.Second) {
			n.w.disturbed(Disturbed{Kind: DisturbedStream, A: s.from.self, B: s.to.self, Data: true}) // longer than a hold waits
		}
		for _, m := range stalled {
			n.carry(s, m)
		}
	}
}

// sorted lists the live streams in a fixed order.
func (n *network) sorted() []*stream {
	var out []*stream
	for _, a := range n.w.procs {
		if !a.alive {
			continue
		}
		for _, b := range n.w.procs {
			for c := classControl; c <= classData; c++ {
				if s := n.streams[streamKey{a.id, b.id, c}]; s != nil {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// dial opens a stream if both computers reach each other.
func (n *network) dial(key streamKey, a, b *process) *stream {
	if !b.alive || !n.open(a, b) || !n.open(b, a) {
		return nil
	}
	s := &stream{key: key, from: a, to: b, cutAt: never}
	s.lastAt = max(n.w.now+2*n.delay(a, b), b.closedFrom[a.id]+1)
	n.streams[key] = s
	return s
}

// breakStream ends a stream: an unknown suffix of what is in flight is lost, both ends learn of it later and apart.
func (n *network) breakStream(s *stream) {
	if s.broken {
		return
	}
	w := n.w
	s.broken = true
	s.stalled = nil
	s.cutAt = w.now
	if s.lastAt > w.now {
		s.cutAt += w.rng.Int64N(s.lastAt - w.now + 1)
	}
	w.disturbed(Disturbed{Kind: DisturbedStream, A: s.from.self, B: s.to.self, Data: s.key.class == classData})
	if s.key.class == classData {
		at := s.cutAt + 1 + w.rng.Int64N(int64(200*time.Millisecond))
		s.to.closedFrom[s.from.id] = at
		from := s.from.self
		w.schedule(at, s.to, func() { s.to.peerClosed(from) })
	}
	w.schedule(w.now+w.rng.Int64N(int64(100*time.Millisecond)), nil, func() {
		if n.streams[s.key] == s {
			delete(n.streams, s.key)
		}
		n.lost(s.key, s.from, s.to)
	})
}

// lost tells a that it cannot reach b now, and goes on trying.
func (n *network) lost(key streamKey, a, b *process) {
	if n.down[key] || !a.alive {
		return
	}
	n.down[key] = true
	if key.class == classData {
		n.w.disturbed(Disturbed{Kind: DisturbedStream, A: a.self, B: b.self, Data: true})
		to := b.self
		n.w.schedule(n.w.now, a, func() {
			n.w.disturbed(Disturbed{Kind: DisturbedStream, A: a.self, B: b.self, Data: true}) // until now it did not know
			a.peerDown(to)
		})
	}
	n.retry(key, a, b)
}

func (n *network) retry(key streamKey, a, b *process) {
	w := n.w
	wait := int64(20*time.Millisecond) + w.rng.Int64N(int64(200*time.Millisecond))
	w.schedule(w.now+wait, nil, func() {
		if !a.alive || !b.alive {
			return // b's name may live again, but as another member
		}
		if a.paused || n.dial(key, a, b) == nil {
			if key.class == classData {
				w.disturbed(Disturbed{Kind: DisturbedStream, A: a.self, B: b.self, Data: true})
			}
			n.retry(key, a, b)
			return
		}
		delete(n.down, key)
		if key.class == classData {
			to := b.self
			w.schedule(w.now, a, func() { a.peerUp(to) })
		}
	})
}

// died ends every stream from and to a process that crashed or stopped. What it had sent may still arrive.
func (n *network) died(p *process) {
	for _, q := range n.w.procs {
		for c := classControl; c <= classData; c++ {
			if s := n.streams[streamKey{p.id, q.id, c}]; s != nil && q.alive {
				n.breakStream(s)
			}
			if s := n.streams[streamKey{q.id, p.id, c}]; s != nil && q.alive {
				n.breakStream(s)
			}
		}
	}
}

// cut blocks the way from a to b (slots) until the returned function is called.
func (n *network) cut(a, b int) (heal func()) {
	n.blocked[a][b]++
	return func() {
		n.blocked[a][b]--
		if n.blocked[a][b] == 0 {
			n.healed(a, b)
		}
	}
}

// member finds the process of a member; nil for one that was never here.
func (w *world) member(m sharding.Member) *process { return w.byMember[m] }
