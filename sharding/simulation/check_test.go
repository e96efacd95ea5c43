package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

var (
	alice = sharding.Member{Node: "a", Incarnation: sharding.Incarnation{1}}
	bob   = sharding.Member{Node: "b", Incarnation: sharding.Incarnation{2}}
	carol = sharding.Member{Node: "c", Incarnation: sharding.Incarnation{3}}
	cart7 = ShardKey{"cart", 7}
)

func homed(owner sharding.Member, epoch sharding.Epoch, granted uint64) protocol.ShardRecord {
	return protocol.ShardRecord{Shard: 7, State: protocol.Homed, Owner: owner, Epoch: epoch, Granted: granted}
}

func in(s protocol.ShardState, r protocol.ShardRecord) protocol.ShardRecord {
	r.State = s
	return r
}

func to(target sharding.Member, r protocol.ShardRecord) protocol.ShardRecord {
	r.State, r.Target = protocol.Moving, target
	return r
}

func applied(index uint64, e *protocol.Entry, before, after protocol.ShardRecord) Applied {
	hosts := map[sharding.TypeName]bool{"cart": true}
	if e.Term == 0 {
		e.Term = 1
	}
	return Applied{
		Global: int64(index) * 1e9, Index: index, Term: 1, Entry: e, Changes: []Change{{cart7, before, after}},
		Members: map[sharding.Member]MemberView{alice: {Hosts: hosts}, bob: {Hosts: hosts}, carol: {Hosts: hosts, Draining: true}},
		Pins:    map[ShardKey]sharding.NodeID{},
	}
}

func homes() *protocol.Entry {
	return &protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{
		Type: "cart", Homes: []protocol.Home{{Shard: 7}, {Shard: 7, Epoch: 1}},
	}}
}

func fence(cause protocol.Cause) *protocol.Entry {
	return &protocol.Entry{Kind: protocol.KindFenceShards, FenceShards: &protocol.FenceShards{
		Type: "cart", Shards: []protocol.ShardEpoch{{Shard: 7, Epoch: 1}}, Cause: cause,
	}}
}

func release(cause protocol.Cause) *protocol.Entry {
	return &protocol.Entry{Kind: protocol.KindReleaseShards, ReleaseShards: &protocol.ReleaseShards{
		Type: "cart", Shards: []protocol.ShardEpoch{{Shard: 7, Epoch: 1}}, Cause: cause,
	}}
}

func completed(from sharding.Member, epoch sharding.Epoch) *protocol.Entry {
	return &protocol.Entry{Kind: protocol.KindCompleteHandOff, CompleteHandOff: &protocol.CompleteHandOff{Type: "cart", Shard: 7, Epoch: epoch, From: from}}
}

func plan(from sharding.Member, epoch sharding.Epoch, cause protocol.Cause) *protocol.Entry {
	return &protocol.Entry{Kind: protocol.KindPlanMoves, PlanMoves: &protocol.PlanMoves{
		Type: "cart", Decision: protocol.Decision{Cause: cause}, Moves: []protocol.Move{{Shard: 7, From: from, Epoch: epoch}},
	}}
}

func lapsed(m sharding.Member, term uint64) *protocol.Entry {
	return &protocol.Entry{Kind: protocol.KindDeregister, Term: term, Deregister: &protocol.Deregister{Member: m, Cause: protocol.CauseLapsed}}
}

func sent(seq, ask uint64) Submitted {
	return Submitted{Global: 20e9, Member: alice, Key: cart7, Command: protocol.Command{Client: alice.Incarnation, Seq: seq}, Entity: "x", Ask: ask, Wait: 3e9}
}

func begun(m sharding.Member, epoch sharding.Epoch, at sharding.Instant, seq uint64) Begun {
	return Begun{Global: 21e9, Member: m, At: at, Key: cart7, Epoch: epoch, Sender: alice, Seq: seq, Command: sent(seq, 0).Command, Entity: "x"}
}

func ackTo(m sharding.Member, at sharding.Instant, revision uint64) Acked {
	return Acked{m, &protocol.LeaseAck{SentAt: at, Revision: sharding.Revision{Index: revision}, TTL: 1}} // 1 ms
}

