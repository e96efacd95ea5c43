package coordinator

import (
	"github.com/droverhq/drover/sharding"
)

// starts is what one member is to be told to start: in the order in which it was granted, a window at a time. Entries are not taken out when
// their work ends; they are skipped when their turn comes.
type starts struct {
	waiting []start
	sent    []start // oldest first
	open    int     // sent and not answered: those that hold a seat in the window
}

// start is a generation that a member is to start.
type start struct {
	t     *typeState
	r     *run
	shard uint32
	epoch sharding.Epoch
	again sharding.Instant // sent: without an answer until then it is sent again
}

// startsOf gives a slot's starts.
func (m *Machine) startsOf(slot uint32) *starts {
	for uint32(len(m.starts)) <= slot {
		m.starts = append(m.starts, &starts{})
	}
	return m.starts[slot]
}

// due says that the shard waits for its turn in s.
func (e *start) due(s *starts) bool {
	w := &e.r.work[e.shard]
	return w.kind == workStart && w.epoch == e.epoch && w.starts == s && !w.open && !w.stopped
}

// unanswered says that the shard holds the seat that it took when this was sent.
func (e *start) unanswered(s *starts) bool {
	w := &e.r.work[e.shard]
	return w.open && w.epoch == e.epoch && w.starts == s && w.next == e.again
}

// leave gives a shard's seat to the next one.
func (w *work) leave() {
	if w.open {
		w.open = false
		w.starts.open--
	}
}

// queueStart has the owner told to start a shard, behind what it is to start already. One that was told and has not answered is told again.
func (m *Machine) queueStart(r *run, t *typeState, i uint32) {
	epoch, s := t.epoch[i], m.startsOf(t.owner[i])
	w := &r.work[i]
	if w.kind == workStart && w.epoch == epoch && w.starts == s {
		if !w.open || w.stopped {
			return // its turn comes, or the owner will never start it
		}
		w.leave()
	} else {
		m.arm(r, i, workStart, epoch, 0)
		w.starts = s
	}
	s.waiting = append(s.waiting, start{t: t, r: r, shard: i, epoch: epoch})
}

// driveStarts fills every member's window. What was not answered in time goes to the end of the queue: a shard that its owner never confirms
// holds up nobody else (I17), and a member is sent no more than a window of repeats a second.
func (m *Machine) driveStarts() {
	for _, slot := range m.state.members() {
		if slot >= uint32(len(m.starts)) {
			continue
		}
		s := m.starts[slot]
		for len(s.sent) > 0 {
			e := s.sent[0]
			if e.unanswered(s) {
				if m.at < e.again {
					break
				}
				e.r.work[e.shard].leave()
				s.waiting = append(s.waiting, e)
			}
			s.sent = s.sent[1:]
		}
		for s.open < m.cfg.StartWindow && len(s.waiting) > 0 {
			e := s.waiting[0]
			s.waiting = s.waiting[1:]
			if !e.due(s) {
				continue
			}
			w := &e.r.work[e.shard]
			w.open, w.next = true, m.at.Add(repeatEvery)
			s.open++
			e.again = w.next
			s.sent = append(s.sent, e)
			m.order(e.t, e.shard, workStart, m.state.slots[slot].member)
		}
	}
}
