// Package node is a Drover node: it puts the parts together and owns their life. A program that hosts entities of its own embeds it:
//
//	cfg, err := node.LoadConfig("node.toml")
//	n, err := node.New(cfg, node.Options{}, myKind)
//	err = n.Run(ctx)
//
// Order of start: data_dir (lock, identities), transport, raft (where the node has the coordinator role), data plane, gossip, HTTP; of the end:
// the reverse, after a drain. The parts know nothing of one another: what one tells another goes through this package.
//
// Goroutines: Run's caller waits; one joins, and one finds out whether those that were joined accept this node (accept.go); one watches over the cluster's creation and hints at the leader (watch.go); the others belong to the parts.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/boottime"
	"github.com/droverhq/drover/internal/buildinfo"
	"github.com/droverhq/drover/internal/builtin"
	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/controlplane"
	"github.com/droverhq/drover/internal/datadir"
	"github.com/droverhq/drover/internal/dataplane"
	"github.com/droverhq/drover/internal/entity"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/loglimit"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/records"
	"github.com/droverhq/drover/internal/strategist"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// Config is what node.toml holds.
type Config = config.Config

// DefaultConfig gives what holds where no file says otherwise: one voter on loopback, without types. A node needs a Name besides.
func DefaultConfig() *Config { return config.Default() }

// LoadConfig reads a node.toml, the environment and overrides of the form dotted.key=value. kinds name the entities that the program hosts
// besides the built-in ones.
func LoadConfig(file string, set []string, kinds ...sharding.Kind) (*Config, error) {
	return config.Load(config.Options{File: file, Env: os.Environ(), Set: set, Entities: kindNames(kinds), Files: true})
}

func kindNames(kinds []sharding.Kind) []string {
	var names []string
	for _, k := range append(builtin.Kinds(), kinds...) {
		names = append(names, k.Name())
	}
	return names
}

// Options of a node. The zero value is right outside tests.
type Options struct {
	Logger *slog.Logger // default: slog.Default
	// Faults are the transport's fault points, for tests of whole nodes.
	Faults *transport.Faults
	// FastGossip makes failure detection several times quicker, for tests.
	FastGossip bool
	// Started is called once the node serves HTTP, with the addresses that it has bound.
	Started func(Addresses)
	// leaderPatience is how long a leader is looked for, and has to answer any call but a swap; 0: leaderPatience.
	leaderPatience time.Duration
}

// Addresses are those that a node has bound, host:port.
type Addresses struct{ HTTP, Gossip, Transport string }

// Node is one node. Its methods may be called from any goroutine once Run has called Options.Started.
type Node struct {
	cfg   *Config
	opts  Options
	log   *slog.Logger
	kinds map[string]sharding.Kind

	self       sharding.Member
	server     sharding.Incarnation
	isServer   bool // has the coordinator role
	dir        *datadir.Dir
	modules    *modules.Store
	runtime    *host.Runtime
	strategist *strategist.Strategist
	records    *records.Ring
	transport  *transport.Transport
	tooLarge   loglimit.Limiter           // control messages
	parts      []*protocol.ShardMapUpdate // the plane's goroutine's: of the update that is being sent
	machine    *coordinator.Machine       // the plane's goroutine's
	plane      *controlplane.Plane        // nil without the coordinator role
	pool       *entity.Pool
	data       *dataplane.Plane
	cluster    *cluster.Cluster
	http       *httpapi.Server
	metrics    *metrics
	requests   requests
	badFrames  loglimit.Limiter
	copies     loglimit.Limiter

	ready    chan struct{}             // closed once all parts stand: until then what comes in waits
	ended    chan struct{}             // closed when the parts begin to be taken down, also after a start that failed: what still waits gives up
	named    chan sharding.Incarnation // cluster IDs that the coordinator has told, for watch
	ran      atomic.Bool
	deadline time.Time  // of an orderly end; Run's
	telling  sync.Mutex // one word about the members at a time, so that the newest is the last
	fatal    chan error
	leave    chan struct{} // closed by Leave: end, and for good
	leaveOne sync.Once
	stopping atomic.Bool
	silent   atomic.Bool            // the log has had its last line
	stage    atomic.Pointer[string] // what the end waits for

	mu      sync.Mutex
	members []cluster.Member              // sorted by name
	since   map[sharding.NodeID]time.Time // when a member was first seen as failed
	leavers map[sharding.Member]struct{}  // whose servers this node has taken out as leader, at their wish
}

