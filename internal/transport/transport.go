package transport

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/droverhq/drover/internal/loglimit"
	"github.com/droverhq/drover/sharding"
)

// Handler takes what the transport brings. Methods for one (peer, class, direction) are called one after another; others run
// beside them. A method that blocks holds up that stream alone. No method may call Close or Drain.
type Handler interface {
	// Opened begins an inbound stream: frames of this peer and class follow.
	Opened(from Peer, class Class)
	// Frame brings one frame, in the order of the peer's Send. It is valid during the call only.
	Frame(from Peer, class Class, frame []byte)
	// Closed ends an inbound stream, once, after its last Frame. err is nil if the peer drained it: then nothing was lost.
	Closed(from Peer, class Class, err error)
	// Up says that an outbound stream stands, and the peer has had Opened.
	Up(to sharding.Member, class Class)
	// Down ends a generation of frames to a peer, once: all that Send accepted since the Down before has been delivered, or
	// is lost from some point on. Without Up before it, no connection came about. err is nil after Drain: then
	// nothing was lost.
	Down(to sharding.Member, class Class, err error)
	// Call answers a request. body belongs to the callee. ctx ends with the caller's deadline or connection.
	Call(ctx context.Context, from Peer, method string, body []byte) ([]byte, error)
}

// Target is a member and where its transport listens, as host:port.
type Target struct {
	Member sharding.Member
	Addr   string
}

type linkKey struct {
	member sharding.Member
	class  Class
}

// Transport is one node's end of all its connections.
type Transport struct {
	cfg      Config
	handler  Handler
	log      *slog.Logger
	counters counters

	lis     net.Listener
	raft    *connListener
	carrier carrier
	conns   connSet
	door    door

	refusals loglimit.Limiter

	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // every goroutine but those of the carrier

	idMu sync.RWMutex
	id   identity

	mu      sync.Mutex
	closed  bool
	targets map[sharding.Member]string
	links   map[linkKey]*link
	calls   map[sharding.Member]*caller
	self    map[Class]*selfLink

	inMu    sync.Mutex
	inbound map[linkKey]*inbound
}

// New listens on cfg.Bind and serves. The error of a port in use names it.
func New(cfg Config, handler Handler) (*Transport, error) {
	cfg.fill()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ring, err := newKeyring(cfg.Keys)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	lis, err := net.Listen("tcp", cfg.Bind)
	if err != nil {
		return nil, fmt.Errorf("transport.bind %q: %w: choose a free port with [transport] bind", cfg.Bind, err)
	}
	if cfg.Advertise == "" {
		cfg.Advertise = lis.Addr().String()
	}
	t := &Transport{
		cfg: cfg, handler: handler, log: cfg.Logger, lis: lis, raft: newConnListener(lis.Addr()),
		targets: map[sharding.Member]string{}, links: map[linkKey]*link{}, calls: map[sharding.Member]*caller{},
		refusals: loglimit.Limiter{Every: time.Minute},
		self:     map[Class]*selfLink{}, inbound: map[linkKey]*inbound{},
	}
	t.door = door{most: cfg.Handshakes, mostOf: min(cfg.Handshakes, handshakesOfAddr), from: map[netip.Addr]int{}}
	t.conns.all, t.conns.uses = map[*conn]struct{}{}, map[sharding.NodeID]*use{}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.id = identity{self: cfg.greeting(), ring: ring, creds: cfg.TLS, timeout: cfg.HandshakeTimeout, faults: cfg.Faults}
	t.id.localhost = t.id.self.mode == modeOpen
	grpcLog.open(t.log)
	t.carrier = newGRPCCarrier(t, lis.Addr(), cfg.HandshakeTimeout)
	cfg.Faults.attach(t)
	t.work.Go(t.acceptLoop)
	if cfg.TLS != nil {
		t.work.Go(t.watchExpiry)
	}
	return t, nil
}

