package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

const (
	watchEvery = 200 * time.Millisecond
	coordEvery = 5 * time.Second // network coordinates drift without any event
)

// watch writes down the cluster's ID once it is known. On a server it also creates the cluster once this node leads one without an ID, notes raft
// servers in the log, and hints at the leader that raft knows.
func (n *Node) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var told time.Time
	quorum := quorumWatch{since: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-n.named:
			n.adopt(id)
			continue
		case <-tick.C:
		}
		if n.plane == nil {
			continue
		}
		n.hintLeader()
		n.tellServers()
		quorum.look(n)
		if time.Since(told) >= coordEvery {
			told = time.Now()
			n.tellCoordinator()
		}
		var lead, created bool
		var servers []protocol.PutServer
		n.plane.View(func() {
			lead = n.machine.Leading()
			_, created = n.machine.State().ClusterID()
			servers = n.machine.State().Servers()
		})
		switch {
		case lead && !created:
			n.createCluster(ctx)
		case lead:
			n.noteServers(ctx, servers)
		}
	}
}

const (
	leaderless       = 5 * time.Second  // how long raft may be without a leader before that is told
	electing         = 15 * time.Second // … while enough voters seem to be up: gossip takes its time to find out that they are not
	tellQuorum       = time.Minute
	leaderlessEffect = "no coordinator leads: nothing gets a home, moves or is changed, and shards are suspended once their lease has lapsed"
)

// quorumWatch tells, once a minute, that raft has had no leader for a while, and why.
type quorumWatch struct {
	since time.Time // when raft last had a leader
	told  time.Time
	up    int // voters then
}

func (q *quorumWatch) look(n *Node) {
	now := time.Now()
	if _, _, ok := n.plane.Leader(); ok {
		if !q.told.IsZero() {
			n.log.Info("there is a leader again")
		}
		q.since, q.told = now, time.Time{}
		return
	}
	if now.Sub(q.since) < leaderless || n.stopping.Load() {
		return
	}
	voters, err := n.plane.VoterIDs()
	if err != nil || len(voters) == 0 { // it never belonged to a cluster, and waits to be taken in
		return
	}
	up := 0
	for _, m := range n.memberList() {
		if m.Status == cluster.Up && slices.Contains(voters, m.Server) {
			up++
		}
	}
	quorum := 2*up > len(voters)
	if quorum && now.Sub(q.since) < electing || up == q.up && now.Sub(q.told) < tellQuorum {
		return
	}
	q.told, q.up = now, up
	text := fmt.Sprintf("no quorum: %d of %d voters can be reached", up, len(voters))
	if quorum {
		text = fmt.Sprintf("no leader is elected, though %d of %d voters seem to be up", up, len(voters))
	}
	if !slices.Contains(voters, n.server) {
		text = fmt.Sprintf("this node's raft server has no vote, so it cannot mend this: a leader has to take it in, and %d of the %d voters that it knows of seem to be up", up, len(voters))
	}
	n.log.Warn(text, "since", now.Sub(q.since).Round(time.Second), "effect", leaderlessEffect, "hint", "start the voters again that are down; docs/quorum.md says what to do")
}

// adopt makes the cluster's ID this node's own, for good.
func (n *Node) adopt(id sharding.Incarnation) {
	if err := n.dir.SetCluster(id); err != nil {
		n.fail(err)
		return
	}
	n.transport.SetClusterID(id)
	if err := n.cluster.Update(func(i *cluster.Info) { i.ClusterID, i.Expect = id, 0 }); err != nil {
		n.log.Warn("the cluster's ID is not told to the others yet", "error", err)
	}
	n.log.Info("joined", "cluster", id)
}

func (n *Node) hintLeader() {
	_, id, ok := n.plane.Leader()
	if !ok {
		return
	}
	for _, m := range n.memberList() {
		if m.Server == id {
			n.data.LeaderHinted(m.Identity(), n.plane.Term())
			return
		}
	}
}

func (n *Node) createCluster(ctx context.Context) {
	id := n.dir.Cluster()
	if id.IsZero() {
		id = sharding.NewIncarnation()
	}
	answer, err := n.request(ctx, coordinator.CreateCluster{Body: protocol.CreateCluster{ClusterID: id, Label: n.cfg.Cluster,
		Settings: protocol.Settings{LeaseTTL: n.cfg.Sharding.LeaseTTL.Milliseconds()}}})
	switch {
	case err != nil || answer.Code == coordinator.CodeNotLeader || answer.Code == coordinator.CodeUnavailable || answer.Code == coordinator.CodeStaleTerm:
		// the next round tries again, here or at the leader
	case answer.Err != "":
		n.log.Warn("the cluster could not be created yet", "reason", answer.Err)
	default:
		n.log.Info("cluster created", "cluster", id)
	}
}