// New makes a node; Run starts it. cfg has been validated by LoadConfig, or is built on DefaultConfig and validated here.
func New(cfg *Config, opts Options, kinds ...sharding.Kind) (*Node, error) {
	if cfg == nil {
		return nil, errors.New("node.New needs a configuration: take that of node.LoadConfig or node.DefaultConfig")
	}
	if err := cfg.Validate(kindNames(kinds)); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, opts: opts, log: opts.Logger, kinds: map[string]sharding.Kind{}, ready: make(chan struct{}), ended: make(chan struct{}), named: make(chan sharding.Incarnation, 1),
		fatal: make(chan error, 1), leave: make(chan struct{}), since: map[sharding.NodeID]time.Time{}, leavers: map[sharding.Member]struct{}{}, badFrames: loglimit.Limiter{Every: time.Second}, copies: loglimit.Limiter{Every: time.Minute}}
	if n.log == nil {
		n.log = slog.Default()
	}
	n.log = slog.New(endable{n.log.Handler(), &n.silent})
	n.requests.waiting = map[uint64]chan coordinator.Answer{}
	n.tooLarge.Every = time.Minute
	for _, k := range append(builtin.Kinds(), kinds...) {
		if _, twice := n.kinds[k.Name()]; twice {
			return nil, fmt.Errorf("the entity kind %q is given twice", k.Name())
		}
		n.kinds[k.Name()] = k
	}
	return n, nil
}

// Run starts the node and serves until ctx ends, then drains and stops, bounded by shutdown_timeout. It returns nil after an orderly end, and an
// error that names the cause after a failed start, a fatal fault, or an end that took too long: of that node something may still run, and its data_dir
// may be locked, until the process ends. A node runs once.
func (n *Node) Run(ctx context.Context) error {
	if n.ran.Swap(true) {
		return errors.New("this node has run already: make another one with node.New")
	}
	closers := &closers{ending: n.ends}
	cause, orderly, started := n.start(ctx, closers), false, false
	if started = cause == nil; started {
		select {
		case <-ctx.Done():
			n.log.Info("stopping: shards are handed off first", "timeout", n.cfg.ShutdownTimeout)
			orderly = true
		case <-n.leave:
			n.log.Info("leaving the cluster")
			orderly = true
		case cause = <-n.fatal:
		}
	}
	patience := abandonFatal
	if orderly {
		patience = n.cfg.ShutdownTimeout
		n.deadline = time.Now().Add(patience)
	}
	err := n.within(patience+endGrace, func() error {
		if orderly {
			n.shutdown()
		}
		close(n.ended)
		return errors.Join(cause, closers.close())
	})
	if err == nil && started {
		n.log.Info("stopped")
	}
	n.silent.Store(true)
	return err
}

// endGrace is what the end of the parts may take beyond shutdown_timeout, which is the drain's and the goodbyes'.
const endGrace = 5 * time.Second

// within runs the end of the node, and gives it up where it takes longer than patience: whatever the parts do, SIGTERM ends the node (spec 5.1).
func (n *Node) within(patience time.Duration, end func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("the end took longer than shutdown_timeout (%s) and %s: given up while it waited for %s; what was served here is taken over once its lease has lapsed",
			n.cfg.ShutdownTimeout, endGrace, *n.stage.Load())
	}
}

// ends notes what the end of the node waits for.
func (n *Node) ends(what string) { n.stage.Store(&what) }

// await waits until the node's parts stand; false says that they are being taken down, or never stood.
func (n *Node) await() bool {
	select {
	case <-n.ended:
		return false
	default:
	}
	select {
	case <-n.ready:
		return true
	case <-n.ended:
		return false
	}
}

