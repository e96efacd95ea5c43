package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

func stopRequest(drain bool) region.Event { return region.StopRequested{Drain: drain} }

// createCluster asks the leader to make the first entry, until there is one.
func (w *world) createCluster() {
	for _, n := range w.nodes {
		if n.proc != nil && n.proc.machine != nil {
			if _, created := n.proc.machine.State().ClusterID(); created {
				return
			}
		}
	}
	w.ask(coordinator.CreateCluster{Body: protocol.CreateCluster{
		ClusterID: sharding.Incarnation{1, 2, 3}, Label: "sim", Settings: protocol.Settings{LeaseTTL: int64(w.ttl / time.Millisecond)},
	}}, nil)
	w.schedule(w.now+int64(150*time.Millisecond), nil, w.createCluster)
}

// ask gives a request to whoever leads. done hears the answer, unless the leader ends before.
func (w *world) ask(r coordinator.Request, done func(coordinator.Answer)) {
	p := w.leaderProc()
	if p == nil || p.paused {
		return
	}
	w.request++
	if done != nil {
		w.answers[w.request] = done
	}
	p.stepMachine(coordinator.Requested{ID: w.request, Request: r})
}

func (w *world) answered(a coordinator.Answer) {
	if done := w.answers[a.ID]; done != nil {
		delete(w.answers, a.ID)
		done(a)
	}
}

func (w *world) moveShard(k ShardKey, to *node, done func(coordinator.Answer)) {
	w.ask(coordinator.MoveShard{Type: k.Type, Shard: k.Shard, To: to.name}, done)
}

// raise has the lease TTL raised, and once leases run under the new one restarts all servers together and keeps a plain node from them. Who
// is elected has applied no more than its snapshot: from that it takes the time that the plain node's lease may run for too short.
func (w *world) raise() {
	ttl := 3 * w.ttl
	w.ask(coordinator.Configure{Settings: protocol.Settings{LeaseTTL: int64(ttl / time.Millisecond)}}, nil)
	w.soon(w.ttl, func() {
		last := len(w.nodes) - 1 // no server
		for _, n := range w.nodes[:w.servers] {
			w.cutFor(n.slot, last, ttl)
			w.cutFor(last, n.slot, ttl)
			w.crashFor(n, 50*time.Millisecond)
		}
	})
}

func (w *world) drainFor(n *node, d time.Duration) {
	w.ask(coordinator.DrainNode{Node: n.name, On: true}, nil)
	w.soon(d, func() { w.ask(coordinator.DrainNode{Node: n.name}, nil) })
}

func (w *world) pinFor(k ShardKey, n *node, d time.Duration) {
	w.ask(coordinator.PinShard{Type: k.Type, Shard: k.Shard, Node: n.name}, nil)
	w.soon(d, func() { w.ask(coordinator.PinShard{Type: k.Type, Shard: k.Shard}, nil) })
}
