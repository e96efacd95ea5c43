package node

import (
	"context"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/sharding"
)

// electorate is what raft servers alone know of the cluster: who votes, and whether an operator has paused rebalancing.
type electorate struct {
	Voters []sharding.Incarnation `cbor:"0,keyasint"`
	Paused bool                   `cbor:"1,keyasint"`
}

func (n *Node) ownElectorate() (e electorate, err error) {
	n.plane.View(func() { e.Paused = n.machine.State().Paused() })
	e.Voters, err = n.plane.VoterIDs()
	return e, err
}

// electorate asks this node's own raft server, else that of another node; without a leader too. Where none answers in time it is empty.
func (n *Node) electorate(ctx context.Context) electorate {
	if n.plane != nil {
		e, err := n.ownElectorate()
		if err != nil {
			n.log.Debug("the voters are not known", "error", err)
		}
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, statsPatience)
	defer cancel()
	var servers []sharding.Member
	for _, m := range n.memberList() {
		if m.Status == cluster.Up && m.Server != (sharding.Incarnation{}) {
			servers = append(servers, m.Identity())
		}
	}
	answers := make(chan electorate, len(servers))
	for _, to := range servers {
		go func() {
			var e electorate
			body, err := n.callMember(ctx, to, callElectorate, nil)
			if err == nil {
				err = callDecoding.Unmarshal(body, &e)
			}
			if err != nil {
				n.log.Debug("a raft server did not tell the voters", "of", to, "error", err)
				e = electorate{}
			}
			answers <- e
		}()
	}
	for range servers {
		if e := <-answers; len(e.Voters) > 0 {
			return e
		}
	}
	return electorate{}
}

func (n *Node) serveElectorate() ([]byte, error) {
	if n.plane == nil {
		return cbor.Marshal(electorate{})
	}
	e, err := n.ownElectorate()
	if err != nil {
		return nil, err
	}
	return cbor.Marshal(e)
}

// votes says whether a member's raft server is a voter.
func (e electorate) votes(server sharding.Incarnation) bool {
	return server != (sharding.Incarnation{}) && slices.Contains(e.Voters, server)
}
