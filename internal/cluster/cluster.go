// Package cluster is the only importer of Serf. It turns gossip into sorted membership events: who is there, at which addresses, under
// which incarnation, how far away. All of it is a hint (spec 2.1): ownership is decided by the coordinator and the leases.
//
// Goroutines: one reads Serf's events and calls Config.OnChange, one looks for remembered members until all are seen; both end with Close. Each try to join
// has one, whose connections Close ends.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"

	"github.com/droverhq/drover/internal/logbridge"
	"github.com/droverhq/drover/internal/loglimit"
	"github.com/droverhq/drover/sharding"
)

// Status is Serf's word on a member.
type Status uint8

// The statuses.
const (
	Up Status = iota
	Leaving
	Left
	Failed
)

// String gives the status as users see it.
func (s Status) String() string {
	switch s {
	case Up:
		return "up"
	case Leaving:
		return "leaving"
	case Left:
		return "left"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Coordinate is a Serf network coordinate, in seconds. Zero Vec: not known.
type Coordinate struct {
	Vec                       []float64
	Error, Adjustment, Height float64
}

// Info is what a node tells of itself in its tags (512 bytes encoded, spec 2.1).
type Info struct {
	Incarnation sharding.Incarnation
	ClusterID   sharding.Incarnation // zero until the node belongs to a cluster
	Server      sharding.Incarnation // its raft server's UUID; zero: no coordinator role
	Transport   string               // host:port
	HTTP        string
	Roles       []string
	Zone        string
	Version     string
	Expect      int // raft.bootstrap_expect, while it waits to bootstrap; else 0
	Tags        map[string]string
}

// Member is one node as gossip knows it.
type Member struct {
	Name   sharding.NodeID
	Status Status
	Gossip string // host:port
	Info
}

// Identity gives the process that this member is.
func (m Member) Identity() sharding.Member {
	return sharding.Member{Node: m.Name, Incarnation: m.Incarnation}
}

// Config opens a Cluster.
type Config struct {
	Name sharding.NodeID
	Bind string // host:port
	Keys [][]byte
	Join []string
	Info Info
	// Snapshot is a file in which the members are remembered, so that a node that restarts finds them without a join address. Empty: none.
	Snapshot string
	// Remember is a file with the gossip addresses of all members, those that have left too. Empty: none.
	Remember string
	Logger   *slog.Logger
	// OnChange is called, from one goroutine, with all members sorted by name whenever anything about them changed.
	OnChange func([]Member)
	// ReclaimAfter is how long a failed node's name stays with its old address; default 3 s (spec 5.1).
	ReclaimAfter time.Duration
	// Fast makes failure detection several times quicker, for tests.
	Fast bool
}

// OtherClusterError says that a node of another cluster answered.
type OtherClusterError struct {
	Node      sharding.NodeID
	Ours, Its sharding.Incarnation
	Address   string
}

// Error names both clusters and the next step.
func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("node %q at %s belongs to another cluster (its cluster ID is %s, ours is %s): correct gossip.join, or start with an empty data_dir to join that cluster",
		e.Node, e.Address, e.Its, e.Ours)
}

// KeyError says that a join address uses another gossip key, or one side uses none.
type KeyError struct {
	Address string
	Detail  string
}

// Error names the address and the next step.
func (e *KeyError) Error() string {
	return fmt.Sprintf("%s does not share our gossip key (%s): set the same gossip.keys on every node", e.Address, e.Detail)
}

// NameTakenError says that a live node at another address has our name.
type NameTakenError struct {
	Name    sharding.NodeID
	Address string
}

// Error names the holder and the next step.
func (e *NameTakenError) Error() string {
	return fmt.Sprintf("the name %q is in use by the node at %s: choose another name, or wait until that node is seen as failed", e.Name, e.Address)
}

// Cluster is this node's membership. Its methods may be called from any goroutine.
type Cluster struct {
	cfg    Config
	serf   *serf.Serf
	events chan serf.Event
	ctx    context.Context // ends with Close
	end    context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}
	limit  loglimit.Limiter

	reclaimAfter time.Duration
	names        atomic.Pointer[map[string]bool] // of the members, as watch saw them last

	mu                 sync.Mutex
	info               Info
	bound              string // host:port of gossip, once it is bound
	refusal            error  // the last reason why a merge was refused
	unseen, remembered memory // see remember.go
	moved              bool   // a failed predecessor at another address is still known: announce again once its name is free
}