// noteServers keeps in the log which node runs which raft server, so that it can be forgotten by name. A node has one: the one that it had before, on a disk
// that was wiped or is gone, never comes back, and would hold its seat for ever, since a node that is up cannot be forgotten.
func (n *Node) noteServers(ctx context.Context, known []protocol.PutServer) {
	members := n.data.Members()
	runs := map[sharding.Incarnation]int{}
	members = slices.DeleteFunc(members, func(m protocol.MemberRecord) bool {
		return m.Info.Server.IsZero() || !n.isUp(m.Member) || n.leavesRaft(m.Member)
	})
	for _, m := range members {
		runs[m.Info.Server]++
	}
	for _, m := range members {
		if runs[m.Info.Server] > 1 {
			if ok, _ := n.copies.Pass(m.Info.Server.String()); ok {
				n.log.Warn("two nodes run one raft server: one of them has a copy of the other's data_dir. Stop it, and start it with an empty one", "server", m.Info.Server, "of", m.Member)
			}
			continue
		}
		for _, old := range known {
			if old.Member.Node == m.Member.Node && old.Server != m.Info.Server && old.Server != n.server {
				if err := n.removeServer(ctx, old); err != nil {
					n.log.Debug("the former raft server of a node is not removed yet", "of", m.Member, "server", old.Server, "error", err)
					return
				}
				n.log.Info("a node's former raft server is removed: it runs another one, from another data_dir", "of", m.Member, "server", old.Server)
			}
		}
		body := protocol.PutServer{Server: m.Info.Server, Member: m.Member, Address: m.Info.Address}
		if slices.Contains(known, body) {
			continue
		}
		if answer, err := n.request(ctx, coordinator.PutServer{Body: body}); err != nil || answer.Err != "" {
			return // the next round tries again
		}
	}
}

// join makes this node part of a cluster: by its join addresses, or by founding one.
func (n *Node) join(ctx context.Context) error {
	if err := n.cluster.Join(ctx); err != nil {
		return err
	}
	if !n.isServer || n.plane.HasState() {
		return nil
	}
	if !n.dir.Cluster().IsZero() {
		n.log.Warn("this server's raft log is gone, though it belonged to a cluster: it waits to be added again", "cluster", n.dir.Cluster())
		return nil
	}
	expect := n.cfg.Raft.BootstrapExpect
	if expect <= 1 {
		if len(n.cfg.Gossip.Join) > 0 {
			return nil // a node with join addresses never founds a cluster alone (spec 2.1)
		}
		return n.plane.Bootstrap(ctx)
	}
	return n.bootstrapTogether(ctx, expect)
}

// bootstrapTogether waits until expect nodes that expect as many see one another; then the first by name founds the cluster and the leader takes in
// the others. A node that meets a cluster meanwhile is taken in by that.
func (n *Node) bootstrapTogether(ctx context.Context, expect int) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	said := time.Time{}
	for {
		var waiting []sharding.NodeID
		for _, m := range n.memberList() {
			if !m.ClusterID.IsZero() || n.plane.HasState() {
				return nil
			}
			if m.Status == cluster.Up && !m.Server.IsZero() {
				if m.Expect != expect {
					return fmt.Errorf("raft.bootstrap_expect is %d here and %d on node %q: set the same number on all", expect, max(m.Expect, 1), m.Name)
				}
				waiting = append(waiting, m.Name)
			}
		}
		if len(waiting) >= expect {
			if waiting[0] == n.self.Node {
				return n.plane.Bootstrap(ctx)
			}
		} else if time.Since(said) > time.Minute {
			said = time.Now()
			n.log.Info("waiting for more nodes to found the cluster", "here", len(waiting), "expected", expect)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// RefusedError says that the coordinator refuses this node's region, so that the node cannot run as configured.
type RefusedError struct {
	Type   sharding.TypeName
	Code   string
	Detail string
}

// Error gives the coordinator's words.
func (e *RefusedError) Error() string {
	if e.Type == "" {
		return "the cluster refuses this node: " + e.Detail
	}
	return fmt.Sprintf("the cluster refuses type %q of this node: %s", e.Type, e.Detail)
}

// IsConfig says whether an error of Run comes from what the user configured, for the exit code.
func IsConfig(err error) bool {
	var refused *RefusedError
	var strategy *StrategyError
	var certificate *TLSError
	var misfit *NotAcceptedError
	var key *cluster.KeyError
	var other *cluster.OtherClusterError
	return errors.As(err, &refused) || errors.As(err, &strategy) || errors.As(err, &certificate) || errors.As(err, &misfit) || errors.As(err, &key) || errors.As(err, &other)
}
