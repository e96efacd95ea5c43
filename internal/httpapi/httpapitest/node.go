// Package httpapitest is a node for tests of what speaks HTTP: a counter type over a map, and a small cluster that never changes by
// itself. It imports nothing of a real node.
package httpapitest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

// Node is an httpapi.Node. Set its fields before it is used.
type Node struct {
	// Err, where set, ends every method that can fail.
	Err error
	// OnAsk, where set, answers asks. Otherwise {"add":n} and {"get":true} count, an id at a time, for the type counter.
	OnAsk func(ctx context.Context, m httpapi.Message) ([]byte, error)
	// Known are the types; default counter alone.
	Known []sharding.TypeName
	// SwapView, where set, answers swaps.
	SwapView *httpapi.SwapView
	// OnStrategies, where set, gives the strategies.
	OnStrategies func() httpapi.StrategiesView
	// NoLeader and NotReady take them away.
	NoLeader, NotReady bool

	mu     sync.Mutex
	counts map[string]int64
	calls  []string
	told   []httpapi.Message
	swaps  []httpapi.SwapRequest
	shadow *httpapi.ShadowView
}

var _ httpapi.Node = (*Node)(nil)

// Calls lists the operator's calls so far, one text each, such as "drain b true".
func (n *Node) Calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// Told lists the messages that were told or asked.
func (n *Node) Told() []httpapi.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told)
}

// Swaps lists the swaps asked for.
func (n *Node) Swaps() []httpapi.SwapRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.swaps)
}

func (n *Node) note(format string, args ...any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf(format, args...))
	return n.Err
}

// Ask implements httpapi.Entities.
func (n *Node) Ask(ctx context.Context, m httpapi.Message) ([]byte, error) {
	if err := n.Tell(m); err != nil {
		return nil, err
	}
	if n.OnAsk != nil {
		return n.OnAsk(ctx, m)
	}
	var body struct {
		Add *int64
		Get *bool
	}
	d := json.NewDecoder(strings.NewReader(string(m.Payload[1:])))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return nil, fmt.Errorf("%w: %w", sharding.ErrBadMessage, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts == nil {
		n.counts = map[string]int64{}
	}
	if body.Add != nil {
		if v := n.counts[m.Entity]; *body.Add > 0 && v > math.MaxInt64-*body.Add {
			return nil, &sharding.EntityError{Text: fmt.Sprintf("%d + %d overflows int64", v, *body.Add)}
		}
		n.counts[m.Entity] += *body.Add
	}
	return fmt.Appendf([]byte{byte(sharding.FormatJSON)}, `{"value":%d}`, n.counts[m.Entity]), nil
}

// Tell implements httpapi.Entities.
func (n *Node) Tell(m httpapi.Message) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, m)
	if n.Err != nil {
		return n.Err
	}
	if !slices.Contains(n.types(), m.Type) {
		return fmt.Errorf("%w: %s", sharding.ErrNoType, m.Type)
	}
	return nil
}

func incarnation(b byte) sharding.Incarnation {
	var i sharding.Incarnation
	for k := range i {
		i[k] = b
	}
	return i
}

func (n *Node) types() []sharding.TypeName {
	if n.Known == nil {
		return []sharding.TypeName{"counter"}
	}
	return n.Known
}

// Types implements httpapi.Cluster.
func (n *Node) Types() []sharding.TypeName { return n.types() }

// Members implements httpapi.Cluster: a leads, b is up, c failed.
func (n *Node) Members(context.Context) (httpapi.MembersView, error) {
	roles := []string{"coordinator", "compute"}
	return httpapi.MembersView{Members: []httpapi.MemberView{
		{Name: "a", Address: "127.0.0.1:7947", Incarnation: incarnation(0xaa), State: httpapi.MemberUp, Roles: roles, Zone: "z1", Version: "v1.2.3", Leader: true, Voter: true, Shards: 2},
		{Name: "b", Address: "127.0.0.1:8947", Incarnation: incarnation(0xbb), State: httpapi.MemberDraining, Roles: roles, Version: "v1.2.3", Voter: true, Shards: 1},
		{Name: "c", Address: "127.0.0.1:9947", Incarnation: incarnation(0xcc), State: httpapi.MemberFailed},
	}, Paused: n.paused()}, n.Err
}

// Leader implements httpapi.Cluster.
func (n *Node) Leader() (httpapi.LeaderView, bool) {
	return httpapi.LeaderView{Name: "a", Address: "127.0.0.1:7947", Term: 3}, !n.NoLeader
}

