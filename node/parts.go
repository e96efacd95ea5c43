package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/buildinfo"
	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/controlplane"
	"github.com/droverhq/drover/internal/datadir"
	"github.com/droverhq/drover/internal/dataplane"
	"github.com/droverhq/drover/internal/entity"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/internal/records"
	"github.com/droverhq/drover/internal/strategist"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
	"github.com/droverhq/drover/strategies"
)

func (n *Node) openStrategies(ctx context.Context, c *closers) error {
	var builtins [][]byte
	for _, name := range strategies.Names() {
		wasm, _, _ := strategies.Builtin(name)
		builtins = append(builtins, wasm)
	}
	var err error
	if n.modules, err = modules.Open(n.dir.Path("modules"), builtins...); err != nil {
		return err
	}
	if n.runtime, err = host.NewRuntime(ctx, host.Options{CacheDir: n.dir.Path("cache"), Logger: n.log}); err != nil {
		return err
	}
	c.add("the strategies' runtime", func() error { return n.runtime.Close(context.Background()) })
	n.records = records.Open(records.Config{Dir: n.dir.Path(records.Dir), Logger: n.log})
	c.add("the records of strategy calls", func() error { n.records.Close(); return nil })
	n.strategist = strategist.New(strategist.Config{Runtime: n.runtime, Modules: n.modules, Fetch: n.fetchModule, Recorder: n.records, Logger: n.log,
		Post: func(ev coordinator.Event) {
			if n.await() {
				n.plane.Post(ev)
			}
		}})
	c.add("strategies", n.strategist.Close)
	return nil
}

// types turns the configured types into regions. A strategy file is admitted here, so that a bad one ends the start and not the first decision.
func (n *Node) types(ctx context.Context) ([]dataplane.Type, error) {
	var out []dataplane.Type
	for _, t := range n.cfg.Types {
		spec, err := n.strategySpec(ctx, t)
		if err != nil {
			return nil, &StrategyError{Type: sharding.TypeName(t.Name), Strategy: t.Strategy, Err: err}
		}
		expect := uint32(max(n.cfg.Raft.BootstrapExpect, 1))
		out = append(out, dataplane.Type{Kind: n.kinds[t.Entity], Info: protocol.RegionInfo{Type: sharding.TypeName(t.Name), NumShards: uint32(t.Shards),
			Hosts: t.Role == "" || hasRole(n.cfg.Roles, t.Role), Role: t.Role, Place: t.Place.String(), Expect: expect, Strategy: spec}})
	}
	return out, nil
}

// StrategyError says that the strategy that the configuration names for a type cannot be used.
type StrategyError struct {
	Type     sharding.TypeName
	Strategy string // as in the configuration
	Err      error
}

// Error names type and strategy.
func (e *StrategyError) Error() string {
	return fmt.Sprintf("type %q: strategy = %q: %v", e.Type, e.Strategy, e.Err)
}

// Unwrap gives the cause.
func (e *StrategyError) Unwrap() error { return e.Err }

// Hint gives the next step.
func (e *StrategyError) Hint() string {
	return "drover strategy check says what a module lacks; builtin:leastshard needs no file"
}

func (n *Node) strategySpec(ctx context.Context, t config.Type) (protocol.StrategySpec, error) {
	spec := protocol.StrategySpec{Source: t.Strategy, Fuel: uint64(t.Fuel), Budget: t.Budget.Milliseconds(), Memory: uint64(t.Memory),
		MaxFailures: uint32(t.MaxFailures), MovesPass: uint32(t.MovesPerPass)}
	if t.Strategy == "" {
		spec.Source = "builtin:hash"
	}
	var err error
	if spec.Config, err = encodeConfig(t.Config); err != nil {
		return spec, err
	}
	if path, ok := t.StrategyPath(); ok {
		wasm, err := readModule(path)
		if err != nil {
			return spec, err
		}
		_, warnings, err := n.strategist.Admit(ctx, wasm, spec)
		if err != nil {
			return spec, err
		}
		n.warn(sharding.TypeName(t.Name), spec.Source, warnings)
		spec.Digest, err = n.putModule(wasm)
		return spec, err
	}
	if name, ok := cutBuiltin(spec.Source); ok {
		if native, ok := strategies.Native(name); ok {
			if d, ok := native.(pluginapi.Describer); ok {
				n.warn(sharding.TypeName(t.Name), spec.Source, host.UnknownKeys(d.Describe(), spec.Config))
			}
		}
	}
	d, err := n.digestOf(spec.Source)
	spec.Digest = d
	return spec, err
}

