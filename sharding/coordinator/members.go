package coordinator

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// syncPeers keeps a peer for each registered member, and none for others.
func (m *Machine) syncPeers() {
	for _, n := range m.state.members() {
		who := m.state.slots[n].member
		if p := m.peers[who]; p == nil || !p.known {
			if p == nil {
				p = &peer{}
				m.peers[who] = p
			}
			p.known = true
			p.settleAt = m.at.Add(m.cfg.Settle)
			p.lapse = max(p.lapse, m.at.Add(m.ttl())) // time to renew for the first time
		}
	}
	for who := range m.peers { // unordered: each is judged alone
		if _, reg := m.state.registered(who); reg != nil {
			continue
		}
		if p := m.peers[who]; p.registering {
			*p = peer{registering: true, asked: p.asked} // it comes back, and settles anew
		} else {
			delete(m.peers, who)
		}
	}
}

// register answers a node's Register: what is refused, what its map lacks, and what it should be serving and is not.
func (m *Machine) register(from sharding.Member, msg *protocol.Register) {
	for _, inc := range msg.Supersedes {
		old := sharding.Member{Node: from.Node, Incarnation: inc}
		if _, reg := m.state.registered(old); reg != nil && old != from {
			m.deregister(old, nil, protocol.CauseSuperseded)
		}
	}
	if hi, lo := msg.Info.MaxWire, msg.Info.MinWire; hi != 0 && (hi < protocol.OldestVersion || lo > protocol.Version) {
		m.registerAck(from, []protocol.Refusal{{Code: "wire_version",
			Detail: fmt.Sprintf("this node speaks versions %d to %d, the cluster %d to %d: run an adjacent version", lo, hi, protocol.OldestVersion, protocol.Version)}})
		return
	}
	if why := tooLarge(msg); why != "" {
		m.registerAck(from, []protocol.Refusal{{Code: "too_large", Detail: why}})
		return
	}
	if m.state.superseded(from) {
		m.registerAck(from, []protocol.Refusal{{Code: "superseded", Detail: from.String() + " was superseded by a later process of its node: start it again"}})
		return
	}
	p := m.peers[from]
	if p == nil {
		p = &peer{}
		m.peers[from] = p
	}
	p.asked = msg
	if p.registering {
		return // the one under way answers with what was asked last
	}
	if _, reg := m.state.registered(from); reg != nil && m.sameRegistration(reg, msg) {
		m.registered(from, msg)
		return
	}
	p.registering = true
	m.propose(&protocol.Entry{Kind: protocol.KindRegister, Register: &protocol.RegisterNode{Member: from, Info: msg.Info, Regions: msg.Regions}},
		func(r Result) {
			p.registering = false
			if r.Code == "" {
				m.registered(from, p.asked)
			} else if r.Code != CodeUnavailable && r.Code != CodeNotLeader {
				m.registerAck(from, []protocol.Refusal{{Code: "cluster", Detail: r.Detail}})
			}
			if _, reg := m.state.registered(from); reg == nil {
				delete(m.peers, from)
			}
		})
}

// sameRegistration says that a Register brings nothing new: its regions, without those that are refused, and its info are known.
func (m *Machine) sameRegistration(reg *registration, msg *protocol.Register) bool {
	n := 0
	for _, g := range msg.Regions {
		if num, ok := m.state.NumShards(g.Type); ok && num != g.NumShards || !ok && m.state.noRoom(&g) != "" {
			continue
		}
		n++
		if old := reg.region(g.Type); old == nil || !reflect.DeepEqual(*old, g) {
			return false
		}
	}
	return n == len(reg.regions) && reflect.DeepEqual(reg.info, msg.Info)
}

// registered follows a registration up: acknowledgement, map, strategies of its file, shards that it should start.
func (m *Machine) registered(from sharding.Member, msg *protocol.Register) {
	p := m.peers[from]
	p.synced = true
	p.sent, p.applied, p.lacks = msg.Applied, msg.Applied, m.at
	m.registerAck(from, m.refusals(msg))
	m.publishTo(from, p)
	n, _ := m.state.registered(from)
	for _, t := range m.state.types {
		r := m.run(t)
		serves := make([]sharding.Epoch, t.numShards)
		for _, ts := range msg.Owned {
			if ts.Type != t.name {
				continue
			}
			for _, se := range ts.Shards {
				if uint32(se.Shard) < t.numShards {
					serves[se.Shard] = se.Epoch
				}
			}
		}
		for i, o := range t.owner {
			if o == n && t.state[i] == protocol.Homed && serves[i] != t.epoch[i] {
				m.queueStart(r, t, uint32(i))
			}
		}
	}
	for _, g := range msg.Regions {
		m.proposeFromFile(g)
	}
	m.joined = true
}

// refusals lists the regions that can't be registered, and why.
func (m *Machine) refusals(msg *protocol.Register) []protocol.Refusal {
	var out []protocol.Refusal
	for _, g := range msg.Regions {
		num, ok := m.state.NumShards(g.Type)
		switch {
		case ok && num != g.NumShards:
			out = append(out, protocol.Refusal{Type: g.Type, Code: "num_shards",
				Detail: fmt.Sprintf("type %s has %d shards in this cluster and %d in this node's file: set shards = %d", g.Type, num, g.NumShards, num)})
		case !ok:
			why := m.state.noRoom(&g)
			if why == "" { // there is room now: with its next registration
				continue
			}
			out = append(out, protocol.Refusal{Type: g.Type, Code: "num_shards", Detail: why})
		}
	}
	return out
}

