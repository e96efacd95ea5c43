package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/controlplane"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// The calls between nodes. Names are part of the wire: they are never reused.
const (
	callModuleGet  = "module.get/1" // digest → module
	callModulePut  = "module.put/1" // module → digest; from coordinators alone
	callReady      = "raft.ready/1" // index → readiness
	callShardStats = "shards/1"     // type → []shardStats
	callOperate    = "operate/1"    // operation → nothing; to the leader
	callStrategies = "strategies/1" // nothing → []strategyRecord; to the leader
	callSwap       = "swap/1"       // swapOrder → nothing; to the leader
	callChange     = "change/1"     // changeOrder → nothing; to the leader
	callExplain    = "explain/1"    // typeShard → explanation; to the leader
	callElectorate = "electorate/1" // nothing → electorate; to a raft server
	callShard      = "shard/1"      // typeShard → shardHolds; to the shard's owner
)

// outcome is the answer of every call: the error of the other side keeps its kind.
type outcome struct {
	Body   []byte `cbor:"0,keyasint,omitempty"`
	Kind   string `cbor:"1,keyasint,omitempty"` // of a problem; notLeader: ask again elsewhere
	Detail string `cbor:"2,keyasint,omitempty"`
	Hint   string `cbor:"3,keyasint,omitempty"`
	// Findings and Known are a problem's.
	Findings []httpapi.Finding `cbor:"4,keyasint,omitempty"`
	Known    []string          `cbor:"5,keyasint,omitempty"`
}

const notLeader = "not-leader"

var errNotLeader = errors.New("this node does not lead")

var callDecoding = func() cbor.DecMode {
	m, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 16}.DecMode()
	if err != nil {
		panic(err) // constant options
	}
	return m
}()

// operation is an operator's request on its way to the leader.
type operation struct {
	Op    string            `cbor:"0,keyasint"`
	Type  sharding.TypeName `cbor:"1,keyasint,omitempty"`
	Shard sharding.ShardID  `cbor:"2,keyasint,omitempty"`
	Node  sharding.NodeID   `cbor:"3,keyasint,omitempty"`
	On    bool              `cbor:"4,keyasint,omitempty"`
}

// The operations.
const (
	opDrain  = "drain"
	opPause  = "pause"
	opMove   = "move"
	opPin    = "pin"
	opForget = "forget"
	opLeave  = "leave"
)

type typeShard struct {
	Type  sharding.TypeName `cbor:"0,keyasint"`
	Shard sharding.ShardID  `cbor:"1,keyasint"`
}

type shardStats struct {
	Shard    sharding.ShardID `cbor:"0,keyasint"`
	Epoch    sharding.Epoch   `cbor:"1,keyasint"`
	Entities int              `cbor:"2,keyasint"`
}

// swapOrder asks the leader to activate a strategy, whose module the asking node has admitted.
type swapOrder struct {
	Type   sharding.TypeName     `cbor:"0,keyasint"`
	Spec   protocol.StrategySpec `cbor:"1,keyasint"`
	Expect uint64                `cbor:"2,keyasint"`
	Module []byte                `cbor:"3,keyasint,omitempty"`
	// ShadowExpect, where set, asks for the strategy to run as a shadow, in the place of the one with this number.
	ShadowExpect *uint64 `cbor:"4,keyasint,omitempty"`
}

