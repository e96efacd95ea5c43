package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover/sharding"
)

// Direction is seen from the node that holds the fault points.
type Direction uint8

// The directions. In is what comes over connections that peers dialled, Out what goes over those that this node dialled.
const (
	Both Direction = 0
	In   Direction = 1
	Out  Direction = 2
)

func (d Direction) String() string {
	switch d {
	case Both:
		return "both"
	case In:
		return "in"
	case Out:
		return "out"
	default:
		return fmt.Sprintf("direction-%d", uint8(d))
	}
}

// Where says which traffic a fault concerns. The zero value means all.
type Where struct {
	Peer      sharding.NodeID // empty: any
	Class     Class           // 0: any
	Direction Direction
}

func (w Where) matches(dir Direction, peer sharding.NodeID, class Class) bool {
	return (w.Peer == "" || w.Peer == peer) && (w.Class == 0 || w.Class == class) && (w.Direction == Both || w.Direction == dir)
}

type faultKind uint8

const (
	faultDrop faultKind = iota
	faultDelay
	faultPartition
	faultStopReading
)

type fault struct {
	kind  faultKind
	where Where
	rate  float64       // faultDrop: the share of frames that is lost
	delay time.Duration // faultDelay: of each batch, call and raft connection
}

// Faults are the fault points of one transport, for tests of whole nodes. A nil *Faults has none, and costs a nil check.
// All methods may be called at any time from any goroutine.
type Faults struct {
	mu       sync.Mutex
	random   *rand.Rand
	changed  chan struct{} // closed, and made anew, when the faults change
	active   atomic.Pointer[[]fault]
	attached *Transport
}

// NewFaults makes fault points without any fault. The seed decides which frames a partial drop takes.
func NewFaults(seed uint64) *Faults {
	return &Faults{random: rand.New(rand.NewPCG(seed, 0)), changed: make(chan struct{})}
}

// Drop loses a share of the frames (0 to 1), silently: what a stream promises is broken on purpose.
func (f *Faults) Drop(w Where, rate float64) { f.add(fault{kind: faultDrop, where: w, rate: rate}) }

// Delay holds up each batch and each call. Order stays.
func (f *Faults) Delay(w Where, d time.Duration) {
	f.add(fault{kind: faultDelay, where: w, delay: d})
}

// Partition breaks the connections concerned and refuses new ones until Heal. One direction alone is possible, because each
// connection carries one direction's frames.
func (f *Faults) Partition(w Where) {
	f.add(fault{kind: faultPartition, where: w})
	f.Break(w)
}

// StopReading leaves frames that peers send unread until Heal, as a stopped process would.
func (f *Faults) StopReading(w Where) { f.add(fault{kind: faultStopReading, where: w}) }

// Break ends the connections concerned, once.
func (f *Faults) Break(w Where) {
	if t := f.transport(); t != nil {
		t.conns.closeIf(func(c *conn) bool { return w.matches(c.direction(), c.peer.Member.Node, c.class) }, errFaultBreak)
	}
}

// Heal removes every fault.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active.Store(nil)
	f.wake()
}

// Inject sends a frame of the test's making over a connection that stands, as this node, past Drop and Partition. It never
// dials: without a standing stream it fails.
func (f *Faults) Inject(to sharding.Member, class Class, frame []byte) error {
	t := f.transport()
	if t == nil {
		return errors.New("inject: no transport has these fault points yet")
	}
	l := t.link(to, class)
	if l == nil || !l.isUp() {
		return fmt.Errorf("inject: no %s stream to %s stands", class, to)
	}
	return l.send(func(q *queue) bool { return q.add(frame) })
}

// Apply runs one command, so that tests of separate processes reach the fault points too:
//
//	drop|delay|partition|stop-reading|break [peer=NAME] [class=control|data|call|raft] [dir=in|out|both] [rate=0.5] [by=50ms]
//	heal
func (f *Faults) Apply(command string) error {
	words := strings.Fields(command)
	if len(words) == 0 {
		return errors.New("fault: the command is empty")
	}
	var w Where
	rate, by := 1.0, time.Duration(0)
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "peer":
			w.Peer = sharding.NodeID(value)
		case "class":
			err = pick(value, &w.Class, Control, Data, Call, Raft)
		case "dir":
			err = pick(value, &w.Direction, Both, In, Out)
		case "rate":
			rate, err = strconv.ParseFloat(value, 64)
		case "by":
			by, err = time.ParseDuration(value)
		default:
			err = errors.New("unknown key")
		}
		if err != nil {
			return fmt.Errorf("fault: %q: %w", word, err)
		}
	}
	switch words[0] {
	case "drop":
		f.Drop(w, rate)
	case "delay":
		f.Delay(w, by)
	case "partition":
		f.Partition(w)
	case "stop-reading":
		f.StopReading(w)
	case "break":
		f.Break(w)
	case "heal":
		f.Heal()
	default:
		return fmt.Errorf("fault: unknown command %q: want drop, delay, partition, stop-reading, break or heal", words[0])
	}
	return nil
}

func pick[T fmt.Stringer](text string, into *T, from ...T) error {
	names := make([]string, len(from))
	for i, v := range from {
		if names[i] = v.String(); names[i] == text {
			*into = v
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(names, ", "))
}

var errFaultBreak = errors.New("broken by a fault point")

func (f *Faults) attach(t *Transport) {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.attached = t
	}
}

func (f *Faults) transport() *Transport {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attached
}

func (f *Faults) add(one fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []fault
	if old := f.active.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, one)
	f.active.Store(&list)
	f.wake()
}

func (f *Faults) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// match gives the first fault of a kind that concerns this traffic.
func (f *Faults) match(kind faultKind, dir Direction, peer sharding.NodeID, class Class) *fault {
	if f == nil {
		return nil
	}
	list := f.active.Load()
	if list == nil {
		return nil
	}
	for i := range *list {
		if one := &(*list)[i]; one.kind == kind && one.where.matches(dir, peer, class) {
			return one
		}
	}
	return nil
}

func (f *Faults) partitioned(dir Direction, peer sharding.NodeID, class Class) bool {
	return f.match(faultPartition, dir, peer, class) != nil
}

func (f *Faults) drops(dir Direction, peer sharding.NodeID, class Class) bool {
	one := f.match(faultDrop, dir, peer, class)
	if one == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Float64() < one.rate
}

// delay waits as long as a fault says, or until ctx ends.
func (f *Faults) delay(ctx context.Context, dir Direction, peer sharding.NodeID, class Class) {
	one := f.match(faultDelay, dir, peer, class)
	if one == nil {
		return
	}
	timer := time.NewTimer(one.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// gate waits while reading is stopped, or until ctx ends.
func (f *Faults) gate(ctx context.Context, peer sharding.NodeID, class Class) {
	for f.match(faultStopReading, In, peer, class) != nil {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if f.match(faultStopReading, In, peer, class) == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