// A node says each day that its certificate will end soon. The end breaks no connection that stands, and lets no other be made: so nobody would
// notice it before the next restart or hiccup of the network, and then on all nodes at once that were set up together.
const (
	expirySoon = 30 * 24 * time.Hour
	expiryLook = 24 * time.Hour
)

func (t *Transport) watchExpiry() {
	ends := t.cfg.TLS.Certificate.Leaf.NotAfter
	ticker := time.NewTicker(expiryLook)
	defer ticker.Stop()
	for {
		if left := time.Until(ends); left < expirySoon {
			text := "this node's certificate expires soon"
			if left <= 0 {
				text = "this node's certificate has expired: no new connection with it is accepted"
			}
			t.log.Warn(text, "expires", ends.UTC().Format(time.RFC3339), "hint", "make another with \"drover tls cert\", and start the node with it")
		}
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
	}
}

// Addr is where this node listens.
func (t *Transport) Addr() net.Addr { return t.lis.Addr() }

// SetClusterID makes the cluster's ID known once a node has bootstrapped or joined. Connections of another cluster end.
func (t *Transport) SetClusterID(id sharding.Incarnation) {
	t.idMu.Lock()
	t.id.self.clusterID = id
	t.idMu.Unlock()
	t.conns.closeIf(func(c *conn) bool { return !c.peer.ClusterID.IsZero() && c.peer.ClusterID != id },
		errors.New("the peer belongs to another cluster"))
}

// SetKeys replaces the keyring. Connections that stand stay. Whether there is a key at all cannot change.
func (t *Transport) SetKeys(keys [][]byte) error {
	ring, err := newKeyring(keys)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if (len(keys) > 0) != (len(t.cfg.Keys) > 0) {
		return errors.New("transport: gossip keys cannot be introduced or given up while a node runs")
	}
	t.idMu.Lock()
	defer t.idMu.Unlock()
	t.id.ring = ring
	return nil
}

func (t *Transport) identity() identity {
	t.idMu.RLock()
	defer t.idMu.RUnlock()
	return t.id
}

// SetPeers replaces the addresses that are dialled, which happens on the first Send or Call. A member whose name has come
// back under another incarnation loses its connections in both directions; one that is merely gone is not dialled any more,
// and keeps connections while it has one to this node.
func (t *Transport) SetPeers(targets []Target) {
	next := make(map[sharding.Member]string, len(targets))
	names := make(map[sharding.NodeID]struct{}, len(targets))
	for _, target := range targets {
		next[target.Member] = target.Addr
		names[target.Member.Node] = struct{}{}
	}
	t.mu.Lock()
	replaced := map[sharding.Member]struct{}{}
	for m := range t.targets {
		_, stays := next[m]
		if _, back := names[m.Node]; back && !stays {
			replaced[m] = struct{}{}
		}
	}
	t.targets = next
	t.mu.Unlock()

	isReplaced := func(m sharding.Member) bool { _, is := replaced[m]; return is }
	t.dropUnwanted(isReplaced) // first: so links end for this reason, not because their connection does
	t.conns.closeIf(func(c *conn) bool { return isReplaced(c.peer.Member) }, errReplaced)
}

var (
	errReplaced = errors.New("the node has come back under another incarnation")
	errGone     = errors.New("the node is gone")
)

// dropUnwanted ends what leads to members that are neither a target nor connected to this node.
func (t *Transport) dropUnwanted(replaced func(sharding.Member) bool) {
	t.mu.Lock()
	var links []*link
	var calls []*caller
	wanted := func(m sharding.Member) bool {
		_, ok := t.addressLocked(m)
		return ok && !replaced(m)
	}
	for key, l := range t.links {
		if !wanted(key.member) {
			links = append(links, l)
		}
	}
	for m, c := range t.calls {
		if !wanted(m) {
			calls = append(calls, c)
			delete(t.calls, m)
		}
	}
	t.mu.Unlock()
	for _, l := range links {
		if replaced(l.to) {
			l.cancel(errReplaced)
		} else {
			l.cancel(errGone)
		}
	}
	for _, c := range calls {
		c.close()
	}
}

func (t *Transport) address(m sharding.Member) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addressLocked(m)
}