// closers are called in reverse order.
type closers struct {
	list   []closer
	ending func(what string) // is told which one is called now
}

type closer struct {
	what string
	f    func() error
}

func (c *closers) add(what string, f func() error) { c.list = append(c.list, closer{what, f}) }

func (c *closers) close() error {
	var errs []error
	for i := len(c.list) - 1; i >= 0; i-- {
		c.ending(c.list[i].what)
		errs = append(errs, c.list[i].f())
	}
	return errors.Join(errs...)
}

// fail ends the node with an error; the first one counts.
func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

func (n *Node) start(ctx context.Context, c *closers) error {
	cfg := n.cfg
	credentials, err := n.credentials() // first: a data_dir would be given to a name that was a mistake
	if err != nil {
		return err
	}
	if n.dir, err = datadir.Open(cfg.DataDir, sharding.NodeID(cfg.Name)); err != nil {
		return err
	}
	c.add("data_dir", n.dir.Close)
	n.self = sharding.Member{Node: sharding.NodeID(cfg.Name), Incarnation: n.dir.Incarnation()}
	n.server = n.dir.Identity().Server
	n.isServer = hasRole(cfg.Roles, transport.CoordinatorRole)
	n.log = n.log.With("node", cfg.Name)
	if n.isServer && n.dir.Renewed() && !n.dir.Cluster().IsZero() {
		n.log.Warn("there is no raft log beside the node's identity: it joins its cluster as a new raft server, whose predecessor the leader takes out. If it was the only coordinator, the cluster's map is lost: start a new cluster with an empty data_dir",
			"log", n.dir.Path(datadir.RaftDir), "server", n.server)
	}
	n.metrics = newMetrics(n)

	if err := n.openStrategies(ctx, c); err != nil {
		return err
	}
	types, err := n.types(ctx)
	if err != nil {
		return err
	}
	if err := n.openTransport(credentials, c); err != nil {
		return err
	}
	listener, err := httpapi.Listen(ctx, cfg.HTTP.Address)
	if err != nil {
		return err
	}
	c.add("the HTTP listener", func() error { return ignoreClosed(listener.Close()) })
	if n.isServer {
		if err := n.openControlPlane(c); err != nil {
			return err
		}
	}
	n.openDataPlane(types, listener.Addr().String(), c)
	if err := n.openGossip(listener.Addr().String(), c); err != nil {
		return err
	}
	close(n.ready)
	n.tellMembers()

	n.http = httpapi.New(cfg.HTTP, api{n}, buildinfo.Version(), n.log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := n.http.Serve(listener); err != nil {
			n.fail(fmt.Errorf("http: %w", err))
		}
	}()
	c.add("HTTP requests", func() error {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		err := n.http.Shutdown(now)
		<-served
		if errors.Is(err, context.Canceled) { // after an orderly end there is nothing in flight, after any other nothing to wait for
			return nil
		}
		return err
	})

	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); n.watch(watching) }()
	c.add("the watch over the cluster's creation", func() error { stopWatching(); <-watched; return nil })

	joining, stopJoining := context.WithCancel(ctx)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		if err := n.join(joining); err != nil && joining.Err() == nil {
			n.fail(err)
		}
	}()
	c.add("the joining of others", func() error { stopJoining(); <-joined; return nil })
	if len(cfg.Gossip.Join) > 0 {
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			if err := n.checkAccepted(joining); err != nil {
				n.fail(err)
			}
		}()
		c.add("the word of those that were joined", func() error { stopJoining(); <-checked; return nil })
	}

	addr := Addresses{HTTP: listener.Addr().String(), Gossip: n.cluster.Addr(), Transport: n.transport.Addr().String()}
	n.log.Info("node started", "version", buildinfo.Version(), "incarnation", n.self.Incarnation, "http", addr.HTTP, "gossip", addr.Gossip, "transport", addr.Transport)
	if n.opts.Started != nil {
		n.opts.Started(addr)
	}
	return nil
}

func hasRole(roles []string, role string) bool {
	for _, r := range roles {
		if r == role {
			return true
		}
	}
	return false
}