func (m *Machine) registerAck(to sharding.Member, refused []protocol.Refusal) {
	m.send(to, &protocol.RegisterAck{Term: m.term, ClusterID: m.state.clusterID, Revision: m.state.revision,
		LeaseTTL: m.state.settings.LeaseTTL, Refused: refused})
}

// stopping: the node ends some regions or all. With Drain it waits for its shards to be handed off (a drain is always the whole node's).
func (m *Machine) stopping(from sharding.Member, msg *protocol.Stopping) {
	if !msg.Drain {
		m.deregister(from, msg.Types, protocol.CauseStopped)
		return
	}
	if _, reg := m.state.registered(from); !reg.draining {
		m.propose(&protocol.Entry{Kind: protocol.KindSetDrain, SetDrain: &protocol.SetDrain{Member: from, On: true}}, func(Result) {})
	}
}

// deregister proposes to end regions. From now on the member gets no acknowledgement: one that committed after the entry would cover
// shards that have a new owner by then.
func (m *Machine) deregister(who sharding.Member, types []sharding.TypeName, cause protocol.Cause) {
	p := m.peers[who]
	if p == nil || p.dropping {
		return
	}
	p.dropping = true
	m.joined = true
	m.propose(&protocol.Entry{Kind: protocol.KindDeregister, Deregister: &protocol.Deregister{Member: who, Types: types, Cause: cause}},
		func(Result) { p.dropping = false })
}

// sees takes Serf's word: a hint. Leaving ends a candidate; a suspicion or failure does not, its lease does (spec 2.2).
func (m *Machine) sees(ev MemberSeen) {
	if _, known := m.seen[ev.Member]; !known { // a restart shows as another incarnation of the name alone: nobody says that the one before is gone
		for who := range m.seen { // unordered: each is judged alone
			if _, reg := m.state.registered(who); who.Node == ev.Member.Node && reg == nil {
				delete(m.seen, who)
			}
		}
	}
	m.seen[ev.Member] = sight{ev.Status, ev.Coord}
	if ev.Status == MemberLeft {
		if _, reg := m.state.registered(ev.Member); reg == nil {
			delete(m.seen, ev.Member)
		}
	}
	m.joined = m.joined || m.active
	if p := m.peers[ev.Member]; ev.Status == MemberUp && m.active && m.state.created && (p == nil || !p.synced) {
		m.send(ev.Member, &protocol.Leading{Term: m.term}) // it was not known as up when this term began, or lost the word
	}
}

// callStrangers says who leads to all that are up by Serf's word and have not registered: nobody else tells a plain node, and the word may
// have been lost with a connection.
func (m *Machine) callStrangers() {
	var strangers []sharding.Member
	for who, s := range m.seen { // unordered: sorted below
		if s.status == MemberUp && m.peers[who] == nil {
			strangers = append(strangers, who)
		}
	}
	slices.SortFunc(strangers, func(a, b sharding.Member) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	for _, who := range strangers {
		m.send(who, &protocol.Leading{Term: m.term})
	}
}

// living gives the members that may get shards now, of the types that they host, sorted by name: registered, settled, lease alive, not leaving, the
// newest incarnation of their name.
func (m *Machine) living() []sharding.Member {
	var out []sharding.Member
	for _, n := range m.state.members() {
		who := m.state.slots[n].member
		p := m.peers[who]
		if p == nil || p.dropping || m.at < p.settleAt || m.at > m.lapseOf(p) || m.seen[who].status == MemberLeft || m.state.newest(who.Node) != n {
			continue
		}
		out = append(out, who)
	}
	return out
}

// candidates gives those of the living that may get shards of a type: that host it and do not drain.
func (m *Machine) candidates(t *typeState, living []sharding.Member) []sharding.Member {
	var out []sharding.Member
	for _, who := range living {
		if m.state.fit(t, who) {
			out = append(out, who)
		}
	}
	return out
}

// watchCandidates compares each type's candidates with those of the last look. A change asks for homes and for a pass at once (spec 2.2). Time
// alone changes who is living, so that most looks end there, however many types there are.
func (m *Machine) watchCandidates() {
	live := m.living()
	if !m.changed && slices.Equal(live, m.live) {
		return
	}
	m.changed, m.live = false, live
	for _, t := range m.state.types {
		r := m.run(t)
		now := m.candidates(t, live)
		if slices.Equal(now, r.candidates) {
			continue
		}
		r.candidates, r.look = now, true
		r.passDue = protocol.CauseMembership
		for i := range r.wishes { // unordered: each gets the same
			w := r.wishes[i]
			w.notBefore = 0
			r.wishes[i] = w
		}
		r.wishDue = 0
	}
	m.eager()
}

// eager places all shards of an eager type once enough nodes are there, whether they host the type or not, and one that does is among them.
func (m *Machine) eager() {
	for _, t := range m.state.types {
		r := m.run(t)
		if !t.eager || r.placed || uint32(len(m.live)) < t.expect || len(r.candidates) == 0 {
			continue
		}
		r.placed = true
		for i, st := range t.state {
			if st == protocol.Unassigned {
				r.wish(uint32(i), protocol.CauseEager)
			}
		}
	}
}