// addressLocked falls back on what a peer said itself in the handshake of a connection that stands: the answer to a
// node's first message need not wait until gossip has told of the node.
func (t *Transport) addressLocked(m sharding.Member) (string, bool) {
	if addr, ok := t.targets[m]; ok {
		return addr, true
	}
	return t.conns.inboundAddr(m)
}

// Send queues a frame (a copy of it) for a member, class Control or Data, and dials if need be. Frames of one
// (member, class) arrive in the order of Send. An error means that the frame surely does not arrive: ErrBackPressure,
// ErrUnknownPeer, ErrTooLarge, ErrClosed, or *UnavailableError. A frame to this node itself takes the same way through the handler.
func (t *Transport) Send(to sharding.Member, class Class, frame []byte) error {
	if !class.isStream() {
		return fmt.Errorf("frames are of class control or data, not %s", class)
	}
	if most := class.maxFrame(); len(frame) > most {
		t.counters.classes[class].rejected.Add(1)
		return fmt.Errorf("a frame of %d bytes, at most %d are allowed: %w", len(frame), most, ErrTooLarge)
	}
	return t.send(to, class, func(q *queue) bool { return q.add(frame) })
}

// SendBulk is Send for what may be larger than a queue: frames that are made, by frames, one after the other and only when their turn has come, on
// a goroutine of the transport's. They lie between what Send was given before and after. One bulk may wait in a queue while another is on its way,
// and a further one gets ErrBackPressure. A frame is read before the next one is made; one above the class's bound is left out, and counted.
func (t *Transport) SendBulk(to sharding.Member, class Class, frames iter.Seq[[]byte]) error {
	if !class.isStream() {
		return fmt.Errorf("frames are of class control or data, not %s", class)
	}
	return t.send(to, class, func(q *queue) bool { return q.addBulk(frames) })
}

func (t *Transport) send(to sharding.Member, class Class, add func(*queue) bool) error {
	if to == t.cfg.Self {
		return t.sendSelf(class, add)
	}
	l, err := t.ensureLink(to, class)
	if err != nil {
		t.counters.classes[class].rejected.Add(1)
		return err
	}
	if t.cfg.Faults.drops(Out, to.Node, class) {
		return nil
	}
	return l.send(add)
}

func (t *Transport) link(to sharding.Member, class Class) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.links[linkKey{to, class}]
}

func (t *Transport) ensureLink(to sharding.Member, class Class) (*link, error) {
	key := linkKey{to, class}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.links[key]; ok {
		return l, nil
	}
	if t.closed {
		return nil, ErrClosed
	}
	if _, ok := t.addressLocked(to); !ok {
		return nil, fmt.Errorf("%s: %w", to, ErrUnknownPeer)
	}
	l := newLink(t, to, class)
	t.links[key] = l
	t.work.Go(l.run)
	return l, nil
}

// dropLink forgets a link whose goroutine ends.
func (t *Transport) dropLink(l *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.links, linkKey{l.to, l.class})
}

// Raft accepts the connections of class raft that peers make, each a PeerConn.
func (t *Transport) Raft() net.Listener { return t.raft }

// DialRaft makes a connection of class raft. want may be empty, then any node of the cluster may answer.
func (t *Transport) DialRaft(ctx context.Context, addr string, want sharding.NodeID) (PeerConn, error) {
	t.cfg.Faults.delay(ctx, Out, want, Raft)
	return t.dial(ctx, addr, Raft, sharding.Member{Node: want})
}

// Check makes a connection to a member and ends it: nil says that both sides accept one another. The error of a refusal is a *HandshakeError.
func (t *Transport) Check(ctx context.Context, to Target) error {
	c, err := t.dialOnce(ctx, to.Addr, Call, to.Member)
	if err != nil {
		return err
	}
	return c.Close()
}

