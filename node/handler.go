package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/controlplane"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// handler takes what the transport brings. It waits until the node's parts stand.
type handler struct{ n *Node }

// Opened implements transport.Handler, as do the following.
func (h handler) Opened(transport.Peer, transport.Class) {}

func (h handler) Frame(from transport.Peer, class transport.Class, frame []byte) {
	if !h.n.await() {
		return
	}
	if class == transport.Data {
		h.n.data.HandleData(from.Member, frame)
		return
	}
	m, err := protocol.DecodeFrame(frame)
	if err == nil && m.FrameKind() >= protocol.FrameDeliver {
		err = fmt.Errorf("a %s travels on the data connection alone", m.FrameKind())
	}
	if err != nil {
		h.n.data.Counters().BadFrames.Add(1)
		if ok, hidden := h.n.badFrames.Pass(string(from.Member.Node)); ok {
			h.n.log.Warn("a control frame cannot be read: it is dropped", "from", from.Member, "error", err, "repeated", hidden)
		}
		return
	}
	if d, ok := m.(protocol.Directive); ok {
		h.n.data.HandleControl(from.Member, from.Coordinator, d)
		return
	}
	if h.n.plane == nil {
		h.n.log.Debug("a message for a coordinator came to a node without that role", "from", from.Member, "kind", m.FrameKind())
		return
	}
	if r, ok := m.(*protocol.Register); ok && !from.Coordinator {
		r.Info.Server = sharding.Incarnation{} // its identity does not allow it to take part in raft
	}
	h.n.plane.Handle(coordinator.Received{From: from.Member, Message: m})
}

func (h handler) Closed(from transport.Peer, class transport.Class, err error) {
	if class == transport.Data && h.n.await() {
		h.n.data.PeerClosed(from.Member)
	}
}

func (h handler) Up(to sharding.Member, class transport.Class) {
	if class == transport.Data && h.n.await() {
		h.n.data.PeerUp(to)
	}
}

func (h handler) Down(to sharding.Member, class transport.Class, err error) {
	if class == transport.Data && h.n.await() {
		h.n.data.PeerDown(to)
	}
}

func (h handler) Call(ctx context.Context, from transport.Peer, method string, body []byte) ([]byte, error) {
	select {
	case <-h.n.ready:
	case <-h.n.ended:
		return nil, errors.New("the node is not serving")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return h.n.answerCall(ctx, from, method, body)
}

// do carries out the coordinator's commands; it runs on the plane's goroutine and blocks nowhere.
func (n *Node) do(c coordinator.Command) {
	switch c := c.(type) {
	case coordinator.Send:
		if u, ok := c.Message.(*protocol.ShardMapUpdate); ok && (u.More || u.Part > 0) {
			n.sendPart(c.To, u)
			return
		}
		n.sendControl(c.To, c.Message)
	case coordinator.Broadcast:
		n.sendControl(n.self, c.Message)
		for _, m := range n.memberList() {
			if m.Status == cluster.Up && m.Name != n.self.Node {
				n.sendControl(m.Identity(), c.Message)
			}
		}
	case coordinator.AskStrategy:
		n.strategist.Ask(c)
	case coordinator.PrepareStrategy:
		n.strategist.Prepare(c.Type, c.Spec)
	case coordinator.PrepareShadow:
		n.strategist.PrepareShadow(c.Type, c.Spec)
	case coordinator.Answer:
		n.requests.end(c)
	case coordinator.Note:
		n.note(c)
	default:
		n.log.Error("the coordinator has a command that nobody runs", "command", c)
	}
}

func (n *Node) sendControl(to sharding.Member, m protocol.Message) {
	frame, err := protocol.AppendFrame(nil, m)
	if err == nil {
		err = n.transport.Send(to, transport.Control, frame)
	}
	if errors.Is(err, transport.ErrTooLarge) { // repeats will not help
		if ok, hidden := n.tooLarge.Pass(m.FrameKind().String()); ok {
			n.log.Warn("a control message is too large to be sent", "to", to, "kind", m.FrameKind(), "error", err, "repeated", hidden)
		}
		return
	}
	if err != nil { // the machine repeats what matters
		n.log.Debug("a control message could not be sent", "to", to, "kind", m.FrameKind(), "error", err)
	}
}

// sendPart gathers the parts of a map update, which the coordinator gives one after the other, and sends them as one: together they may be larger
// than any queue. What the transport has no room for the coordinator sends again, once a renewal tells that it has not been applied.
func (n *Node) sendPart(to sharding.Member, u *protocol.ShardMapUpdate) {
	if u.Part == 0 {
		n.parts = nil
	}
	n.parts = append(n.parts, u)
	if u.More {
		return
	}
	parts := n.parts // shared with the updates of other members, and changed by nobody
	n.parts = nil
	err := n.transport.SendBulk(to, transport.Control, func(yield func([]byte) bool) {
		var frame []byte
		for _, u := range parts {
			var err error
			if frame, err = protocol.AppendFrame(frame[:0], u); err != nil {
				n.log.Error("a part of the shard map cannot be sent: the node gets no map", "to", to, "part", u.Part, "error", err)
				return
			}
			if !yield(frame) {
				return
			}
		}
	})
	if err != nil {
		n.log.Debug("a map update could not be sent", "to", to, "parts", len(parts), "error", err)
	}
}

func (n *Node) note(c coordinator.Note) {
	n.metrics.note(c)
	level := slog.LevelInfo
	if c.Level == coordinator.Warn {
		level = slog.LevelWarn
	}
	attrs := []any{"event", c.Kind}
	if c.Type != "" {
		attrs = append(attrs, "type", c.Type)
	}
	switch c.Kind {
	case coordinator.NoteShardMoved, coordinator.NoteHandOffStarted, coordinator.NoteHandOffTimedOut, coordinator.NoteShardFenced, coordinator.NoteShardReleased:
		attrs = append(attrs, "shard", c.Shard)
		if level == slog.LevelInfo {
			level = slog.LevelDebug // one line a shard is too much for a cluster of thousands
		}
	}
	switch c.Kind {
	case coordinator.NoteEntryRefused: // two entries met: the later one finds its work done
		level = slog.LevelDebug
	case coordinator.NoteNoCandidates: // so it is while a cluster starts and ends
		level = slog.LevelInfo
	case coordinator.NoteLeaseLapsed:
		if n.stopping.Load() { // those that end together wait for nobody's lease
			level = slog.LevelInfo
		}
	case coordinator.NoteShardsHomed:
		if c.Count == 1 { // on first contact, one after the other
			level = slog.LevelDebug
		}
	}
	if c.Node != "" {
		attrs = append(attrs, "of", c.Node)
	}
	n.log.Log(context.Background(), level, c.Text, attrs...)
}

func (n *Node) memberList() []cluster.Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.members
}

