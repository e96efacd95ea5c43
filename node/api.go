package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/droverhq/drover/internal/builtin"
	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// api is what HTTP sees of the node.
type api struct{ n *Node }

var _ httpapi.Node = api{}

// Ask implements httpapi.Node, as do the following.
func (a api) Ask(ctx context.Context, m httpapi.Message) ([]byte, error) {
	reply, err := a.n.data.Ask(ctx, m.Type, m.Entity, m.Payload, m.Command)
	if errors.Is(err, sharding.ErrBadMessage) {
		if t, ok := a.n.cfg.Type(string(m.Type)); ok && t.Entity == builtin.Counter { // whoever tries Drover out has no documentation of its messages but this
			err = &httpapi.Problem{Kind: httpapi.KindBadMessage, Detail: err.Error(), Hint: `a counter takes {"add":n} and {"get":true}; another message needs another Idempotency-Key`}
		}
	}
	return reply, err
}

func (a api) Tell(m httpapi.Message) error {
	return a.n.data.Tell(m.Type, m.Entity, m.Payload, m.Command)
}

func (a api) Members(ctx context.Context) (httpapi.MembersView, error) {
	n := a.n
	states := n.memberStates()
	owned := map[sharding.Member]int{}
	for _, t := range n.data.Types() {
		shards, _, _ := n.data.Map(t)
		for _, s := range shards {
			owned[s.Owner]++
		}
	}
	var leader sharding.Member
	if power := n.data.Authority(); power.Leads(now()) {
		leader = power.Leader
	}
	e := n.electorate(ctx)
	view := httpapi.MembersView{Members: []httpapi.MemberView{}, Paused: e.Paused}
	for _, m := range n.memberList() {
		id := m.Identity()
		v := httpapi.MemberView{Name: m.Name, Address: m.Transport, Incarnation: m.Incarnation, Roles: m.Roles, Zone: m.Zone, Version: m.Version,
			Leader: id == leader, Voter: e.votes(m.Server), Shards: owned[id], State: states(m)}
		if v.Roles == nil {
			v.Roles = []string{}
		}
		view.Members = append(view.Members, v)
	}
	return view, nil
}

// memberStates tells the state of each member. Who is only in gossip, where anybody may be who has its key, is not up before the coordinator has
// registered it.
func (n *Node) memberStates() func(cluster.Member) httpapi.MemberState {
	registered := map[sharding.Member]protocol.MemberRecord{}
	for _, r := range n.data.Members() {
		registered[r.Member] = r
	}
	_, informed := registered[n.self] // else this node's own list may be old, or none
	return func(m cluster.Member) httpapi.MemberState {
		record, known := registered[m.Identity()]
		switch {
		case m.Status == cluster.Left || m.Status == cluster.Leaving:
			return httpapi.MemberLeft
		case m.Status == cluster.Failed:
			return httpapi.MemberFailed
		case !known && (informed || m.Identity() == n.self):
			return httpapi.MemberJoining
		case record.Draining:
			return httpapi.MemberDraining
		}
		return httpapi.MemberUp
	}
}

func (a api) Leader() (httpapi.LeaderView, bool) {
	power := a.n.data.Authority()
	if !power.Leads(now()) {
		return httpapi.LeaderView{}, false
	}
	leader, term := power.Leader, power.Term
	v := httpapi.LeaderView{Name: leader.Node, Term: term}
	for _, m := range a.n.memberList() {
		if m.Identity() == leader {
			v.Address = m.Transport
		}
	}
	return v, true
}