// dial makes a connection that is past its handshake.
func (t *Transport) dial(ctx context.Context, addr string, class Class, to sharding.Member) (*conn, error) {
	c, err := t.dialOnce(ctx, addr, class, to)
	if err != nil {
		if e, ok := errors.AsType[*HandshakeError](err); ok {
			t.counters.dialFailures[e.Reason.index()].Add(1)
			if e.Misfit() && t.ctx.Err() == nil {
				t.sayRefused("a connection from this node was refused", e, to.Node)
			}
		}
		return nil, err
	}
	t.counters.classes[class].connects.Add(1)
	return c, nil
}

func (t *Transport) dialOnce(ctx context.Context, addr string, class Class, to sharding.Member) (*conn, error) {
	id := t.identity()
	if id.faults.partitioned(Out, to.Node, class) {
		return nil, &HandshakeError{Reason: ReasonFault, Addr: addr, Err: errFaultBreak}
	}
	dialer := net.Dialer{Timeout: t.cfg.HandshakeTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &HandshakeError{Reason: ReasonIO, Addr: addr, Err: err}
	}
	secure, peer, _, err := id.handshake(ctx, raw, func(ctx context.Context, raw net.Conn) (net.Conn, Peer, Class, error) {
		c, p, err := id.dial(ctx, raw, class, to)
		return c, p, class, err
	})
	if err != nil {
		return nil, err
	}
	return t.adopt(&conn{Conn: secure, raw: raw, peer: peer, class: class})
}

// adopt takes a connection in, unless the world has changed since its handshake began.
func (t *Transport) adopt(c *conn) (*conn, error) {
	c.set = &t.conns
	if err := t.conns.add(c); err != nil {
		c.Close()
		return nil, &HandshakeError{Reason: ReasonBusy, Addr: c.peer.Remote, Err: err}
	}
	id := t.identity()
	var err *HandshakeError
	switch {
	case !c.peer.ClusterID.IsZero() && !id.self.clusterID.IsZero() && c.peer.ClusterID != id.self.clusterID:
		err = refuse(ReasonCluster, &ClusterMismatchError{Label: id.self.label, ID: id.self.clusterID, PeerLabel: id.self.label, PeerID: c.peer.ClusterID})
	case id.faults.partitioned(c.direction(), c.peer.Member.Node, c.class):
		err = refuse(ReasonFault, errFaultBreak)
	}
	if err != nil {
		c.Close()
		err.Addr = c.peer.Remote
		return nil, err
	}
	return c, nil
}

// Stats counts since New.
func (t *Transport) Stats() Stats {
	s := t.counters.snapshot()
	s.Connections = t.conns.len()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		l.mu.Lock()
		s.QueuedFrames += l.q.frames
		s.QueuedBytes += l.q.bytes
		l.mu.Unlock()
	}
	return s
}

// Drain refuses new frames, sends those that are queued, and returns once peers have handed them over, or with ctx's error.
// What comes in is served until Close.
func (t *Transport) Drain(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	links := slices.Collect(maps.Values(t.links))
	selves := slices.Collect(maps.Values(t.self))
	t.mu.Unlock()
	for _, l := range links {
		l.drain()
	}
	for _, l := range selves {
		l.drain()
	}
	for _, l := range selves {
		select {
		case <-l.ended:
		case <-ctx.Done():
			return fmt.Errorf("drain frames to this node itself: %w", ctx.Err())
		}
	}
	for _, l := range links {
		select {
		case <-l.ended:
		case <-ctx.Done():
			return fmt.Errorf("drain frames to %s: %w", l.to, ctx.Err())
		}
	}
	return nil
}

// Close ends everything at once, reports Closed and Down for what stood, and waits for every goroutine.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	callers := t.calls
	t.calls = map[sharding.Member]*caller{}
	selves := slices.Collect(maps.Values(t.self))
	t.mu.Unlock()
	t.cancel(ErrClosed)
	err := t.lis.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // closed before
	}
	t.raft.Close()
	t.conns.close()
	for _, c := range callers {
		c.close()
	}
	for _, l := range selves {
		l.close()
	}
	t.carrier.stop()
	t.work.Wait()
	grpcLog.close(t.log)
	return err
}
