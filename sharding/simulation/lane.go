package simulation

import "time"

// lane is a goroutine of a process that owns a machine, and its queue: package node gives the session, each region and the coordinator
// one of their own. What is sent to a lane takes its turn in order, while the others go on: a session may be ahead of its regions, or a region hear
// of the network late and of its lease in time.
type lane struct {
	p     *process
	until int64 // it stands still until then
	last  int64 // when the last of what waits has its turn
	waits int
}

// post has the lane do f in its turn.
func (l *lane) post(f func()) {
	w := l.p.w
	if w.rng.IntN(400) == 0 {
		l.stall(time.Duration(w.rng.Int64N(int64(15 * time.Millisecond))))
	}
	at := max(w.now, l.until, l.last)
	if at == w.now && l.waits == 0 {
		l.p.do(f)
		return
	}
	l.last = at
	l.waits++
	w.schedule(at, l.p, func() {
		l.waits--
		l.p.do(f)
	})
}

// stall has the lane do nothing for d.
func (l *lane) stall(d time.Duration) { l.until = max(l.until, l.p.w.now+int64(d)) }

// lanes lists those of a process.
func (p *process) lanes() []*lane {
	out := []*lane{&p.sessionLane}
	for _, h := range p.regions {
		out = append(out, &h.lane)
	}
	if p.machine != nil {
		out = append(out, &p.machineLane)
	}
	return out
}