// strategyRecord is a type's strategy with the calls that this leader has made.
type strategyRecord struct {
	Type       sharding.TypeName     `cbor:"0,keyasint"`
	Seq        uint64                `cbor:"1,keyasint"`
	Spec       protocol.StrategySpec `cbor:"2,keyasint"`
	Name       string                `cbor:"3,keyasint"`
	State      string                `cbor:"4,keyasint"`
	Calls      uint64                `cbor:"5,keyasint"`
	Failures   uint64                `cbor:"6,keyasint"`
	LastFuel   *uint64               `cbor:"7,keyasint,omitempty"`
	P99Fuel    *uint64               `cbor:"8,keyasint,omitempty"`
	LastMicros *uint64               `cbor:"9,keyasint,omitempty"`
	P99Micros  *uint64               `cbor:"10,keyasint,omitempty"`
	Worked     bool                  `cbor:"11,keyasint,omitempty"`
	Failure    *strategyFailure      `cbor:"12,keyasint,omitempty"`
	Shadow     *shadowRecord         `cbor:"13,keyasint,omitempty"`
	ShadowSeq  uint64                `cbor:"14,keyasint,omitempty"` // of the shadow's last change, its end too
	Previous   protocol.StrategySpec `cbor:"15,keyasint,omitzero"`  // what a rollback goes back to; zero: nothing
}

// strategyFailure is the latest failure that the leader knows of.
type strategyFailure struct {
	Digest  modules.Digest `cbor:"0,keyasint"`
	Source  string         `cbor:"1,keyasint"`
	Verdict string         `cbor:"2,keyasint"`
	Detail  []byte         `cbor:"3,keyasint"` // a module may have written it: any bytes
}

// requests are what was asked of this node's coordinator machine and has no answer yet.
type requests struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan coordinator.Answer
}

func (r *requests) end(a coordinator.Answer) {
	r.mu.Lock()
	ch := r.waiting[a.ID]
	delete(r.waiting, a.ID)
	r.mu.Unlock()
	if ch != nil {
		ch <- a
	}
}

// request hands a request to this node's machine and waits for the answer.
func (n *Node) request(ctx context.Context, req coordinator.Request) (coordinator.Answer, error) {
	ch := make(chan coordinator.Answer, 1)
	r := &n.requests
	r.mu.Lock()
	r.last++
	id := r.last
	r.waiting[id] = ch
	r.mu.Unlock()
	defer func() { r.mu.Lock(); delete(r.waiting, id); r.mu.Unlock() }()
	n.plane.Post(coordinator.Requested{ID: id, Request: req})
	select {
	case a := <-ch:
		return a, nil
	case <-ctx.Done():
		return coordinator.Answer{}, ctx.Err()
	}
}

// problemOf turns the machine's refusal into what a client is told.
func problemOf(a coordinator.Answer) error {
	if a.Err == "" {
		return nil
	}
	kind := httpapi.KindConflict
	switch a.Code {
	case coordinator.CodeNotLeader, coordinator.CodeStaleTerm:
		return errNotLeader
	case coordinator.CodeUnknownNode:
		kind = httpapi.KindUnknownNode
	case coordinator.CodeUnknownType:
		kind = httpapi.KindUnknownType
	case coordinator.CodeUnknownShard:
		kind = httpapi.KindUnknownShard
	case coordinator.CodeUnavailable, coordinator.CodeNoCluster:
		kind = httpapi.KindUnavailable
	}
	return &httpapi.Problem{Kind: kind, Detail: a.Err}
}

// answerCall serves the calls of other nodes, and this node's own to itself as leader.
func (n *Node) answerCall(ctx context.Context, from transport.Peer, method string, body []byte) ([]byte, error) {
	out, err := n.serve(ctx, from, method, body)
	o := outcome{Body: out}
	var p *httpapi.Problem
	switch {
	case errors.Is(err, errNotLeader):
		o = outcome{Kind: notLeader}
	case errors.As(err, &p):
		o = outcome{Kind: p.Kind.String(), Detail: p.Detail, Hint: p.Hint, Findings: p.Findings, Known: p.Known}
	case err != nil:
		return nil, err
	}
	return cbor.Marshal(o)
}

