package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/droverhq/drover/sharding"
)

// ErrNotLeading says that another server has to do it: this one does not lead, or leads no more.
var ErrNotLeading = errors.New("this raft server does not lead")

// Remove takes a server out of raft's configuration: leave and forget. It works on the leader alone, which hands leadership over where it is itself to go:
// ErrNotLeading. A removal that would leave no quorum is a QuorumError, and changes nothing. Once more after any other error is harmless.
func (p *Plane) Remove(ctx context.Context, id sharding.Incarnation) error {
	done, err := p.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	for {
		if err := p.Fault(); err != nil { // see adjust
			return fmt.Errorf("raft server %s cannot be removed: %w", id, err)
		}
		seats, known, index, err := p.look()
		if err != nil {
			return err
		}
		c, err := planRemoval(seats, known, id, p.probe(ctx, seats, known))
		if err != nil || c.Op == noChange {
			return err
		}
		if id == p.cfg.Server && len(votersAfter(seats, change{})) > 1 {
			if err := p.TransferLeadership(ctx); err == nil {
				return ErrNotLeading
			} // else this server removes itself, and the others elect one of them
		}
		if err := p.change(ctx, c, index); err != nil || c.Op == removeServer {
			return err
		}
	}
}

// takeTurn waits until nobody else changes raft's configuration: a plan holds for the configuration that it was made for. done lets others go on.
func (p *Plane) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look gives raft's configuration with its index, and the servers that membership knows; of the spares among them, whether they are ready.
func (p *Plane) look() (seats []seat, known []Server, index uint64, err error) {
	seats, index, err = p.seats()
	if err != nil {
		return nil, nil, 0, err
	}
	p.mu.Lock()
	known = append([]Server(nil), p.known...)
	p.mu.Unlock()
	for i := range known {
		known[i].Ready = known[i].Up && isSpare(seats, known[i].ID) && p.ready(known[i])
	}
	return seats, known, index, nil
}

// probePatience is how long a server may take to answer before it counts as dead.
const probePatience = 3 * time.Second

// probe finds out which of the seated servers are live: those that membership has as up, and that answer now.
func (p *Plane) probe(ctx context.Context, seats []seat, known []Server) map[sharding.Incarnation]bool {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	live := map[sharding.Incarnation]bool{p.cfg.Server: true}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range seats {
		for _, k := range known {
			if k.ID != s.ID || k.ID == p.cfg.Server || !k.Up || !k.Registered {
				continue
			}
			wg.Go(func() {
				if p.cfg.Answers(ctx, k) {
					mu.Lock()
					live[k.ID] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return live
}

// change makes one change of raft's configuration, of which index is the present one.
func (p *Plane) change(ctx context.Context, c change, index uint64) error {
	id, addr := raft.ServerID(c.ID.String()), raft.ServerAddress(c.Address)
	var f raft.IndexFuture
	switch c.Op {
	case addNonvoter:
		f = p.raft.AddNonvoter(id, addr, index, patience)
	case addVoter:
		f = p.raft.AddVoter(id, addr, index, patience)
	case demoteVoter:
		f = p.raft.DemoteVoter(id, index, patience)
	default:
		f = p.raft.RemoveServer(id, index, patience)
	}
	err := wait(ctx, f)
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		err = fmt.Errorf("%w: %w", ErrNotLeading, err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.Op, id, err)
	}
	p.cfg.Logger.Info("raft membership changed", "change", c.Op.String(), "server", c.ID, "address", c.Address)
	return nil
}
