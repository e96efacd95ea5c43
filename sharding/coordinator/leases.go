package coordinator

import (
	"fmt"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// peer is what the leader knows of a member beside the log.
type peer struct {
	known       bool // it is registered, and settleAt is set
	registering bool
	asked       *protocol.Register // the last one, answered when the registration commits
	dropping    bool               // a Deregister is in flight: nothing is acknowledged

	synced  bool              // it follows the map from sent on
	sent    sharding.Revision // of the last update sent
	applied sharding.Revision // that it has told of
	lacks   sharding.Instant  // since when it has lacked some of what it was sent, without telling of any progress

	settleAt sharding.Instant
	lapse    sharding.Instant // no acknowledgement, of this or an earlier leader, is good after this
	arrived  sharding.Instant // of the last renewal: it is alive, though not acknowledged yet
	renewal  *renewal         // waits for the next GrantLeases
	acks     []ack            // those that may still be good
	load     *protocol.NodeLoad
}

// renewal is a Renew that came in at a known instant.
type renewal struct {
	msg *protocol.Renew
	at  sharding.Instant
}

// ack is an acknowledgement sent: it covers grants of that revision or before until lapse.
type ack struct {
	revision uint64
	lapse    sharding.Instant
}

// withMargin adds what clocks may differ by: a tenth (spec 2.1).
func withMargin(ttl time.Duration) time.Duration { return ttl + ttl/10 }

// ttl is the present TTL as the leader counts it, with the margin.
func (m *Machine) ttl() time.Duration { return m.counted(m.state.settings.LeaseTTL) }

func (m *Machine) counted(ms int64) time.Duration {
	d := time.Duration(ms) * time.Millisecond
	if m.cfg.Off.LeaseMargin {
		return d
	}
	return withMargin(d)
}

// lapseOf is when the member counts as lapsed: no lease is good any more, and no renewal has come in for as long.
func (m *Machine) lapseOf(p *peer) sharding.Instant {
	lapse := max(p.lapse, m.floor, m.awake)
	if p.arrived != 0 {
		lapse = max(lapse, p.arrived.Add(m.ttl()))
	}
	return lapse
}

func (m *Machine) renew(from sharding.Member, msg *protocol.Renew) {
	p := m.peers[from]
	if p == nil || p.dropping {
		return
	}
	if !p.synced {
		m.hint(from) // it has not registered with this leader
	}
	p.arrived = m.at
	p.renewal = &renewal{msg, m.at}
	if msg.Load != nil {
		p.load = msg.Load
	}
}

// grant proposes one entry for all renewals that wait; those that come in meanwhile share the next. The entry is appended after they
// came in, so once it has committed no later leader can have missed it (spec 2.1).
func (m *Machine) grant() {
	if m.granting {
		return
	}
	var members []sharding.Member
	var waiting []*renewal
	for _, n := range m.state.members() {
		who := m.state.slots[n].member
		if p := m.peers[who]; p != nil && p.renewal != nil && p.synced && !p.dropping {
			members, waiting = append(members, who), append(waiting, p.renewal)
			p.renewal = nil
		}
	}
	if len(members) == 0 {
		return
	}
	m.granting = true
	ttl := m.state.settings.LeaseTTL
	m.propose(&protocol.Entry{Kind: protocol.KindGrantLeases, GrantLeases: &protocol.GrantLeases{Members: members, TTL: ttl}}, func(r Result) {
		m.granting = false
		if r.Code != "" {
			return // the members renew again
		}
		for i, who := range members {
			m.acknowledge(who, waiting[i], ttl)
		}
	})
}

// acknowledge extends a member's lease: first the map up to the present revision, then the acknowledgement that names it.
func (m *Machine) acknowledge(who sharding.Member, w *renewal, ttl int64) {
	p := m.peers[who]
	if _, reg := m.state.registered(who); reg == nil || p == nil || p.dropping {
		return
	}
	if p.applied.Less(w.msg.Applied) {
		p.applied, p.lacks = w.msg.Applied, w.at
	}
	if w.msg.Applied.Less(p.sent) && w.at.Sub(p.lacks) > repeatEvery/2 {
		p.sent, p.applied = w.msg.Applied, w.msg.Applied // it has had time enough: an update was lost
	}
	m.publishTo(who, p)
	lapse := w.at.Add(m.counted(ttl))
	p.lapse = max(p.lapse, lapse)
	live := p.acks[:0]
	for _, a := range p.acks {
		if a.lapse >= m.at && a.revision != m.state.revision.Index {
			live = append(live, a)
		} else if a.revision == m.state.revision.Index {
			lapse = max(lapse, a.lapse)
		}
	}
	p.acks = append(live, ack{m.state.revision.Index, lapse})
	m.send(who, &protocol.LeaseAck{Term: m.term, Seq: w.msg.Seq, SentAt: w.msg.SentAt, Revision: m.state.revision, TTL: ttl})
}

// uncovered says that no acknowledgement can cover what the entry at index fenced at this member.
func (m *Machine) uncovered(who sharding.Member, index uint64) (since sharding.Instant, free bool) {
	since = m.floor // acknowledgements of earlier leaders
	if p := m.peers[who]; p != nil {
		for _, a := range p.acks {
			if a.revision < index {
				since = max(since, a.lapse)
			}
		}
	}
	return since, m.at > since
}

// dropLapsed deregisters members whose lease has lapsed, silent ones that never renewed included.
func (m *Machine) dropLapsed() {
	for _, n := range m.state.members() {
		who := m.state.slots[n].member
		p := m.peers[who]
		if p == nil || p.dropping || m.at <= m.lapseOf(p) {
			continue
		}
		level := Warn
		if m.seen[who].status == MemberLeft { // it said goodbye, and could not wait for the end of its lease
			level = Info
		}
		m.note(Note{Kind: NoteLeaseLapsed, Level: level, Node: who.Node, Text: fmt.Sprintf("the lease of %s has lapsed: its shards get new homes", nodeText(who))})
		m.deregister(who, nil, protocol.CauseLapsed)
	}
}