// membersChanged is called by gossip's goroutine.
func (n *Node) membersChanged(members []cluster.Member) {
	n.mu.Lock()
	n.members = members
	known := map[sharding.NodeID]sharding.Incarnation{}
	for _, m := range members {
		known[m.Name] = m.Incarnation
	}
	maps.DeleteFunc(n.since, func(name sharding.NodeID, _ time.Time) bool { _, ok := known[name]; return !ok })
	maps.DeleteFunc(n.leavers, func(m sharding.Member, _ struct{}) bool { return known[m.Node] != m.Incarnation })
	for _, m := range members {
		switch _, seen := n.since[m.Name]; {
		case m.Status != cluster.Failed:
			delete(n.since, m.Name)
		case !seen:
			n.since[m.Name] = time.Now()
		}
	}
	n.mu.Unlock()
	select {
	case <-n.ready:
		n.tellMembers()
	default: // start tells, once all parts stand
	}
}

// tellMembers passes on what gossip knows: addresses to the transport, statuses to the coordinator, servers to raft's steward.
func (n *Node) tellMembers() {
	n.telling.Lock()
	defer n.telling.Unlock()
	members := n.memberList()
	var targets []transport.Target
	for _, m := range members {
		if m.Name != n.self.Node && m.Transport != "" && m.Status != cluster.Left {
			targets = append(targets, transport.Target{Member: m.Identity(), Addr: m.Transport})
		}
	}
	n.transport.SetPeers(targets)
	if n.plane != nil {
		n.tellCoordinator()
		n.tellServers()
	}
	n.data.MembershipChanged()
}

// tellCoordinator tells this node's coordinator what gossip says of each member: its status and its network coordinate.
func (n *Node) tellCoordinator() {
	for _, m := range n.memberList() {
		n.plane.Post(coordinator.MemberSeen{Member: m.Identity(), Status: statusOf(m.Status), Coord: n.coordOf(m.Name)})
	}
}

// tellServers tells raft's steward which coordinator-capable nodes there are. Gossip says who is up, and may say that a server leaves; which server a
// node runs, and where, counts only as the node registered it over an authenticated connection.
func (n *Node) tellServers() {
	registered := map[sharding.Member]protocol.NodeInfo{}
	for _, m := range n.data.Members() {
		registered[m.Member] = m.Info
	}
	n.mu.Lock()
	var servers []controlplane.Server
	for _, m := range n.members {
		_, leaving := n.leavers[m.Identity()]
		s := controlplane.Server{ID: m.Server, Address: m.Transport, Up: m.Status == cluster.Up, Left: m.Status == cluster.Left || m.Status == cluster.Leaving, Leaving: leaving || m.Server.IsZero()}
		if info := registered[m.Identity()]; !info.Server.IsZero() {
			s.ID, s.Address, s.Registered = info.Server, info.Address, true
		}
		if s.ID.IsZero() {
			continue
		}
		if at, ok := n.since[m.Name]; ok {
			s.Gone = time.Since(at)
		}
		servers = append(servers, s)
	}
	n.mu.Unlock()
	n.plane.SetKnown(servers)
}

func statusOf(s cluster.Status) coordinator.MemberStatus {
	switch s {
	case cluster.Up, cluster.Leaving:
		return coordinator.MemberUp
	case cluster.Left:
		return coordinator.MemberLeft
	}
	return coordinator.MemberFailed
}

func (n *Node) coordOf(name sharding.NodeID) pluginapi.Coord {
	if n.cluster == nil { // before Open has returned
		return pluginapi.Coord{}
	}
	c, ok := n.cluster.Coordinate(name)
	if !ok {
		return pluginapi.Coord{}
	}
	return pluginapi.Coord{Vec: c.Vec, Error: c.Error, Adjustment: c.Adjustment, Height: c.Height}
}

// registered: the coordinator knows this node, so the cluster's ID is certain. watch writes it down: the session must not wait for a disk.
func (n *Node) registered(id sharding.Incarnation, _ uint64) {
	if n.dir.Cluster() == id {
		return
	}
	select {
	case n.named <- id:
	default: // told already
	}
}

func (n *Node) refused(r protocol.Refusal) {
	n.fail(&RefusedError{Type: r.Type, Code: r.Code, Detail: r.Detail})
}

func (n *Node) leaderChanged(m sharding.Member, term uint64) {
	if m.IsZero() {
		n.log.Warn("no coordinator leads at present")
		return
	}
	n.log.Info("following the leader", "leader", m, "term", term)
}