func (n *Node) serve(ctx context.Context, from transport.Peer, method string, body []byte) ([]byte, error) {
	switch method {
	case callModuleGet:
		if len(body) != 32 {
			return nil, errors.New("module.get wants a digest of 32 bytes")
		}
		return n.modules.Get(modules.Digest(body))
	case callModulePut:
		if !from.Coordinator {
			return nil, errors.New("only a coordinator stores modules on other nodes")
		}
		d, err := n.putModule(body)
		return d[:], err
	case callReady:
		return []byte{byte(n.serveReady(body))}, nil
	case callShardStats:
		var out []shardStats
		for _, s := range n.data.Stats(sharding.TypeName(body)) {
			out = append(out, shardStats{s.Shard, s.Epoch, s.Entities})
		}
		return cbor.Marshal(out)
	case callOperate:
		var op operation
		if err := callDecoding.Unmarshal(body, &op); err != nil {
			return nil, fmt.Errorf("operate: %w", err)
		}
		if op.Op == opLeave && op.Node != from.Member.Node {
			return nil, fmt.Errorf("node %s asks for node %s to leave: a node leaves by itself alone", from.Member.Node, op.Node)
		}
		return nil, n.operate(ctx, op)
	case callStrategies:
		return n.serveStrategies()
	case callSwap:
		var o swapOrder
		if err := callDecoding.Unmarshal(body, &o); err != nil {
			return nil, fmt.Errorf("swap: %w", err)
		}
		return nil, n.activate(ctx, o)
	case callChange:
		var o changeOrder
		if err := callDecoding.Unmarshal(body, &o); err != nil {
			return nil, fmt.Errorf("change: %w", err)
		}
		return nil, n.change(ctx, o)
	case callExplain:
		var ts typeShard
		if err := callDecoding.Unmarshal(body, &ts); err != nil {
			return nil, fmt.Errorf("explain: %w", err)
		}
		return n.serveExplain(ts)
	case callElectorate:
		return n.serveElectorate()
	case callShard:
		var ts typeShard
		if err := callDecoding.Unmarshal(body, &ts); err != nil {
			return nil, fmt.Errorf("shard: %w", err)
		}
		return cbor.Marshal(n.holds(ts))
	}
	return nil, fmt.Errorf("this node does not know the call %q: it runs another release", method)
}

// leads says whether this node's machine leads and has passed its barrier.
func (n *Node) leads() (lead bool) {
	if n.plane != nil {
		n.plane.View(func() { lead = n.machine.Leading() })
	}
	return lead
}

// callMember makes one call. The error of the other side keeps its kind.
func (n *Node) callMember(ctx context.Context, to sharding.Member, method string, body []byte) ([]byte, error) {
	var answer []byte
	var err error
	if to == n.self {
		answer, err = n.answerCall(ctx, n.transport.SelfPeer(), method, body)
	} else {
		answer, err = n.transport.Call(ctx, to, method, body)
	}
	if err != nil {
		return nil, err
	}
	var o outcome
	if err := callDecoding.Unmarshal(answer, &o); err != nil {
		return nil, fmt.Errorf("%s answered %s with what is no answer: %w", to, method, err)
	}
	switch o.Kind {
	case "":
		return o.Body, nil
	case notLeader:
		return nil, errNotLeader
	}
	return nil, &httpapi.Problem{Kind: httpapi.Kind(o.Kind), Detail: o.Detail, Hint: o.Hint, Findings: o.Findings, Known: o.Known}
}

const (
	leaderPatience = 10 * time.Second
	leaderRetry    = 100 * time.Millisecond
)