// Shards implements httpapi.Cluster: two shards on a, and one on b, which does not answer.
func (n *Node) Shards(_ context.Context, t sharding.TypeName) (httpapi.ShardsView, error) {
	two, one, three := 2, 1, 3
	return httpapi.ShardsView{
		Type: t, Revision: sharding.Revision{Term: 3, Index: 120}, NumShards: 4,
		Shards: []httpapi.ShardView{
			{Shard: 0, Node: "a", Incarnation: incarnation(0xaa), Epoch: 1, State: "homed", Entities: &two, Resident: true, Local: true},
			{Shard: 1, Node: "a", Incarnation: incarnation(0xaa), Epoch: 7, State: "moving", Entities: &one, Resident: true, Local: true},
			{Shard: 3, Node: "b", Incarnation: incarnation(0xbb), Epoch: 2, State: "homed", Stale: true},
		},
		Regions: []httpapi.RegionView{
			{Node: "a", Incarnation: incarnation(0xaa), Shards: 2, Entities: &three},
			{Node: "b", Incarnation: incarnation(0xbb), Shards: 1, Stale: true},
		},
	}, n.Err
}

// Explain implements httpapi.Cluster.
func (n *Node) Explain(_ context.Context, t sharding.TypeName, s sharding.ShardID) (httpapi.ExplainView, error) {
	if s >= 4 {
		return httpapi.ExplainView{}, &httpapi.Problem{Kind: httpapi.KindUnknownShard, Detail: fmt.Sprintf("%s has shards 0 to 3", t)}
	}
	return httpapi.ExplainView{Type: t, Shard: s, Node: "a", Epoch: 7, State: "homed", Cause: "rebalance", Reason: "fewest shards", Verdict: "ok"}, n.Err
}

