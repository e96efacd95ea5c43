package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/region"
)

// Serf's events are hints: they come late, twice, in another order, and say that living nodes have failed.

// hint tells one process, after up to late, what Serf thinks of a member.
func (w *world) hint(to *process, m sharding.Member, s coordinator.MemberStatus, late time.Duration) {
	n := 1
	if w.rng.IntN(6) == 0 {
		n = 2
	}
	for range n {
		w.schedule(w.now+1+w.rng.Int64N(int64(late)), to, func() {
			if to.machine != nil {
				to.seen[m] = s
				to.stepMachine(coordinator.MemberSeen{Member: m, Status: s})
			}
			to.stepSession(region.MembershipChanged{})
		})
	}
}

// tell hints to every process that lives.
func (w *world) tell(m sharding.Member, s coordinator.MemberStatus, late time.Duration) {
	for _, q := range w.procs {
		if q.alive {
			w.hint(q, m, s, late)
		}
	}
}

// serfJoined: p is seen by all, and sees all.
func (w *world) serfJoined(p *process) {
	w.tell(p.self, coordinator.MemberUp, 200*time.Millisecond)
	for _, q := range w.procs {
		if q.alive && q != p {
			w.hint(p, q.self, coordinator.MemberUp, 200*time.Millisecond)
		}
	}
}

// serfLost: p has ended.
func (w *world) serfLost(p *process, left bool) {
	if left {
		w.tell(p.self, coordinator.MemberLeft, 100*time.Millisecond)
		return
	}
	w.tell(p.self, coordinator.MemberSuspect, 700*time.Millisecond)
	w.tell(p.self, coordinator.MemberFailed, 1500*time.Millisecond)
}

// serfSettles tells every process the truth, as Serf's own exchange of states does in the end.
func (w *world) serfSettles() {
	for _, q := range w.procs {
		s := coordinator.MemberFailed
		if q.alive {
			s = coordinator.MemberUp
		} else if q.leaving {
			s = coordinator.MemberLeft
		}
		for _, to := range w.procs {
			if to.alive && to.machine != nil && to.seen[q.self] != s || to.alive && s == coordinator.MemberUp {
				w.hint(to, q.self, s, 50*time.Millisecond)
			}
		}
	}
}
