package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/controlplane"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// forget takes a dead node out: its raft server, its regions, its name.
func (n *Node) forget(ctx context.Context, name sharding.NodeID) error {
	servers := n.serversOf(name)
	var seen bool
	for _, m := range n.memberList() {
		if m.Name != name {
			continue
		}
		seen = true
		if m.Status == cluster.Up {
			return &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("node %q is up", name),
				Hint: "only a dead node is forgotten, and one that has just died shows as failed after some seconds; a live one leaves: drover cluster leave --address <its HTTP address>"}
		}
	}
	if name == n.self.Node || !seen && len(servers) == 0 {
		return &httpapi.Problem{Kind: httpapi.KindUnknownNode, Detail: fmt.Sprintf("there is no node %q to forget", name)}
	}
	a, err := n.request(ctx, coordinator.ForgetNode{Node: name})
	if err != nil {
		return err
	}
	if a.Code != coordinator.CodeUnknownNode { // it may never have had a region
		if err := problemOf(a); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := n.removeServer(ctx, s); err != nil {
			return err
		}
	}
	return n.cluster.Forget(name)
}

// release takes the raft server of a node that leaves out. The node is still up.
func (n *Node) release(ctx context.Context, name sharding.NodeID) (err error) {
	servers := n.serversOf(name)
	if len(servers) == 0 {
		return &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: fmt.Sprintf("the coordinator does not know the raft server of node %q yet, and so cannot take it out", name),
			Hint: "try again once the node is ready: GET /readyz"}
	}
	n.setLeavers(servers, true) // raft's steward would take it in again
	defer func() {
		if err != nil {
			n.setLeavers(servers, false)
		}
	}()
	for _, s := range servers {
		if err := n.removeServer(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// serversOf lists the raft servers that the log has as a node's, and the one that it registered with: that is noted in the log a moment later.
func (n *Node) serversOf(name sharding.NodeID) (servers []protocol.PutServer) {
	n.plane.View(func() {
		servers = slices.DeleteFunc(n.machine.State().Servers(), func(s protocol.PutServer) bool { return s.Member.Node != name })
	})
	for _, m := range n.data.Members() {
		if m.Member.Node == name && !m.Info.Server.IsZero() && !slices.ContainsFunc(servers, func(s protocol.PutServer) bool { return s.Server == m.Info.Server }) {
			servers = append(servers, protocol.PutServer{Server: m.Info.Server, Member: m.Member, Address: m.Info.Address})
		}
	}
	return servers
}

func (n *Node) setLeavers(servers []protocol.PutServer, leave bool) {
	n.mu.Lock()
	for _, s := range servers {
		if leave {
			n.leavers[s.Member] = struct{}{}
		} else {
			delete(n.leavers, s.Member)
		}
	}
	n.mu.Unlock()
	n.tellServers()
}

// removeServer takes a raft server out of raft and out of the log's notes.
func (n *Node) removeServer(ctx context.Context, s protocol.PutServer) error {
	err := n.plane.Remove(ctx, s.Server)
	if quorum, ok := errors.AsType[*controlplane.QuorumError](err); ok {
		return n.noQuorum(s.Member.Node, quorum)
	}
	switch {
	case errors.Is(err, controlplane.ErrNotLeading):
		return errNotLeader
	case err != nil:
		return &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: err.Error()}
	case s.Server == n.server: // a leader that removes itself leads no more
		return nil
	}
	a, err := n.request(ctx, coordinator.RemoveServer{Body: protocol.RemoveServer{Server: s.Server}})
	if err != nil {
		return err
	}
	return problemOf(a)
}

// noQuorum says why a node's raft server stays, and what to do first.
func (n *Node) noQuorum(name sharding.NodeID, e *controlplane.QuorumError) error {
	if e.Voters == 0 {
		return &httpapi.Problem{Kind: httpapi.KindConflict, Detail: fmt.Sprintf("node %q cannot go: it is the only voter, and no other coordinator is ready to vote in its place", name),
			Hint: "start another node with the role coordinator first; to end the whole cluster end each node with SIGTERM"}
	}
	named := map[sharding.Incarnation]string{}
	n.plane.View(func() {
		for _, s := range n.machine.State().Servers() {
			named[s.Server] = string(s.Member.Node)
		}
	})
	var silent, first []string
	for _, id := range e.Silent {
		name := named[id]
		if name == "" {
			name = "of server " + id.String()
		} else {
			first = append(first, "drover cluster forget "+name)
		}
		silent = append(silent, name)
	}
	slices.Sort(silent)
	slices.Sort(first)
	return &httpapi.Problem{Kind: httpapi.KindConflict,
		Detail: fmt.Sprintf("node %q cannot go: without it only %d of %d voters answer, which is no majority; silent: %s", name, e.Voters-len(e.Silent), e.Voters, strings.Join(silent, ", ")),
		Hint:   "start what is silent again, or, if it never comes back, forget it first: " + strings.Join(first, "; ")}
}

// answers asks a raft server for any sign of life.
func (n *Node) answers(ctx context.Context, s controlplane.Server) bool {
	if !n.await() {
		return false
	}
	for _, m := range n.data.Members() {
		if m.Info.Server == s.ID && n.isUp(m.Member) {
			_, err := n.callMember(ctx, m.Member, callReady, make([]byte, 8))
			return err == nil
		}
	}
	return false
}

// leaveRaft takes this node's server out of raft. That comes before all else in a leave: while everything stands it can still be refused.
func (n *Node) leaveRaft(ctx context.Context) error {
	if n.plane == nil || n.isAlone() {
		return nil
	}
	// Whoever leads after the leader that removes it must not take it in again while it is still seen.
	if err := n.cluster.Update(func(i *cluster.Info) { i.Server = sharding.Incarnation{} }); err != nil {
		n.log.Warn("the others are not told yet that this node is no raft server any more", "error", err)
	}
	err := n.askToLeave(ctx)
	if err != nil {
		if again := n.cluster.Update(func(i *cluster.Info) { i.Server = n.server }); again != nil {
			n.log.Warn("the others are not told yet that this node stays a raft server", "error", again)
		}
	}
	return err
}

// leaveTries is how often the leader is asked where it went away before it answered: a removal twice is as good as one.
const leaveTries = 3

func (n *Node) askToLeave(ctx context.Context) error {
	body, err := cbor.Marshal(operation{Op: opLeave, Node: n.self.Node})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		_, err := n.callLeader(ctx, callOperate, body)
		if p, ok := errors.AsType[*httpapi.Problem](err); !ok || p.Kind != httpapi.KindUnknownOutcome || try == leaveTries {
			return err
		}
	}
}

// isAlone says that this node is the only voter, and all that there is of the cluster: nobody is left who needs a quorum, or could take this server out.
func (n *Node) isAlone() bool {
	voters, err := n.plane.VoterIDs()
	return err == nil && slices.Equal(voters, []sharding.Incarnation{n.server}) &&
		!slices.ContainsFunc(n.memberList(), func(m cluster.Member) bool { return m.Name != n.self.Node && m.Status != cluster.Left })
}

// leavesRaft says that a node, by its own word, is a raft server no more.
func (n *Node) leavesRaft(of sharding.Member) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.leavers[of]; ok {
		return true
	}
	return slices.ContainsFunc(n.members, func(m cluster.Member) bool { return m.Identity() == of && m.Server.IsZero() })
}