// Strategies implements httpapi.Strategies.
func (n *Node) Strategies(context.Context) (httpapi.StrategiesView, error) {
	if n.OnStrategies != nil {
		return n.OnStrategies(), n.Err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v := strategy("counter", [32]byte{1}, "builtin:leastshard")
	v.Shadow = n.shadow
	return httpapi.StrategiesView{Strategies: []httpapi.StrategyView{v}}, n.Err
}

// Shadow is what a shadow looks like that has differed.
func Shadow(digest [32]byte, source string) *httpapi.ShadowView {
	fuel, p99, micros, since := uint64(40_500), uint64(41_000), uint64(210), "2026-12-01T10:02:03Z"
	return &httpapi.ShadowView{Name: "mine", Digest: "sha256:" + hex.EncodeToString(digest[:]), Source: source, State: httpapi.ShadowRunning, Set: "2026-12-01T10:02:00Z", Since: &since,
		Calls: 12, Skipped: 1, Compared: 11, Differed: 2, Agreed: 3, Moves: httpapi.BothCounts{Active: 4, Shadow: 1},
		Fuel: httpapi.FuelView{Last: &fuel, P99: &p99, Limit: 500_000_000}, Time: httpapi.TimeView{Last: &micros, P99: &micros},
		Last: &httpapi.DifferenceView{Op: "rebalance", At: "2026-12-01T10:03:00Z", Counts: httpapi.BothCounts{Active: 2, Shadow: 1},
			Active: []httpapi.MoveView{{Shard: 3, From: "a", To: "b", Reason: "fewest shards"}, {Shard: 7, From: "a", To: "c"}},
			Shadow: []httpapi.MoveView{{Shard: 7, From: "a", To: "b"}}}}
}

// Promote implements httpapi.Strategies, as do the following.
func (n *Node) Promote(_ context.Context, t sharding.TypeName, digest *[32]byte) (httpapi.StrategyView, error) {
	if err := n.note("promote %s %s", t, digestText(digest)); err != nil {
		return httpapi.StrategyView{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shadow == nil {
		return httpapi.StrategyView{}, &httpapi.Problem{Kind: httpapi.KindConflict, Detail: string(t) + " has no shadow to promote"}
	}
	v := strategy(t, [32]byte{2}, n.shadow.Source)
	v.Name, v.Digest, v.Previous = n.shadow.Name, n.shadow.Digest, &httpapi.PreviousView{Digest: strategy(t, [32]byte{1}, "").Digest, Source: "builtin:leastshard"}
	n.shadow = nil
	return v, nil
}

// Rollback goes back to builtin:leastshard.
func (n *Node) Rollback(_ context.Context, t sharding.TypeName, from *[32]byte) (httpapi.StrategyView, error) {
	return strategy(t, [32]byte{1}, "builtin:leastshard"), n.note("rollback %s %s", t, digestText(from))
}

// EndShadow ends the shadow that Swap has set.
func (n *Node) EndShadow(_ context.Context, t sharding.TypeName) (httpapi.StrategyView, error) {
	err := n.note("end-shadow %s", t)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shadow = nil
	return strategy(t, [32]byte{1}, "builtin:leastshard"), err
}

func digestText(d *[32]byte) string {
	if d == nil {
		return "-"
	}
	return hex.EncodeToString(d[:4])
}

func strategy(t sharding.TypeName, digest [32]byte, source string) httpapi.StrategyView {
	fuel, p99, micros := uint64(81_234), uint64(90_000), uint64(412)
	return httpapi.StrategyView{
		Type: t, Name: "leastshard", Digest: "sha256:" + hex.EncodeToString(digest[:]), Source: source, State: httpapi.StrategyActive, Calls: 17, Failures: 1, Worked: true,
		Fuel: httpapi.FuelView{Last: &fuel, P99: &p99, Limit: 500_000_000}, Time: httpapi.TimeView{Last: &micros, P99: &micros},
	}
}

// Swap implements httpapi.Strategies.
func (n *Node) Swap(_ context.Context, r httpapi.SwapRequest) (httpapi.SwapView, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.swaps = append(n.swaps, r)
	if n.Err != nil {
		return httpapi.SwapView{}, n.Err
	}
	if r.Module != nil && !strings.HasPrefix(string(r.Module), "\x00asm") {
		return httpapi.SwapView{}, &httpapi.Problem{Kind: httpapi.KindRefusedStrategy, Detail: "the module is refused by 1 rule",
			Findings: []httpapi.Finding{{Rule: "wasm-invalid", Severity: "error", Message: "this is no wasm", Fix: "build for wasm"}}}
	}
	if n.SwapView != nil {
		return *n.SwapView, nil
	}
	var digest [32]byte
	if r.Digest != nil {
		digest = *r.Digest
	}
	if r.Shadow {
		n.shadow = Shadow(digest, r.Source)
		v := strategy(r.Type, [32]byte{1}, "builtin:leastshard")
		v.Shadow = n.shadow
		return httpapi.SwapView{StrategyView: v}, nil
	}
	return httpapi.SwapView{StrategyView: strategy(r.Type, digest, r.Source)}, nil
}

// Drain implements httpapi.Operator.
func (n *Node) Drain(_ context.Context, node sharding.NodeID, on bool) error {
	return n.note("drain %s %t", node, on)
}

// Leave implements httpapi.Operator.
func (n *Node) Leave(context.Context) error { return n.note("leave") }

// Forget implements httpapi.Operator.
func (n *Node) Forget(_ context.Context, node sharding.NodeID) error {
	if node == "a" {
		return &httpapi.Problem{Kind: httpapi.KindConflict, Detail: "node a is up", Hint: "only a dead node can be forgotten"}
	}
	return n.note("forget %s", node)
}

// paused says whether the last of pause and resume was a pause.
func (n *Node) paused() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Backward(n.calls) {
		if strings.HasPrefix(c, "pause ") {
			return c == "pause true"
		}
	}
	return false
}

// Pause implements httpapi.Operator.
func (n *Node) Pause(_ context.Context, on bool) error { return n.note("pause %t", on) }

// MoveShard implements httpapi.Operator.
func (n *Node) MoveShard(_ context.Context, t sharding.TypeName, s sharding.ShardID, to sharding.NodeID) error {
	return n.note("move %s %d %s", t, s, to)
}

// PinShard implements httpapi.Operator.
func (n *Node) PinShard(_ context.Context, t sharding.TypeName, s sharding.ShardID, node sharding.NodeID) error {
	return n.note("pin %s %d %s", t, s, node)
}

// Ready implements httpapi.Observer.
func (n *Node) Ready() httpapi.ReadyView {
	c := []httpapi.Condition{{Name: "joined", OK: true}, {Name: "regions", OK: !n.NotReady}}
	if n.NotReady {
		c[1].Why = "the region of counter is not registered yet"
	}
	return httpapi.ReadyView{Ready: !n.NotReady, Conditions: c}
}

// DeadLetters implements httpapi.Observer.
func (n *Node) DeadLetters() httpapi.DeadLettersView {
	return httpapi.DeadLettersView{Total: 9, Letters: []httpapi.DeadLetterView{
		{Time: "2026-01-02T03:04:05Z", Type: "counter", Shard: 3, Entity: "user-42", Reason: "buffer_full", Bytes: 12},
	}}
}

// Metrics implements httpapi.Observer.
func (n *Node) Metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "drover_shards", Help: "Shards on this node."})
	g.Set(2)
	r.MustRegister(g)
	return r
}