// shutdown ends an orderly run: drain, hand over leadership, say goodbye. The closers do the rest.
func (n *Node) shutdown() {
	n.stopping.Store(true)
	n.http.Retire()
	ctx, cancel := context.WithDeadline(context.Background(), n.deadline)
	defer cancel()
	// The goodbyes after a drain that is cut short need some of the time too.
	drain, cancelDrain := context.WithDeadline(ctx, n.deadline.Add(-min(n.cfg.ShutdownTimeout/4, 5*time.Second)))
	defer cancelDrain()
	n.ends("the drain")
	n.drain(drain)
	n.ends("HTTP requests")
	answers, cancelAnswers := context.WithDeadline(ctx, n.deadline.Add(-min(n.cfg.ShutdownTimeout/5, 4*time.Second)))
	defer cancelAnswers()
	if err := n.http.Shutdown(answers); err != nil {
		n.log.Warn("requests were cut short", "error", err)
	}
	n.ends("the handover of leadership")
	if n.plane != nil && n.leads() {
		if err := n.plane.TransferLeadership(ctx); err != nil {
			n.log.Info("leadership is not handed over", "reason", err)
		}
	}
	n.ends("the goodbye to gossip")
	if ctx.Err() != nil { // it takes seconds where others do not answer
		n.log.Warn("no time is left for a goodbye: the others will see this node as failed")
	} else if err := n.cluster.Leave(); err != nil {
		n.log.Warn("the goodbye may not have reached everybody", "error", err)
	}
	n.ends("frames on their way")
	// Last: until everybody knows that the shards have moved, this node forwards what still comes for them, and replies are on their way out.
	if err := n.transport.Drain(ctx); err != nil {
		n.log.Warn("frames were cut short", "error", err)
	}
}

// drain hands off every shard, as long as there is a node that could take one, and ends the regions.
func (n *Node) drain(ctx context.Context) {
	if ok, _ := n.data.Registered(); !ok {
		n.log.Info("no coordinator knows this node: nothing to hand off")
		return
	}
	began := time.Now()
	err := errNoSuccessor
	if n.hasSuccessor() {
		handing, stop := context.WithCancelCause(ctx)
		go n.watchSuccessors(handing, stop)
		err = n.data.Drain(handing, true)
		stop(nil)
	}
	if errors.Is(err, errNoSuccessor) {
		n.log.Info("no other node is left that could take a shard: those here end with it")
		err = n.data.Drain(ctx, false)
	} else if err == nil {
		n.log.Info("every shard is handed off", "took", time.Since(began).Round(time.Millisecond))
	}
	if err != nil {
		n.log.Warn("the drain was cut short: what was left here is taken over once its lease has lapsed", "error", err)
	}
}

var errNoSuccessor = errors.New("no other node could take a shard")

// successorPatience is how long there may be no successor before a drain gives up: one that is coming back is worth a moment.
const successorPatience = time.Second

// watchSuccessors ends a drain once there is nobody left to hand off to, as when all nodes are told to end together.
func (n *Node) watchSuccessors(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n.hasSuccessor() {
			last = time.Now()
		} else if time.Since(last) > successorPatience {
			stop(errNoSuccessor)
			return
		}
	}
}

// hasSuccessor says whether another node could take a shard of this one.
func (n *Node) hasSuccessor() bool {
	mine := map[sharding.TypeName]bool{}
	members := n.data.Members()
	for _, m := range members {
		if m.Member == n.self {
			for _, t := range m.Hosts {
				mine[t] = true
			}
		}
	}
	for _, m := range members {
		if m.Member.Node == n.self.Node || m.Draining || !n.isUp(m.Member) {
			continue
		}
		for _, t := range m.Hosts {
			if mine[t] {
				return true
			}
		}
	}
	return false
}

func (n *Node) isUp(m sharding.Member) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.members {
		if c.Identity() == m {
			return c.Status == cluster.Up
		}
	}
	return false
}

// now is the node's clock for leases.
func now() sharding.Instant { return boottime.Now() }