// Open binds the gossip port and starts membership. It does not join: see Join. A port in use is an error that names the address.
func Open(cfg Config) (*Cluster, error) {
	host, portText, err := net.SplitHostPort(cfg.Bind)
	if err != nil {
		return nil, fmt.Errorf("gossip.bind = %q: want host:port: %w", cfg.Bind, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("gossip.bind = %q: port: %w", cfg.Bind, err)
	}
	c := &Cluster{cfg: cfg, events: make(chan serf.Event, 256), wake: make(chan struct{}, 1), limit: loglimit.Limiter{Every: time.Minute}, info: cfg.Info}
	c.ctx, c.end = context.WithCancel(context.Background())
	sc := serf.DefaultConfig()
	sc.NodeName = string(cfg.Name)
	sc.EventCh = c.events
	sc.Tags = encodeTags(cfg.Info)
	sc.EnableNameConflictResolution = false // a restart at another address must not vote itself down; see guard
	sc.LogOutput = nil
	sc.BroadcastTimeout = 2 * time.Second // of a goodbye: when all nodes end together there is nobody left to hear it
	logger := log.New(logbridge.New(cfg.Logger, "gossip"), "", 0)
	sc.Logger = logger
	ml := memberlist.DefaultLANConfig()
	ml.Logger = logger
	ml.LogOutput = nil
	ml.ProbeInterval, ml.ProbeTimeout, ml.SuspicionMult = 500*time.Millisecond, 250*time.Millisecond, 3
	ml.GossipInterval = 100 * time.Millisecond
	c.reclaimAfter = cmp.Or(cfg.ReclaimAfter, 3*time.Second)
	ml.DeadNodeReclaimTime = c.reclaimAfter
	if cfg.Fast {
		ml.ProbeInterval, ml.ProbeTimeout, ml.SuspicionMult = 200*time.Millisecond, 100*time.Millisecond, 2
		ml.GossipInterval = 50 * time.Millisecond
		sc.LeavePropagateDelay = 300 * time.Millisecond
	}
	if len(cfg.Keys) > 0 {
		ring, err := memberlist.NewKeyring(cfg.Keys, cfg.Keys[0])
		if err != nil {
			return nil, fmt.Errorf("gossip.keys: %w", err)
		}
		ml.Keyring = ring
	}
	ml.Merge = guard{c}
	ml.Alive = guard{c}
	sc.MemberlistConfig = ml
	sc.SnapshotPath, sc.RejoinAfterLeave = cfg.Snapshot, true
	// Not left to Serf, which leaves goroutines behind when it cannot bind.
	transport, err := bind(c.ctx, host, port, logger)
	if err != nil {
		c.end()
		return nil, bindError(cfg.Bind, err)
	}
	ml.Transport = transport
	s, err := serf.Create(sc)
	if err != nil {
		c.end()
		return nil, errors.Join(fmt.Errorf("gossip cannot start: %w", err), transport.Shutdown())
	}
	c.serf = s
	local := s.LocalMember()
	c.mu.Lock()
	c.bound = net.JoinHostPort(local.Addr.String(), strconv.Itoa(int(local.Port)))
	c.mu.Unlock()
	if cfg.Remember != "" {
		if c.unseen, err = recall(cfg.Remember); err != nil {
			cfg.Logger.Warn("the members that were known before are forgotten: this node finds the others by gossip.join alone", "error", err)
		}
		delete(c.unseen, cfg.Name)
		c.wg.Add(1)
		go c.seek()
	}
	c.wg.Add(1)
	go c.watch()
	return c, nil
}

// Members that change are told at once: a new node's address is needed before its first message. After atOnce changes in a row there is a pause between
// them: a peer that changes its tags all the time would have every node look for its peers, and register all its shards, as often.
const (
	atOnce = 30
	pause  = 200 * time.Millisecond
)

// watch owns Serf's event channel. Events only wake it: what OnChange gets is the whole, sorted list, so no order of events matters.
func (c *Cluster) watch() {
	defer c.wg.Done()
	c.cfg.OnChange(c.Members())
	tick := time.NewTicker(5 * time.Second) // coordinates drift, and once in a while an event is lost
	defer tick.Stop()
	var last []Member
	told, budget := time.Now(), atOnce
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.events:
		case <-c.wake:
		case <-tick.C:
		}
		for drained := false; !drained; {
			select {
			case <-c.events:
			default:
				drained = true
			}
		}
		now := c.Members()
		c.remember(now)
		if slices.EqualFunc(last, now, sameMember) {
			continue
		}
		last = now
		names := make(map[string]bool, len(now))
		for _, m := range now {
			names[string(m.Name)] = true
		}
		c.names.Store(&names)
		c.cfg.OnChange(now)
		budget = min(budget+int(time.Since(told)/pause), atOnce)
		told = time.Now()
		if budget--; budget > 0 {
			continue
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func sameMember(a, b Member) bool {
	return a.Name == b.Name && a.Status == b.Status && a.Gossip == b.Gossip && a.Incarnation == b.Incarnation &&
		a.ClusterID == b.ClusterID && a.Server == b.Server && a.Transport == b.Transport && a.HTTP == b.HTTP && a.Zone == b.Zone &&
		a.Version == b.Version && a.Expect == b.Expect && slices.Equal(a.Roles, b.Roles)
}

// Members gives every member that gossip knows, sorted by name. Members whose tags do not parse are left out.
func (c *Cluster) Members() []Member {
	known := c.serf.Members()
	out := make([]Member, 0, len(known))
	for _, m := range known {
		info, err := decodeTags(m.Tags)
		if err != nil {
			if ok, hidden := c.limit.Pass("tags of " + m.Name); ok {
				c.cfg.Logger.Warn("a member's tags do not parse: it is ignored", "node", m.Name, "error", err, "repeated", hidden)
			}
			continue
		}
		out = append(out, Member{Name: sharding.NodeID(m.Name), Status: status(m.Status),
			Gossip: net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port))), Info: info})
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

func status(s serf.MemberStatus) Status {
	switch s {
	case serf.StatusAlive:
		return Up
	case serf.StatusLeaving:
		return Leaving
	case serf.StatusLeft:
		return Left
	}
	return Failed
}

// Coordinate gives a member's network coordinate, if known.
func (c *Cluster) Coordinate(name sharding.NodeID) (Coordinate, bool) {
	co, ok := c.serf.GetCachedCoordinate(string(name))
	if !ok || co == nil {
		return Coordinate{}, false
	}
	return Coordinate{Vec: slices.Clone(co.Vec), Error: co.Error, Adjustment: co.Adjustment, Height: co.Height}, true
}

// Update changes what this node tells of itself. It returns once the change is on its way.
func (c *Cluster) Update(change func(*Info)) error {
	c.mu.Lock()
	change(&c.info)
	tags := encodeTags(c.info)
	c.mu.Unlock()
	if err := c.serf.SetTags(tags); err != nil {
		return fmt.Errorf("gossip tags: %w", err)
	}
	c.poke()
	return nil
}

func (c *Cluster) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Join tries the addresses of Config.Join until one answers or ctx ends, with a line a minute. It returns nil at once where there is none;
// a node of another cluster or key ends it with *OtherClusterError or *KeyError. A taken name is retried for takenFor, long enough for a crashed
// predecessor to be seen as failed, then ends it with *NameTakenError.
func (c *Cluster) Join(ctx context.Context) error {
	if len(c.cfg.Join) == 0 {
		return nil
	}
	addresses := c.others(ctx, c.cfg.Join)
	if len(addresses) == 0 {
		c.cfg.Logger.Warn("gossip.join names this node itself and nobody else: it waits for others to join it. Name another node's gossip.bind, or remove gossip.join to found a cluster",
			"join", c.cfg.Join, "gossip", c.Addr())
		return nil
	}
	const takenFor = 30 * time.Second
	var said, takenSince time.Time
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		c.setRefusal(nil)
		n, err := c.tryJoin(ctx, addresses)
		if n > 0 {
			c.poke()
			return c.announceMoved(ctx)
		}
		cause := c.lastRefusal()
		if cause == nil {
			cause = trouble(ctx, addresses, err)
		}
		var other *OtherClusterError
		var key *KeyError
		var taken *NameTakenError
		switch {
		case errors.As(cause, &other), errors.As(cause, &key):
			return cause
		case errors.As(cause, &taken):
			wait = min(wait, time.Second)
			if takenSince.IsZero() {
				takenSince = time.Now()
			} else if time.Since(takenSince) > takenFor {
				return cause
			}
		}
		if now := time.Now(); now.Sub(said) >= time.Minute {
			said = now
			if cause == nil {
				cause = err
			}
			c.cfg.Logger.Warn("no join address answers yet: trying on", "join", addresses, "error", cause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ctx.Done():
			return errors.New("gossip has stopped")
		case <-time.After(wait):
		}
	}
}

// tryJoin tries addresses once. A join that ctx has ended goes on until it has its answer, or the cluster is closed; it harms nobody.
func (c *Cluster) tryJoin(ctx context.Context, addresses []string) (int, error) {
	type outcome struct {
		n   int
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := c.serf.Join(addresses, true)
		done <- outcome{n, err}
	}()
	select {
	case o := <-done:
		return o.n, o.err
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	return 0, nil
}

// announceMoved waits, after a join that met a failed predecessor at another address, until its name is free, and announces this node
// again: the others ignored its first word.
func (c *Cluster) announceMoved(ctx context.Context) error {
	c.mu.Lock()
	moved := c.moved
	c.moved = false
	c.mu.Unlock()
	if !moved {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.reclaimAfter + 100*time.Millisecond):
	}
	return c.Update(func(*Info) {})
}

func (c *Cluster) setRefusal(err error) {
	c.mu.Lock()
	c.refusal = err
	c.mu.Unlock()
}

func (c *Cluster) lastRefusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

// Forget drops a failed or left member from everybody's list.
func (c *Cluster) Forget(name sharding.NodeID) error {
	if err := c.serf.RemoveFailedNodePrune(string(name)); err != nil {
		return fmt.Errorf("gossip could not forget %q: %w", name, err)
	}
	c.poke()
	return nil
}

// Leave tells the others that this node goes; it blocks for a second or two, until the word has spread.
func (c *Cluster) Leave() error { return c.serf.Leave() }

// Close stops membership without a word. OnChange is not called after it has returned.
func (c *Cluster) Close() error {
	c.end()
	err := c.serf.Shutdown()
	c.wg.Wait()
	return err
}

// MaxMembers bounds the members, those that are gone included until Serf lets go of them: names cost whoever knows the gossip key nothing.
const MaxMembers = 4096

// guard refuses to merge with another cluster, and lets no second node take a living node's name.
type guard struct{ c *Cluster }

// NotifyMerge implements memberlist.MergeDelegate: called on both sides of a join.
func (g guard) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if err := g.check(n); err != nil {
			g.c.setRefusal(err)
			return err
		}
	}
	return nil
}