func (a api) Types() []sharding.TypeName {
	types := a.n.data.Types()
	for _, t := range a.n.cfg.Types {
		types = append(types, sharding.TypeName(t.Name))
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// statsPatience is how long a region may take to tell its entities; then the answer is partial (spec 2.5).
const statsPatience = time.Second

func (a api) Shards(ctx context.Context, t sharding.TypeName) (httpapi.ShardsView, error) {
	n := a.n
	if n.stopping.Load() {
		return httpapi.ShardsView{}, &httpapi.Problem{Kind: httpapi.KindLeft, Detail: "this node is leaving the cluster: its map is old"}
	}
	shards, numShards, rev := n.data.Map(t)
	if numShards == 0 {
		p := &httpapi.Problem{Kind: httpapi.KindUnknownType, Detail: fmt.Sprintf("the cluster knows no type %q yet", t)}
		for _, k := range a.Types() {
			p.Known = append(p.Known, string(k))
		}
		return httpapi.ShardsView{}, p
	}
	view := httpapi.ShardsView{Type: t, Revision: rev, NumShards: numShards, Shards: []httpapi.ShardView{}, Regions: []httpapi.RegionView{}}
	var hosts []sharding.Member
	members := n.data.Members()
	for _, m := range members {
		if slices.Contains(m.Hosts, t) {
			hosts = append(hosts, m.Member)
		}
	}
	stats := n.shardStats(ctx, t, hosts)
	owned := map[sharding.Member]int{}
	for _, s := range shards {
		owned[s.Owner]++
		v := httpapi.ShardView{Shard: s.Shard, Node: s.Owner.Node, Incarnation: s.Owner.Incarnation, Epoch: s.Epoch, State: s.State.String(), Local: s.Owner == n.self}
		if of, answered := stats[s.Owner]; answered {
			count := 0
			if st, ok := of[s.Shard]; ok && st.Epoch == s.Epoch {
				count, v.Resident = st.Entities, true
			}
			v.Entities = &count
		} else {
			v.Stale = true
		}
		view.Shards = append(view.Shards, v)
	}
	left, states := map[sharding.Member]bool{}, n.memberStates()
	for _, m := range n.memberList() {
		left[m.Identity()] = states(m) == httpapi.MemberLeft
	}
	for _, m := range members {
		if left[m.Member] && owned[m.Member] == 0 { // its region is on the way out
			continue
		}
		isProxy := slices.Contains(m.Proxies, t)
		if !isProxy && !slices.Contains(m.Hosts, t) {
			continue
		}
		r := httpapi.RegionView{Node: m.Member.Node, Incarnation: m.Member.Incarnation, Proxy: isProxy, Shards: owned[m.Member]}
		if of, answered := stats[m.Member]; answered {
			count := 0
			for _, st := range of {
				count += st.Entities
			}
			r.Entities = &count
		} else {
			r.Stale = !isProxy
		}
		view.Regions = append(view.Regions, r)
	}
	slices.SortFunc(view.Regions, func(x, y httpapi.RegionView) int { return cmp.Compare(x.Node, y.Node) })
	return view, nil
}

// shardStats asks every host of a type what runs there; one that does not answer in time is left out.
func (n *Node) shardStats(ctx context.Context, t sharding.TypeName, hosts []sharding.Member) map[sharding.Member]map[sharding.ShardID]shardStats {
	ctx, cancel := context.WithTimeout(ctx, statsPatience)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[sharding.Member]map[sharding.ShardID]shardStats{}
	for _, m := range hosts {
		wg.Go(func() {
			body, err := n.callMember(ctx, m, callShardStats, []byte(t))
			var list []shardStats
			if err == nil {
				err = callDecoding.Unmarshal(body, &list)
			}
			if err != nil {
				n.log.Debug("a region did not tell its shards", "of", m, "error", err)
				return
			}
			byID := make(map[sharding.ShardID]shardStats, len(list))
			for _, s := range list {
				byID[s.Shard] = s
			}
			mu.Lock()
			out[m] = byID
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func (a api) Strategies(ctx context.Context) (httpapi.StrategiesView, error) {
	all, err := a.n.strategies(ctx)
	if err != nil {
		return httpapi.StrategiesView{}, err
	}
	view := httpapi.StrategiesView{Strategies: []httpapi.StrategyView{}}
	for _, r := range all {
		view.Strategies = append(view.Strategies, viewOf(r))
	}
	return view, nil
}

func viewOf(r strategyRecord) httpapi.StrategyView {
	v := httpapi.StrategyView{Type: r.Type, Name: r.Name, Source: sourceOf(r.Spec.Source, r.Spec.Digest), State: httpapi.StrategyState(r.State), Calls: r.Calls, Failures: r.Failures,
		Fuel: httpapi.FuelView{Last: r.LastFuel, P99: r.P99Fuel, Limit: r.Spec.Fuel}, Time: httpapi.TimeView{Last: r.LastMicros, P99: r.P99Micros}}
	v.Digest, v.Worked, v.Shadow = digestText(r.Spec.Digest), r.Worked, shadowView(r.Shadow)
	if f := r.Failure; f != nil {
		v.LastFailure = failureView(f)
	}
	if p := r.Previous; p.Digest != [32]byte{} {
		v.Previous = &httpapi.PreviousView{Digest: digestText(p.Digest), Source: sourceOf(p.Source, p.Digest)}
	}
	return v
}

func failureView(f *strategyFailure) *httpapi.FailureView {
	return &httpapi.FailureView{Digest: digestText(f.Digest), Source: sourceOf(f.Source, f.Digest), Verdict: f.Verdict, Text: strings.ToValidUTF8(string(f.Detail), "\ufffd")}
}

func (a api) Swap(ctx context.Context, r httpapi.SwapRequest) (httpapi.SwapView, error) {
	warnings, err := a.n.swap(ctx, r)
	if err != nil {
		return httpapi.SwapView{}, err
	}
	rec, err := a.n.strategyOf(ctx, r.Type)
	return httpapi.SwapView{StrategyView: viewOf(rec), Warnings: warnings}, err
}

func (a api) operate(ctx context.Context, op operation) error {
	body, err := cbor.Marshal(op)
	if err != nil {
		return err
	}
	_, err = a.n.callLeader(ctx, callOperate, body)
	return err
}

func (a api) Drain(ctx context.Context, node sharding.NodeID, on bool) error {
	if node == "" {
		node = a.n.self.Node
	}
	return a.operate(ctx, operation{Op: opDrain, Node: node, On: on})
}

func (a api) Leave(ctx context.Context) error {
	// Who asks may go away; half a leave helps nobody.
	if err := a.n.leaveRaft(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	a.n.leaveOne.Do(func() { close(a.n.leave) })
	return nil
}

func (a api) Forget(ctx context.Context, node sharding.NodeID) error {
	return a.operate(ctx, operation{Op: opForget, Node: node})
}

func (a api) Pause(ctx context.Context, on bool) error {
	return a.operate(ctx, operation{Op: opPause, On: on})
}

func (a api) MoveShard(ctx context.Context, t sharding.TypeName, s sharding.ShardID, to sharding.NodeID) error {
	return a.operate(ctx, operation{Op: opMove, Type: t, Shard: s, Node: to})
}

func (a api) PinShard(ctx context.Context, t sharding.TypeName, s sharding.ShardID, node sharding.NodeID) error {
	return a.operate(ctx, operation{Op: opPin, Type: t, Shard: s, Node: node})
}

// explanation is what the leader knows of a shard.
type explanation struct {
	Record   protocol.ShardRecord `cbor:"0,keyasint"`
	Decision protocol.Decision    `cbor:"1,keyasint"`
	Reason   string               `cbor:"2,keyasint"`
	Pin      sharding.NodeID      `cbor:"3,keyasint"`
	// Strategy is the source of the one that decided, where it is in force or among those that were before.
	Strategy string `cbor:"4,keyasint,omitempty"`
}

// sourceOfDecision finds by its digest where the strategy that decided is from; empty: it is no longer known.
func sourceOfDecision(d [32]byte, v coordinator.StrategyView) string {
	if d == ([32]byte{}) {
		return ""
	}
	for _, s := range append([]protocol.StrategySpec{v.Spec, v.Failed, v.Shadow.Spec}, v.Good...) {
		if s.Digest == d {
			return s.Source
		}
	}
	if s := sourceOf("sha256:", d); s != "sha256:" { // one that this program carries
		return s
	}
	return ""
}

func (n *Node) serveExplain(ts typeShard) ([]byte, error) {
	if !n.leads() {
		return nil, errNotLeader
	}
	var e explanation
	var shards uint32
	var known, inRange bool
	n.plane.View(func() {
		s := n.machine.State()
		if shards, known = s.NumShards(ts.Type); !known {
			return
		}
		x, ok := s.Explain(ts.Type, ts.Shard)
		inRange = ok
		v, _ := s.Strategy(ts.Type)
		e = explanation{x.Record, x.Decision, cmp.Or(x.Reason, x.Decision.Reason), x.Pin, sourceOfDecision(x.Decision.Digest, v)}
	})
	switch {
	case !known:
		return nil, &httpapi.Problem{Kind: httpapi.KindUnknownType, Detail: fmt.Sprintf("the cluster has no type %q", ts.Type)}
	case !inRange:
		return nil, &httpapi.Problem{Kind: httpapi.KindUnknownShard, Detail: fmt.Sprintf("type %q has the shards 0 to %d", ts.Type, shards-1)}
	}
	return cbor.Marshal(e)
}

func (a api) Explain(ctx context.Context, t sharding.TypeName, s sharding.ShardID) (httpapi.ExplainView, error) {
	body, err := cbor.Marshal(typeShard{t, s})
	if err != nil {
		return httpapi.ExplainView{}, err
	}
	out, err := a.n.callLeader(ctx, callExplain, body)
	if err != nil {
		return httpapi.ExplainView{}, err
	}
	var e explanation
	if err := callDecoding.Unmarshal(out, &e); err != nil {
		return httpapi.ExplainView{}, fmt.Errorf("explain: %w", err)
	}
	v := httpapi.ExplainView{Type: t, Shard: s, Node: e.Record.Owner.Node, Epoch: e.Record.Epoch, State: e.Record.State.String(), Pinned: e.Pin,
		Cause: e.Decision.Cause, Reason: e.Reason, Verdict: e.Decision.Verdict}
	v.Digest, v.Record = digestText(e.Decision.Digest), digestText(e.Decision.Record)
	v.Strategy, v.Pass = sourceOf(e.Strategy, e.Decision.Digest), e.Decision.Pass
	return v, nil
}

func (a api) Ready() httpapi.ReadyView {
	n := a.n
	power, at := n.data.Authority(), now()
	var disk error
	if n.plane != nil {
		disk = n.plane.Fault()
	}
	conditions := []httpapi.Condition{
		{Name: "joined", OK: !n.dir.Cluster().IsZero(), Why: "no coordinator has taken this node into a cluster yet"},
		{Name: "leader", OK: power.Leads(at), Why: silence(power, at)},
		{Name: "regions", OK: power.Registered, Why: "the coordinator has not acknowledged this node's regions yet"},
		{Name: "lease", OK: at < power.LeaseUntil, Why: lapse(power, at)},
		{Name: "disk", OK: disk == nil, Why: fmt.Sprint(disk)},
		{Name: "serving", OK: !n.stopping.Load(), Why: "the node is stopping"},
	}
	view := httpapi.ReadyView{Ready: true}
	for _, c := range conditions {
		if c.OK {
			c.Why = ""
		} else {
			view.Ready = false
		}
		view.Conditions = append(view.Conditions, c)
	}
	return view
}

// silence says since when no coordinator has shown that it leads.
func silence(a region.Authority, at sharding.Instant) string {
	if a.Heard == 0 {
		return "no coordinator has been heard from yet: is a majority of the voters up?"
	}
	return fmt.Sprintf("no coordinator has acknowledged this node for %s: is a majority of the voters up?", at.Sub(a.Heard).Round(time.Second))
}

// lapse says since when this node's shards are suspended.
func lapse(a region.Authority, at sharding.Instant) string {
	if a.LeaseUntil == 0 {
		return "no coordinator has given this node a lease yet"
	}
	return fmt.Sprintf("this node's lease lapsed %s ago: its shards are suspended until a coordinator renews it", at.Sub(a.LeaseUntil).Round(100*time.Millisecond))
}

func (a api) DeadLetters() httpapi.DeadLettersView {
	list, total := a.n.data.DeadLetters().List()
	view := httpapi.DeadLettersView{Total: total, Letters: make([]httpapi.DeadLetterView, 0, len(list))}
	for _, l := range slices.Backward(list) {
		view.Letters = append(view.Letters, httpapi.DeadLetterView{Time: l.At.UTC().Format(time.RFC3339Nano), Type: l.Type, Shard: l.Shard,
			Entity: l.Entity, Reason: l.Reason, Bytes: l.Bytes})
	}
	return view
}

func (a api) Metrics() prometheus.Gatherer { return a.n.metrics.registry }