// callLeader makes a call to whoever leads, waiting out an election. It repeats a call only where it surely was not carried out, or changes nothing;
// after any other break of the connection the caller is told that the outcome is unknown. A change of strategy takes as long as ctx lets it: the leader
// compiles the module first, and one after another.
func (n *Node) callLeader(ctx context.Context, method string, body []byte) ([]byte, error) {
	search, cancel := context.WithTimeout(ctx, cmp.Or(n.opts.leaderPatience, leaderPatience))
	defer cancel()
	if method != callSwap && method != callChange {
		ctx = search
	}
	for {
		leader, _ := n.data.Leader()
		err := errNotLeader
		if !leader.IsZero() {
			var out []byte
			if out, err = n.callMember(ctx, leader, method, body); err == nil {
				return out, nil
			}
		}
		var unreachable *transport.UnavailableError
		var problem *httpapi.Problem
		var remote *transport.RemoteError
		switch {
		case errors.Is(err, errNotLeader), errors.As(err, &unreachable), errors.Is(err, transport.ErrUnknownPeer):
		case errors.As(err, &problem), errors.As(err, &remote), errors.Is(err, transport.ErrTooLarge), errors.Is(err, transport.ErrClosed):
			return nil, err
		case method == callStrategies, method == callExplain: // they change nothing
		default:
			detail := "the coordinator went away before it answered: it may have been done"
			if errors.Is(err, context.DeadlineExceeded) {
				detail = "the coordinator has not answered in time: it may have been done"
			}
			return nil, &httpapi.Problem{Kind: httpapi.KindUnknownOutcome, Detail: detail, Hint: "look first: drover cluster shards, drover strategy list"}
		}
		select {
		case <-search.Done():
			return nil, &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: "no coordinator can be reached",
				Hint: "an election takes a second or two; if it lasts, see whether a majority of the voters is up: drover cluster members"}
		case <-time.After(leaderRetry):
		}
	}
}

// readiness says whether a raft server may vote (spec 1.4), one byte.
type readiness byte

const (
	behind       readiness = iota // it has not applied all of the log
	isReady                       // it has, and all modules that the cluster needs are here
	lacksModules                  // it has, and some are not
)

func (n *Node) serveReady(body []byte) readiness {
	if n.plane == nil || len(body) != 8 || n.plane.Applied() < binary.BigEndian.Uint64(body) {
		return behind
	}
	for _, d := range n.neededModules() {
		if !n.modules.Has(d) {
			return lacksModules
		}
	}
	return isReady
}

// neededModules lists the modules that the types' strategies need, now or after a promote, a rollback or a revert, as this server's log has them.
func (n *Node) neededModules() (out []modules.Digest) {
	n.plane.View(func() {
		for _, d := range n.machine.State().Modules() {
			out = append(out, d)
		}
	})
	return out
}

// confirmReady is asked by raft's steward before a server may vote: it must have the log and the modules (spec 1.4).
func (n *Node) confirmReady(ctx context.Context, s controlplane.Server, index uint64) bool {
	if !n.await() {
		return false
	}
	for _, m := range n.data.Members() {
		if m.Info.Server != s.ID || !n.isUp(m.Member) {
			continue
		}
		ready := n.askReady(ctx, m.Member, index)
		if ready == lacksModules {
			n.copyModules(ctx, m.Member)
			ready = n.askReady(ctx, m.Member, index)
		}
		return ready == isReady
	}
	return false
}

func (n *Node) askReady(ctx context.Context, m sharding.Member, index uint64) readiness {
	out, err := n.callMember(ctx, m, callReady, binary.BigEndian.AppendUint64(nil, index))
	if err != nil || len(out) != 1 {
		return behind
	}
	return readiness(out[0])
}

// copyModules sends a server the modules that the cluster needs; it keeps what it lacks.
func (n *Node) copyModules(ctx context.Context, to sharding.Member) {
	for _, d := range n.neededModules() {
		wasm, err := n.modules.Get(d)
		if err == nil {
			_, err = n.callMember(ctx, to, callModulePut, wasm)
		}
		if err != nil {
			n.log.Debug("a module could not be copied to a new server", "to", to, "digest", d, "error", err)
		}
	}
}

// fetchModule gets a module from any node that has it.
func (n *Node) fetchModule(ctx context.Context, d modules.Digest) ([]byte, error) {
	if !n.await() {
		return nil, errors.New("the node is stopping")
	}
	for _, m := range n.memberList() {
		if m.Name == n.self.Node || m.Status != cluster.Up {
			continue
		}
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		wasm, err := n.callMember(one, m.Identity(), callModuleGet, d[:])
		cancel()
		if err == nil && sha256.Sum256(wasm) == d {
			return wasm, nil
		}
	}
	return nil, fmt.Errorf("no node that is up has module %s: %w", d, modules.ErrNotHere)
}