// NotifyAlive implements memberlist.AliveDelegate: word of a node by gossip.
func (g guard) NotifyAlive(n *memberlist.Node) error { return g.check(n) }

func (g guard) check(n *memberlist.Node) error {
	addr := net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
	if names := g.c.names.Load(); names != nil && len(*names) >= MaxMembers && !(*names)[n.Name] {
		return fmt.Errorf("node %q at %s: there are %d members, and no more are taken", n.Name, addr, MaxMembers)
	}
	tags, err := decodeMeta(n.Meta)
	if err != nil {
		return fmt.Errorf("node %q at %s: %w", n.Name, addr, err)
	}
	info, err := decodeTags(tags)
	if err != nil {
		return fmt.Errorf("node %q at %s: %w", n.Name, addr, err)
	}
	g.c.mu.Lock()
	ours, bound := g.c.info, g.c.bound
	g.c.mu.Unlock()
	if !info.ClusterID.IsZero() && !ours.ClusterID.IsZero() && info.ClusterID != ours.ClusterID {
		return &OtherClusterError{Node: sharding.NodeID(n.Name), Ours: ours.ClusterID, Its: info.ClusterID, Address: addr}
	}
	if n.Name == string(g.c.cfg.Name) && info.Incarnation != ours.Incarnation && addr != bound {
		switch n.State {
		case memberlist.StateAlive, memberlist.StateSuspect:
			return &NameTakenError{Name: g.c.cfg.Name, Address: addr}
		case memberlist.StateDead:
			g.c.mu.Lock()
			g.c.moved = true
			g.c.mu.Unlock()
		}
	}
	return nil
}

// Addr gives the gossip address that is bound, host:port.
func (c *Cluster) Addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound
}
