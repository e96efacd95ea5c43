package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/rollout"
)

// storePatience is how long another voter may take to store a module.
const storePatience = 10 * time.Second

// rollOut is the leader's part of every change that puts a module to use (spec 1.4); sharding/rollout has the steps. wasm is what came with the
// request; empty: this node has the module, or fetches it. req is what puts the entry into the log.
func (n *Node) rollOut(ctx context.Context, spec protocol.StrategySpec, wasm []byte, req coordinator.Request) error {
	if !n.leads() {
		return errNotLeader
	}
	m := rollout.New(n.server, rollout.Mutations{})
	stored := make(chan rollout.Event, 16) // by goroutines, of which some go on after the end
	queue := m.Step(rollout.Began{})
	for {
		for len(queue) > 0 {
			c := queue[0]
			queue = queue[1:]
			var ev rollout.Event
			switch c := c.(type) {
			case rollout.Fetch:
				var err error
				if len(wasm) == 0 {
					wasm, err = n.anyModule(ctx, spec.Digest)
				}
				ev = rollout.Fetched{Err: err}
			case rollout.Admit: // whoever asks has admitted it, by its own account
				_, _, err := n.strategist.Admit(ctx, wasm, spec)
				if err != nil {
					err = refusal(err)
				}
				ev = rollout.Admitted{Err: err}
			case rollout.Store:
				if c.Server != n.server {
					n.storeAt(ctx, c.Server, wasm, stored)
					continue
				}
				_, err := n.putModule(wasm)
				if err != nil {
					err = n.unstored(err)
				}
				ev = rollout.Stored{Server: c.Server, Err: err}
			case rollout.CountVoters:
				voters, err := n.plane.VoterIDs()
				if err != nil {
					err = &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: err.Error()}
				}
				ev = rollout.Counted{Voters: voters, Err: err}
			case rollout.Order:
				ev = rollout.Ordered{Err: n.order(ctx, req)}
			case rollout.End:
				var few *rollout.UnspreadError
				if errors.As(c.Err, &few) {
					return &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: few.Error(),
						Hint: "the old strategy stays; try again once a majority of the voters is up: drover cluster members"}
				}
				return c.Err
			}
			queue = append(queue, m.Step(ev)...)
		}
		select {
		case ev := <-stored:
			queue = m.Step(ev)
		case <-ctx.Done():
			return fmt.Errorf("%s the module: %w", m.At(), ctx.Err())
		}
	}
}

// storeAt stores a module on another raft server; one that is down blocks nothing. It goes on where the change has ended meanwhile: the server will want
// the module.
func (n *Node) storeAt(ctx context.Context, server sharding.Incarnation, wasm []byte, done chan<- rollout.Event) {
	go func() {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), storePatience)
		defer cancel()
		err := errors.New("the server is not up")
		for _, m := range n.memberList() {
			if m.Server == server && m.Status == cluster.Up {
				_, err = n.callMember(one, m.Identity(), callModulePut, wasm)
				break
			}
		}
		select {
		case done <- rollout.Stored{Server: server, Err: err}:
		case <-ctx.Done():
		}
	}()
}

// anyModule gives a module from this node's store, or from another node.
func (n *Node) anyModule(ctx context.Context, d modules.Digest) ([]byte, error) {
	wasm, err := n.modules.Get(d)
	if errors.Is(err, modules.ErrNotHere) {
		wasm, err = n.fetchModule(ctx, d)
	}
	if err != nil {
		return nil, &httpapi.Problem{Kind: httpapi.KindUnknownModule, Detail: err.Error()}
	}
	return wasm, nil
}

// order has this node's coordinator put a change of strategy into the log.
func (n *Node) order(ctx context.Context, req coordinator.Request) error {
	a, err := n.request(ctx, req)
	if err != nil {
		return err
	}
	if a.Code == coordinator.CodeUnavailable {
		return &httpapi.Problem{Kind: httpapi.KindUnknownOutcome, Detail: "leadership was lost on the way: the change may have been recorded", Hint: "look: drover strategy list"}
	}
	return problemOf(a)
}
