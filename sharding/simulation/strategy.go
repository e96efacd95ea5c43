package simulation

import (
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies/hash"
	"github.com/droverhq/drover/strategies/leastshard"
	"github.com/droverhq/drover/strategies/rendezvous"
)

// strategyNames lists what may run: the built-in policies, and one of random legal answers, which keeps shards moving.
var strategyNames = []string{"leastshard", "restless", "hash", "rendezvous"}

// strategies are the modules that the shells have, by digest, and how they fare now.
type strategies struct {
	failing bool // every call fails, until the fault ends
	slow    time.Duration
}

func digestOf(name string) [32]byte { return sha256.Sum256([]byte("strategy " + name)) }

func strategyBy(digest [32]byte) (pluginapi.Strategy, bool) {
	switch digest {
	case digestOf("hash"):
		return hash.Strategy{}, true
	case digestOf("leastshard"):
		return leastshard.Strategy{}, true
	case digestOf("rendezvous"):
		return rendezvous.Strategy{}, true
	case digestOf("restless"):
		return restless{}, true
	case digestOf("broken"):
		return broken{}, true
	}
	return nil, false
}

// askStrategy runs a strategy call natively. The answer comes later, or fails as a call in wazero can.
func (w *world) askStrategy(p *process, ask coordinator.AskStrategy) {
	answer := coordinator.StrategyAnswered{Ask: ask.Ask, Record: sha256.Sum256([]byte{byte(ask.Ask)})}
	run, known := strategyBy(ask.Spec.Digest)
	var err error
	switch {
	case !known:
		answer.Failure = &coordinator.StrategyFailure{Verdict: "missing", Detail: "no such module here"}
	case w.strategy.failing || w.rng.IntN(40) == 0:
		verdict := []string{"trap", "fuel", "depth", "output", "budget"}[w.rng.IntN(5)]
		answer.Failure = &coordinator.StrategyFailure{Verdict: verdict, Detail: "simulated"}
	case ask.Op == pluginapi.OpAllocate:
		answer.Homes, err = run.Allocate(ask.Input, ask.Shards)
	default:
		answer.Plan, err = run.Rebalance(ask.Input)
	}
	if err != nil {
		answer.Failure = &coordinator.StrategyFailure{Verdict: "trap", Detail: err.Error()}
	}
	took := 300*time.Microsecond + time.Duration(w.rng.Int64N(int64(10*time.Millisecond)))
	if w.rng.IntN(12) == 0 {
		took += time.Duration(w.rng.Int64N(int64(400 * time.Millisecond)))
	}
	if w.strategy.slow > 0 {
		took += time.Duration(w.rng.Int64N(int64(w.strategy.slow)))
	}
	p.after(took, func() { p.stepMachine(answer) })
}

// spec gives a strategy as an operator would set it.
func spec(name string) protocol.StrategySpec {
	return protocol.StrategySpec{Digest: digestOf(name), Source: "sim:" + name, MaxFailures: 3, MovesPass: 4}
}

// restless proposes random legal moves. Being pure, it draws them from the snapshot's seed.
type restless struct{}

func (restless) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	rng := rand.New(rand.NewPCG(s.Seed, s.Revision))
	homes := pluginapi.Homes{}
	p := s.Placement()
	for _, shard := range shards {
		node, kept := p.Kept(shard)
		if !kept && len(s.Candidates) > 0 {
			node = s.Candidates[rng.IntN(len(s.Candidates))]
		}
		homes.Nodes = append(homes.Nodes, node)
	}
	return homes, nil
}

func (restless) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	rng := rand.New(rand.NewPCG(s.Seed, s.Revision))
	plan := pluginapi.Plan{}
	p := s.Placement()
	for shard, owner := range s.Owners {
		if uint64(len(plan.Moves)) >= s.MaxMoves {
			break
		}
		if owner == pluginapi.NoOwner || !p.Movable(uint32(shard)) || len(s.Candidates) == 0 || rng.IntN(4) > 0 {
			continue
		}
		target := s.Candidates[rng.IntN(len(s.Candidates))]
		if rng.IntN(4) == 0 {
			target = pluginapi.NoTarget
		}
		if target != int(owner) {
			plan.Moves = append(plan.Moves, pluginapi.Move{Shard: uint32(shard), Target: target})
		}
	}
	return plan, nil
}

// broken always fails, so that the coordinator goes back to what worked.
type broken struct{}

func (broken) Allocate(*pluginapi.Snapshot, []uint32) (pluginapi.Homes, error) {
	return pluginapi.Homes{}, errBroken
}

func (broken) Rebalance(*pluginapi.Snapshot) (pluginapi.Plan, error) {
	return pluginapi.Plan{}, errBroken
}

var errBroken = errors.New("this strategy always fails")