// digestOf resolves builtin:NAME and sha256:….
func (n *Node) digestOf(source string) (modules.Digest, error) {
	if name, ok := cutBuiltin(source); ok {
		_, digest, found := strategies.Builtin(name)
		if !found {
			return modules.Digest{}, fmt.Errorf("there is no built-in strategy %q; there are %v", name, strategies.Names())
		}
		return modules.ParseDigest(digest)
	}
	return modules.ParseDigest(source)
}

// warn tells what is odd about a type's strategy, short of a refusal.
func (n *Node) warn(t sharding.TypeName, source string, findings []host.Finding) {
	for _, f := range findings {
		n.log.Warn("odd strategy: "+f.Message, "type", t, "strategy", source, "rule", f.Rule, "fix", f.Fix)
	}
}

func encodeConfig(table map[string]any) ([]byte, error) {
	if len(table) == 0 {
		return nil, nil
	}
	return snapshotfile.EncodeConfig(table)
}

func (n *Node) keys() ([][]byte, error) {
	var keys [][]byte
	for i, k := range n.cfg.Gossip.Keys {
		b, err := decodeKey(k)
		if err != nil {
			return nil, fmt.Errorf("gossip.keys[%d]: %w", i, err)
		}
		keys = append(keys, b)
	}
	return keys, nil
}

// credentials loads the files of [tls]; nil: there are none.
func (n *Node) credentials() (*pki.Credentials, error) {
	t := n.cfg.TLS
	if !t.Enabled() {
		return nil, nil
	}
	own, err := pki.Load(t.CA, t.Cert, t.Key, time.Now())
	if err == nil {
		err = own.Identity.Certifies(n.cfg.Cluster, sharding.NodeID(n.cfg.Name), n.cfg.Roles)
	}
	if err != nil {
		return nil, &TLSError{err}
	}
	return own, nil
}

func (n *Node) openTransport(credentials *pki.Credentials, c *closers) error {
	keys, err := n.keys()
	if err != nil {
		return err
	}
	tc := transport.Config{Self: n.self, Label: n.cfg.Cluster, ClusterID: n.dir.Cluster(), Roles: n.cfg.Roles,
		Versions: transport.Versions{Oldest: protocol.OldestVersion, Newest: protocol.Version}, Bind: n.cfg.Transport.Bind, Advertise: n.cfg.Transport.Advertise,
		InsecureBind: n.cfg.Transport.InsecureBind, Keys: keys, Logger: n.log, Faults: n.opts.Faults, TLS: credentials}
	if n.transport, err = transport.New(tc, handler{n}); err != nil {
		return err
	}
	c.add("the transport", n.transport.Close)
	return nil
}

// TLSError says that the files that [tls] names cannot be used: one cannot be read, they do not fit together, or they are not this node's.
type TLSError struct{ Err error }

// Error names the key of node.toml.
func (e *TLSError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *TLSError) Unwrap() error { return e.Err }

// Hint gives the next step.
func (e *TLSError) Hint() string {
	return "drover config check says the same without a start; docs/tls.md says how certificates are made"
}

// advertised is where others reach this node's transport.
func (n *Node) advertised() string {
	if a := n.cfg.Transport.Advertise; a != "" {
		return a
	}
	return n.transport.Addr().String()
}

func (n *Node) openControlPlane(c *closers) error {
	n.machine = coordinator.New(coordinator.Config{Self: n.self, RebalanceInterval: n.cfg.Sharding.RebalanceInterval, MoveCooldown: n.cfg.Sharding.MoveCooldown,
		Settle: n.cfg.Sharding.Settle, HandOffTimeout: n.cfg.Sharding.HandoffTimeout, Seed: seedOf(n.self)})
	var err error
	n.plane, err = controlplane.Open(controlplane.Config{Dir: n.dir.Path(datadir.RaftDir), Server: n.server, Address: n.advertised(), Stream: raftStream{n.transport.Raft(), n.transport},
		Machine: n.machine, Now: now, Do: n.do, Fatal: n.fail, Logger: n.log, Heartbeat: n.cfg.Raft.HeartbeatTimeout, ConfirmReady: n.confirmReady, Answers: n.answers})
	if err != nil {
		return err
	}
	c.add("raft", n.plane.Close)
	return nil
}

