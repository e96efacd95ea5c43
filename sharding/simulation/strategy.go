package simulation

import (
	"crypto/sha256"
	"errors"
	"fmt"
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

// variants is how many modules there are of each policy: those but the first are in no node's file, and so in no store until somebody brings them.
const variants = 4

// moduleName names a module of a policy.
func moduleName(policy string, variant int) string {
	if variant == 0 {
		return policy
	}
	return fmt.Sprintf("%s-%d", policy, variant)
}

// policies finds the policy that a module holds.
var policies = func() map[[32]byte]pluginapi.Strategy {
	out := map[[32]byte]pluginapi.Strategy{}
	for _, p := range []struct {
		name   string
		policy pluginapi.Strategy
	}{{"hash", hash.Strategy{}}, {"leastshard", leastshard.Strategy{}}, {"rendezvous", rendezvous.Strategy{}}, {"restless", restless{}}, {"broken", broken{}}} {
		for v := range variants {
			out[digestOf(moduleName(p.name, v))] = p.policy
		}
	}
	return out
}()

// askStrategy runs a strategy call natively, once its module is ready here. The answer comes later, or fails as a call in wazero can. What the shadow
// says goes nowhere.
func (w *world) askStrategy(p *process, ask coordinator.AskStrategy) {
	if ask.Shadow != nil && !w.opts.DeafShadow && p.ready[ask.Shadow.Spec.Digest] {
		w.result.Shadowed++
		shadowed(ask)
	}
	w.whenReady(p, ask.Spec.Digest, readyPatience, func(ready bool) { w.callStrategy(p, ask, ready) })
}

// shadowed is a shadow's call. What it says is dropped here, so that a run is the same with it and without.
func shadowed(ask coordinator.AskStrategy) {
	s := policies[ask.Shadow.Spec.Digest]
	if ask.Op == pluginapi.OpAllocate {
		s.Allocate(ask.Shadow.Input, ask.Shards)
	} else {
		s.Rebalance(ask.Shadow.Input)
	}
}

func (w *world) callStrategy(p *process, ask coordinator.AskStrategy, ready bool) {
	answer := coordinator.StrategyAnswered{Ask: ask.Ask, Record: sha256.Sum256([]byte{byte(ask.Ask)})}
	var err error
	switch run := policies[ask.Spec.Digest]; {
	case !ready:
		answer.Failure = &coordinator.StrategyFailure{Verdict: "missing", Detail: "the module is not here"}
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