// TestCheckers feeds each checker a history that holds and ones that don't: the last fact alone must be what turns it red.
func TestCheckers(t *testing.T) {
	none := protocol.ShardRecord{Shard: 7}
	grant := applied(5, homes(), none, homed(alice, 1, 5))
	noRecheckPin := applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))
	noRecheckPin.Pins[cart7] = "a"
	reply := func(seq uint64, s protocol.Status, echo bool) Replied {
		return Replied{Member: alice, Command: sent(seq, seq).Command, Ask: seq, Status: s, Echo: echo, Global: 20e9 + 9e8}
	}
	otherStrategy := applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))
	otherStrategy.Strategy = 2
	otherTerm := applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))
	otherTerm.Term = 2
	grant2 := applied(20, homes(), none, homed(bob, 1, 20))
	moving := to(bob, homed(alice, 1, 5))
	carried, came := Carried{20e9, sent(1, 0).Command, alice, bob}, Came{21e9, sent(1, 0).Command, bob}
	gaveUp := func(reason string) Fact { return DeadLettered{21e9, bob, sent(1, 0).Command, reason} }
	ended := func(m sharding.Member, at int64) Fact { return Disturbed{Global: at, Kind: DisturbedProcess, A: m} }
	mine := [32]byte{7}
	decided := func(by [32]byte, cause protocol.Cause, inForce [32]byte) Applied {
		e := plan(alice, 1, cause)
		e.PlanMoves.Decision.Digest = by
		a := applied(9, e, homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))
		a.Digest = inForce
		return a
	}
	soon := sent(1, 1)
	soon.Wait = 1e9
	full := func(m sharding.Member, at int64) Fact { return Disturbed{Global: at, Kind: DisturbedBuffer, A: m} }
	overflowed := DeadLettered{35e9, bob, sent(1, 0).Command, "buffer_full"}
	stream := Disturbed{Global: 20e9, Kind: DisturbedStream, A: alice, B: bob, Data: true}
	for _, c := range []struct {
		name, invariant string
		history         []Fact
		want            string // "": holds
	}{
		{"a new owner", "I1", []Fact{begun(alice, 1, 0, 1), begun(bob, 2, 0, 2)}, ""},
		{"an old owner begins", "I1", []Fact{begun(bob, 2, 0, 1), begun(alice, 1, 0, 2)}, "after b@02000000 has begun one in epoch 2"},
		{"an old owner replies", "I1", []Fact{begun(bob, 2, 0, 1), Effected{Member: alice, Key: cart7, Epoch: 1}}, "a reply of cart/7 leaves"},
		{"two in one epoch", "I1", []Fact{begun(bob, 2, 0, 1), begun(alice, 2, 0, 2)}, "both serve"},

		{"a higher epoch", "I2", []Fact{grant, applied(6, homes(), none, homed(bob, 2, 6))}, ""},
		{"the same epoch again", "I2", []Fact{grant, applied(6, homes(), in(protocol.Unassigned, homed(alice, 1, 5)), homed(bob, 1, 6))}, "after epoch 1"},
		{"granted at another index", "I2", []Fact{applied(6, homes(), none, homed(bob, 1, 5))}, "granted at 5"},

		{"covered", "I3", []Fact{grant, ackTo(alice, 0, 5), begun(alice, 1, 999_999, 1)}, ""},
		{"not covered", "I3", []Fact{grant, ackTo(alice, 0, 4), begun(alice, 1, 10, 1)}, "no acknowledgement covers"},
		{"lapsed", "I3", []Fact{grant, ackTo(alice, 0, 5), begun(alice, 1, 1e6, 1)}, "lapsed"},
		{"fenced before the acknowledgement", "I3", []Fact{
			grant, applied(6, &protocol.Entry{}, homed(alice, 1, 5), in(protocol.Fenced, homed(alice, 1, 5))), ackTo(alice, 0, 6), begun(alice, 1, 10, 1),
		}, "no acknowledgement covers"},
		{"a late reply", "I3", []Fact{grant, ackTo(alice, 0, 5), Effected{alice, 2e6, cart7, 1}}, "lets a reply leave"},

		{"the leader orders", "I4", []Fact{Judged{alice, bob, bob, true, 3, protocol.FrameHandOff, 1}}, ""},
		{"a deposed leader orders", "I4", []Fact{
			Judged{alice, carol, carol, true, 4, protocol.FrameLeading, 1}, Judged{alice, bob, bob, true, 3, protocol.FrameHandOff, 1},
		}, "has seen term 4"},
		{"another than the leader", "I4", []Fact{Judged{alice, bob, carol, true, 3, protocol.FrameHandOff, 1}}, "led by c@"},
		{"no coordinator", "I4", []Fact{Judged{alice, bob, bob, false, 3, protocol.FrameHandOff, 1}}, "coordinator: false"},
		{"dropped", "I4", []Fact{Judged{alice, bob, carol, true, 3, protocol.FrameHandOff, 0}}, ""},

		{"after the barrier", "I5", []Fact{Elected{alice, 2}, Barriered{alice, 2, 0}, Acted{Member: alice, What: "send", Term: 2}}, ""},
		{"before any barrier", "I5", []Fact{Elected{alice, 2}, Acted{Member: alice, What: "ask"}}, "barrier that it passed is of term 0"},
		{"asks before this barrier", "I5", []Fact{Barriered{alice, 2, 0}, Acted{Member: alice, What: "ask", Leads: 4}}, "ask in term 4"},
		{"before this barrier", "I5", []Fact{Barriered{alice, 2, 0}, Elected{alice, 4}, Acted{Member: alice, What: "propose", Entry: &protocol.Entry{Term: 4}}}, "propose in term 4"},
		{"sends before this barrier", "I5", []Fact{Barriered{alice, 2, 0}, Elected{alice, 4}, Acted{Member: alice, What: "send", Term: 4}}, "send in term 4"},

		{"a move", "I6", []Fact{applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))}, ""},
		{"to itself", "I6", []Fact{applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(alice, homed(alice, 1, 5)))}, "to itself"},
		{"to a draining node", "I6", []Fact{applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(carol, homed(alice, 1, 5)))}, "draining"},
		{"to a stranger", "I6", []Fact{applied(9, plan(alice, 1, ""), homed(alice, 1, 5), to(sharding.Member{Node: "z"}, homed(alice, 1, 5)))}, "not registered"},
		{"a pinned shard", "I6", []Fact{noRecheckPin}, "pinned to a"},
		{"a foreign shard", "I6", []Fact{applied(9, plan(alice, 1, ""), homed(bob, 2, 5), to(alice, homed(bob, 2, 5)))}, "planned on a@"},
		{"a shard without a home", "I6", []Fact{applied(9, plan(alice, 1, ""), none, to(bob, homed(alice, 1, 5)))}, "while it is unassigned"},
		{"a busy shard", "I6", []Fact{applied(9, plan(alice, 1, ""), to(bob, homed(alice, 1, 5)), to(carol, homed(alice, 1, 5)))}, "is busy"},
		{"a second home", "I6", []Fact{applied(9, homes(), homed(alice, 1, 5), homed(bob, 2, 9))}, "gets a home while homed"},
		{"a home at a draining node", "I6", []Fact{applied(9, homes(), none, homed(carol, 1, 9))}, "is draining"},
		{"a home planned on another epoch", "I6", []Fact{applied(9, homes(), in(protocol.Unassigned, homed(none.Owner, 2, 5)), homed(bob, 3, 9))}, "does not name"},
		{"by another strategy", "I6", []Fact{otherStrategy}, "decided by strategy 0, and 2 is in force"},
		{"by a deposed leader", "I6", []Fact{otherTerm}, "of term 1 that was committed in term 2"},
		{"a completed move", "I6", []Fact{applied(9, completed(alice, 1), moving, homed(bob, 2, 9))}, ""},
		{"completed by another", "I6", []Fact{applied(9, completed(carol, 1), moving, homed(bob, 2, 9))}, "handed off by c@"},
		{"completed in another epoch", "I6", []Fact{applied(9, completed(alice, 2), moving, homed(bob, 2, 9))}, "does not name"},
		{"fenced in another epoch", "I6", []Fact{applied(9, fence(protocol.CauseTimeout), to(bob, homed(alice, 2, 5)), in(protocol.Fenced, homed(alice, 2, 5)))}, "does not name"},
		{"released in another epoch", "I6", []Fact{applied(9, release(protocol.CauseLapsed), in(protocol.Fenced, homed(alice, 2, 5)), in(protocol.Unassigned, none))}, "does not name"},

		{"waited", "I7", []Fact{Barriered{alice, 1, 0}, Acted{Member: alice, At: 1100, Entry: lapsed(bob, 1)}}, ""},
		{"came back and lapsed", "I7", []Fact{Barriered{alice, 1, 0}, RegisterReceived{alice, bob}, Acted{Member: alice, At: 10, Entry: lapsed(bob, 1)}}, ""},
		{"did not wait", "I7", []Fact{Barriered{alice, 1, 0}, Acted{Member: alice, At: 1099, Entry: lapsed(bob, 1)}}, "takes b@"},
		{"released and waited", "I7", []Fact{grant, Barriered{bob, 1, 0}, Acted{Member: bob, At: 1100, Entry: release(protocol.CauseLapsed)}}, ""},
		{"released and did not wait", "I7", []Fact{grant, Barriered{bob, 1, 0}, Acted{Member: bob, At: 1099, Entry: release(protocol.CauseLapsed)}}, "takes a@"},
		{"released by its owner's word", "I7", []Fact{grant, Barriered{bob, 1, 0}, Acted{Member: bob, At: 1, Entry: release(protocol.CauseStopped)}}, ""},

		{"later", "I8", []Fact{Advanced{alice, sharding.Revision{Index: 3}}, Advanced{alice, sharding.Revision{Index: 4}}}, ""},
		{"again", "I8", []Fact{Advanced{alice, sharding.Revision{Index: 3}}, Advanced{alice, sharding.Revision{Index: 3}}}, "goes from revision"},
		{"back in a new term", "I8", []Fact{Advanced{alice, sharding.Revision{Index: 3}}, Advanced{alice, sharding.Revision{Term: 9, Index: 2}}}, "goes from revision"},

		{"the same", "I9", []Fact{Digested{alice, 3, [32]byte{1}}, Digested{bob, 3, [32]byte{1}}, Digested{bob, 4, [32]byte{2}}}, ""},
		{"another", "I9", []Fact{Digested{alice, 3, [32]byte{1}}, Digested{bob, 3, [32]byte{2}}}, "at index 3 differ"},

		{"handed off", "I10", []Fact{
			HandOffTaken{alice, cart7, 1, true, true, false}, HandOffTaken{alice, cart7, 1, false, false, true}, Delivered{bob, cart7, 2, true},
		}, ""},
		{"twice", "I10", []Fact{HandOffTaken{alice, cart7, 1, true, true, false}, HandOffTaken{alice, cart7, 1, true, true, false}}, "twice"},
		{"foreign", "I10", []Fact{HandOffTaken{alice, cart7, 1, false, true, false}}, "does not own"},
		{"unanswered", "I10", []Fact{HandOffTaken{alice, cart7, 1, false, false, false}}, "does not answer"},
		{"delivered where nothing runs", "I10", []Fact{Delivered{alice, cart7, 1, false}}, "does not run there"},

		{"begun once", "I11", []Fact{sent(1, 0), begun(bob, 1, 0, 1), Ended{}}, ""},
		{"doubled", "I11", []Fact{sent(1, 0), begun(bob, 1, 0, 1), begun(carol, 2, 0, 1)}, "has begun before"},
		{"lost", "I11", []Fact{grant, sent(1, 0), Ended{}}, "since it was with a@"},
		{"lost where it came", "I11", []Fact{sent(1, 0), carried, came, stream, ended(alice, 22e9), Ended{}}, "since it was with b@"},
		{"lost where it came with that process", "I11", []Fact{sent(1, 0), carried, came, ended(bob, 22e9), Ended{}}, ""},
		{"lost on the way", "I11", []Fact{sent(1, 0), carried, ended(carol, 21e9), Ended{}}, "sent it to b@"},
		{"lost on the way to a dead process", "I11", []Fact{sent(1, 0), carried, ended(bob, 21e9), Ended{}}, ""},
		{"lost with a stream that broke long after", "I11", []Fact{sent(1, 0), carried, Disturbed{Global: 26e9, Kind: DisturbedStream, A: alice, B: bob, Data: true}, Ended{}}, "sent it to b@"},
		{"an ask of a dead asker", "I11", []Fact{sent(1, 1), carried, came, ended(alice, 22e9), Ended{}}, ""},
		{"given up", "I11", []Fact{grant, sent(1, 0), gaveUp("hops"), Ended{}}, "dead letter: hops"},
		{"given up without a stream", "I11", []Fact{applied(5, homes(), none, homed(bob, 1, 5)), stream, sent(1, 0), gaveUp(reasonNoStream), Ended{}}, ""},
		{"given up with a stream", "I11", []Fact{grant, sent(1, 0), applied(21, release(""), in(protocol.Fenced, homed(alice, 1, 5)), in(protocol.Fenced, homed(alice, 1, 5))), gaveUp(reasonNoStream), Ended{}}, "no stream"},
		{"taken with its shard", "I11", []Fact{grant, sent(1, 0), applied(20, fence(""), homed(alice, 1, 5), in(protocol.Fenced, homed(alice, 1, 5))), gaveUp(reasonTaken), Ended{}}, ""},
		{"taken, and its shard was not", "I11", []Fact{grant, ended(alice, 20e9), sent(1, 0), gaveUp(reasonTaken), Ended{}}, "was taken"},
		{"moved as often as hops are allowed", "I11", append(slices.Repeat([]Fact{grant2}, protocol.MaxHops), sent(1, 0), gaveUp("hops"), Ended{}), ""},
		{"moved less often", "I11", append(slices.Repeat([]Fact{grant2}, protocol.MaxHops-1), sent(1, 0), gaveUp("hops"), Ended{}), "dead letter: hops"},
		{"given up before what would excuse it", "I11", []Fact{grant, sent(1, 0), gaveUp("hops"), ended(alice, 22e9), Ended{}}, "dead letter: hops"},
		{"a full buffer after a long wait for a home", "I11", []Fact{sent(1, 0), applied(34, homes(), none, homed(bob, 1, 34)), full(bob, 35e9), overflowed, Ended{}}, ""},
		{"another's buffer was full", "I11", []Fact{sent(1, 0), applied(34, homes(), none, homed(bob, 1, 34)), full(carol, 35e9), overflowed, Ended{}}, "buffer_full"},
		{"given up before a buffer was full", "I11", []Fact{sent(1, 0), applied(34, homes(), none, homed(bob, 1, 34)), overflowed, full(bob, 36e9), Ended{}}, "buffer_full"},
		{"refused", "I11", []Fact{grant, sent(1, 1), reply(1, protocol.StatusUnavailable, true), Ended{}}, "reply with status 2"},
		{"refused at its deadline", "I11", []Fact{grant, soon, reply(1, protocol.StatusUnavailable, true), Ended{}}, ""},
		{"lost with its stream", "I11", []Fact{stream, sent(1, 0), carried, Ended{}}, ""},
		{"another stream broke", "I11", []Fact{stream, sent(1, 0), Carried{20e9, sent(1, 0).Command, alice, carol}, Ended{}}, "never began"},
		{"lost with a dead process", "I11", []Fact{grant, sent(1, 0), Disturbed{Global: 21e9, Kind: DisturbedProcess, A: alice}, Ended{}}, ""},
		{"another process died", "I11", []Fact{grant, sent(1, 0), Disturbed{Global: 21e9, Kind: DisturbedProcess, A: bob}, Ended{}}, "never began"},
		{"lost long before", "I11", []Fact{grant, Disturbed{Global: 1e9, Kind: DisturbedProcess, A: alice}, sent(1, 0), Ended{}}, "never began"},

		{"in order", "I12", []Fact{begun(bob, 1, 0, 1), begun(bob, 1, 0, 4)}, ""},
		{"out of order", "I12", []Fact{begun(bob, 1, 0, 4), begun(carol, 2, 0, 3)}, "after number 4"},

		{"answered", "I13", []Fact{sent(1, 1), begun(bob, 1, 0, 1), reply(1, protocol.StatusOK, true), Ended{}}, ""},
		{"unavailable, and begun before", "I13", []Fact{sent(1, 1), begun(bob, 1, 0, 1), reply(1, protocol.StatusUnavailable, true)}, "has begun it"},
		{"unavailable, and begun after", "I13", []Fact{sent(1, 1), reply(1, protocol.StatusUnavailable, true), begun(bob, 1, 0, 1)}, "Unavailable before"},
		{"answered by nobody", "I13", []Fact{sent(1, 1), reply(1, protocol.StatusOK, true)}, "no entity has begun it"},
		{"answered twice", "I13", []Fact{sent(1, 1), begun(bob, 1, 0, 1), reply(1, protocol.StatusOK, true), reply(1, protocol.StatusOK, true)}, "second reply"},
		{"another's answer", "I13", []Fact{sent(1, 1), begun(bob, 1, 0, 1), reply(1, protocol.StatusOK, false)}, "reply of another"},
		{"never ended", "I13", []Fact{sent(1, 1), Ended{}}, "has not ended"},
		{"timed out", "I13", []Fact{sent(1, 1), Expired{Member: alice, Command: sent(1, 1).Command}, Ended{}}, ""},

		{"within", "I14", []Fact{Buffered{alice, "cart", 3, 30, 3, 30}}, ""},
		{"too many", "I14", []Fact{Buffered{alice, "cart", 4, 30, 3, 30}}, "holds 4 messages"},
		{"too large", "I14", []Fact{Buffered{alice, "cart", 3, 31, 3, 30}}, "31 bytes"},

		{"served", "I15", []Fact{Probed{"I15", true, ""}, Probed{"I17", false, "other"}}, ""},
		{"not served", "I15", []Fact{Probed{"I15", false, "cart/7"}}, "cart/7"},
		{"held up", "I17", []Fact{Probed{"I17", false, "cart/7"}}, "cart/7"},

		{"lapsed and dead", "I16", []Fact{
			Disturbed{Kind: DisturbedProcess, A: alice}, applied(9, lapsed(alice, 1), homed(alice, 1, 5), in(protocol.Unassigned, none)),
		}, ""},
		{"cut off from the leader", "I16", []Fact{
			Elected{carol, 1}, Disturbed{Global: 8e9, Kind: DisturbedMember, A: alice, B: carol},
			applied(9, lapsed(alice, 1), homed(alice, 1, 5), in(protocol.Unassigned, none)),
		}, ""},
		{"cut off from another", "I16", []Fact{
			Elected{carol, 1}, Disturbed{Global: 8e9, Kind: DisturbedMember, A: alice, B: bob},
			applied(9, lapsed(alice, 1), homed(alice, 1, 5), in(protocol.Unassigned, none)),
		}, "neither stopped nor cut off"},
		{"cut off long ago", "I16", []Fact{
			Elected{carol, 1}, Disturbed{Global: 1e9, Kind: DisturbedMember, A: alice, B: carol},
			applied(9, lapsed(alice, 1), homed(alice, 1, 5), in(protocol.Unassigned, none)),
		}, "neither stopped nor cut off"},
		{"moved by a drain", "I16", []Fact{applied(9, plan(alice, 1, protocol.CauseDrain), homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))}, ""},
		{"moved by nobody", "I16", []Fact{applied(9, plan(alice, 1, protocol.CauseInterval), homed(alice, 1, 5), to(bob, homed(alice, 1, 5)))}, "no pass"},
		{"taken by a grant", "I16", []Fact{applied(9, homes(), homed(alice, 1, 5), homed(bob, 2, 9))}, "it had a home"},
		{"fenced after a time-out", "I16", []Fact{
			applied(6, plan(alice, 1, protocol.CauseDrain), homed(alice, 1, 5), moving), applied(8, fence(protocol.CauseTimeout), moving, in(protocol.Fenced, moving)),
		}, ""},
		{"fenced too soon", "I16", []Fact{
			applied(7, plan(alice, 1, protocol.CauseDrain), homed(alice, 1, 5), moving), applied(8, fence(protocol.CauseTimeout), moving, in(protocol.Fenced, moving)),
		}, "no handoff has timed out"},
		{"fenced while at home", "I16", []Fact{applied(8, fence(protocol.CauseTimeout), homed(alice, 1, 5), in(protocol.Fenced, homed(alice, 1, 5)))}, "no handoff has timed out"},
		{"fenced without a cause", "I16", []Fact{applied(8, fence(""), homed(alice, 1, 5), in(protocol.Fenced, homed(alice, 1, 5)))}, "cause"},
		{"moved by a lease", "I16", []Fact{applied(9, &protocol.Entry{Kind: protocol.KindGrantLeases}, homed(alice, 1, 5), homed(bob, 2, 9))}, "move nothing"},

		{"a majority has it", "I18", []Fact{Activated{Index: 5, Type: "cart", Digest: mine, Chosen: true, Have: 2, Servers: 3}}, ""},
		{"one has it", "I18", []Fact{Activated{Index: 5, Type: "cart", Digest: mine, Chosen: true, Have: 1, Servers: 3}}, "1 of 3 servers"},
		{"half of them have the shadow", "I18", []Fact{Activated{Index: 5, Type: "cart", Digest: mine, Shadow: true, Chosen: true, Have: 2, Servers: 4}}, "shadow: true"},
		{"a failure brings it back", "I18", []Fact{Activated{Index: 5, Type: "cart", Digest: mine, Have: 1, Servers: 3}}, ""},

		{"in force", "I19", []Fact{Acted{Member: alice, Entry: decided(mine, "", mine).Entry, Ready: true}, decided(mine, protocol.CauseRebalance, mine)}, ""},
		{"a shadow decides", "I19", []Fact{decided(mine, protocol.CauseRebalance, [32]byte{8})}, "follows from module 07000000, and 08000000 is in force"},
		{"hash moves a shard", "I19", []Fact{decided([32]byte{}, protocol.CauseRebalance, mine)}, "no strategy has asked"},
		{"hash empties a node", "I19", []Fact{decided([32]byte{}, protocol.CauseDrain, mine)}, ""},
		{"not ready", "I19", []Fact{Acted{Member: alice, Entry: decided(mine, "", mine).Entry}}, "not ready there"},

		{"all alike", "I20", []Fact{Settled{Server: alice, Type: "cart", Strategy: mine, Leads: true, Ready: true}, Settled{Server: bob, Type: "cart", Strategy: mine}, Settled{Server: bob, Type: "user"}}, ""},
		{"another strategy", "I20", []Fact{Settled{Server: alice, Type: "cart", Strategy: mine}, Settled{Server: bob, Type: "cart"}}, "b@02000000 has 00000000"},
		{"another shadow", "I20", []Fact{Settled{Server: alice, Type: "cart", Strategy: mine}, Settled{Server: bob, Type: "cart", Strategy: mine, Shadow: mine}}, "and 07000000"},
		{"the leader is not ready", "I20", []Fact{Settled{Server: alice, Type: "cart", Strategy: mine, Leads: true}}, "has not made the strategy"},
	} {
		t.Run(c.invariant+"/"+c.name, func(t *testing.T) {
			for _, checker := range Checkers(Bounds{HandOff: 2e9, LeaseTTL: 1000, Memory: 4e9, Lag: 1e9}) {
				if name, _, _ := strings.Cut(checker.Name(), " "); name != c.invariant {
					continue
				}
				for i, f := range c.history {
					err := checker.Observe(f)
					last := i == len(c.history)-1
					switch {
					case err != nil && (!last || c.want == ""):
						t.Fatalf("fact %d: %v", i, err)
					case last && c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
						t.Fatalf("got %v, want an error with %q", err, c.want)
					}
				}
				return
			}
			t.Fatalf("no checker of %s", c.invariant)
		})
	}
}