// raftStream gives raft the transport's authenticated connections.
type raftStream struct {
	net.Listener
	t *transport.Transport
}

// DialRaft implements controlplane.StreamLayer.
func (s raftStream) DialRaft(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.t.DialRaft(ctx, address, "")
}

func (n *Node) openDataPlane(types []dataplane.Type, http string, c *closers) {
	n.pool = entity.NewPool()
	c.add("entity code", n.closePool)
	var server sharding.Incarnation
	if n.isServer {
		server = n.server
	}
	n.data = dataplane.Open(dataplane.Config{
		Session: region.SessionConfig{Self: n.self, ClusterID: n.dir.Cluster(), Supersedes: n.dir.Supersedes(), Info: protocol.NodeInfo{
			Address: n.advertised(), Roles: n.cfg.Roles, Zone: n.cfg.Zone, Version: buildinfo.Version(), Capacity: uint64(n.cfg.Capacity), Tags: n.cfg.Tags,
			HTTP: http, Server: server, MinWire: protocol.OldestVersion, MaxWire: protocol.Version}},
		Types: types, Sender: frames{n.transport}, Pool: n.pool, Now: now, Logger: n.log,
		MaxMessages: n.cfg.Sharding.BufferMessages, MaxBytes: int(n.cfg.Sharding.BufferBytes),
		OnRegistered: n.registered, OnRefused: n.refused, OnLeader: n.leaderChanged, Measure: newGauge().measure,
	})
	c.add("the data plane", func() error { n.data.Close(); return nil })
}

// abandonAfter is how long entity code that hangs may hold up an end at the least, and one without a drain at the most.
const (
	abandonAfter = 250 * time.Millisecond
	abandonFatal = 5 * time.Second
)

// closePool waits for the entities' code that runs, and abandons what hangs: nothing of it leaves any more (spec 2.3).
func (n *Node) closePool() error {
	closed := make(chan struct{})
	go func() { n.pool.Close(); close(closed) }()
	patience := abandonFatal
	if !n.deadline.IsZero() {
		patience = max(time.Until(n.deadline), abandonAfter)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		n.log.Warn("entity code still runs and is abandoned: a Receive or Stop does not return though its context has ended")
	}
	return nil
}

// frames sends frames through the transport.
type frames struct{ t *transport.Transport }

func (f frames) SendControl(to sharding.Member, frame []byte) error {
	return f.t.Send(to, transport.Control, frame)
}
func (f frames) SendData(to sharding.Member, frame []byte) error {
	return f.t.Send(to, transport.Data, frame)
}

func (n *Node) openGossip(http string, c *closers) error {
	keys, err := n.keys()
	if err != nil {
		return err
	}
	info := cluster.Info{Incarnation: n.self.Incarnation, ClusterID: n.dir.Cluster(), Transport: n.advertised(), HTTP: http, Roles: n.cfg.Roles,
		Zone: n.cfg.Zone, Version: buildinfo.Version(), Tags: n.cfg.Tags}
	if n.isServer {
		info.Server = n.server
		if !n.plane.HasState() && n.cfg.Raft.BootstrapExpect > 1 {
			info.Expect = n.cfg.Raft.BootstrapExpect
		}
	}
	n.cluster, err = cluster.Open(cluster.Config{Name: n.self.Node, Bind: n.cfg.Gossip.Bind, Keys: keys, Join: n.cfg.Gossip.Join, Info: info, Logger: n.log,
		OnChange: n.membersChanged, Fast: n.opts.FastGossip, Snapshot: n.dir.Path("gossip.snapshot"), Remember: n.dir.Path("members.json")})
	if err != nil {
		return err
	}
	c.add("gossip", n.cluster.Close)
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