// operate carries out an operation on the leader.
func (n *Node) operate(ctx context.Context, op operation) error {
	if !n.leads() {
		return errNotLeader
	}
	var req coordinator.Request
	switch op.Op {
	case opDrain:
		req = coordinator.DrainNode{Node: op.Node, On: op.On}
	case opPause:
		req = coordinator.Pause{On: op.On}
	case opMove:
		req = coordinator.MoveShard{Type: op.Type, Shard: op.Shard, To: op.Node}
	case opPin:
		if op.Node != "" && !n.knows(op.Node) { // such a pin would do nothing, and look like one that holds
			return &httpapi.Problem{Kind: httpapi.KindUnknownNode, Detail: fmt.Sprintf("there is no node %q to pin a shard to", op.Node)}
		}
		req = coordinator.PinShard{Type: op.Type, Shard: op.Shard, Node: op.Node}
	case opForget, opLeave:
		take := n.forget
		if op.Op == opLeave {
			take = n.release
		}
		err := take(ctx, op.Node)
		if err == nil {
			n.sayDone(op)
		}
		return err
	default:
		return fmt.Errorf("this node does not know the operation %q: it runs another release", op.Op)
	}
	a, err := n.request(ctx, req)
	if err == nil {
		err = problemOf(a)
	}
	if err == nil {
		n.sayDone(op)
	}
	return err
}

// sayDone logs what an operator has changed, on the leader.
func (n *Node) sayDone(op operation) {
	attrs := []any{"operation", op.Op}
	text := ""
	switch {
	case op.Op == opDrain && op.On:
		text = fmt.Sprintf("node %s drains: its shards are handed to other nodes, and it gets no new ones", op.Node)
		if types := n.withoutHost(op.Node); len(types) > 0 {
			n.log.Warn(fmt.Sprintf("node %s drains, and every other node that hosts these types drains too or is away: their shards stay where they are, and those without a home get none", op.Node),
				"types", types, "hint", "drover cluster drain --undo "+string(op.Node))
		}
	case op.Op == opDrain:
		text = fmt.Sprintf("node %s drains no more: it may get shards again", op.Node)
	case op.Op == opPause && op.On:
		text = "rebalancing is paused: shards without a home still get one, nothing else moves"
	case op.Op == opPause:
		text = "rebalancing goes on"
	case op.Op == opForget:
		text = fmt.Sprintf("node %s is forgotten: it is a member again only if it is started again", op.Node)
	case op.Op == opLeave:
		text = fmt.Sprintf("node %s has left the raft servers", op.Node)
	case op.Op == opMove:
		text = fmt.Sprintf("shard %d of %s moves to node %s", op.Shard, op.Type, op.Node)
	case op.Node == "":
		text = fmt.Sprintf("shard %d of %s is not pinned any more", op.Shard, op.Type)
	default:
		text = fmt.Sprintf("shard %d of %s is pinned to node %s", op.Shard, op.Type, op.Node)
	}
	n.log.Info("an operator's request is carried out: "+text, attrs...)
}

// withoutHost lists the types of a draining node that no other node could take.
func (n *Node) withoutHost(drained sharding.NodeID) (types []sharding.TypeName) {
	var mine []sharding.TypeName
	elsewhere := map[sharding.TypeName]bool{}
	for _, m := range n.data.Members() {
		switch {
		case m.Member.Node == drained:
			mine = append(mine, m.Hosts...)
		case !m.Draining && n.isUp(m.Member):
			for _, t := range m.Hosts {
				elsewhere[t] = true
			}
		}
	}
	for _, t := range mine {
		if !elsewhere[t] {
			types = append(types, t)
		}
	}
	return types
}

// knows says whether gossip has a member of that name, away or not.
func (n *Node) knows(name sharding.NodeID) bool {
	return slices.ContainsFunc(n.memberList(), func(m cluster.Member) bool { return m.Name == name })
}
