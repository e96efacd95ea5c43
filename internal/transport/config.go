package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

// Bounds of what is carried, in bytes.
const (
	MaxFrame        = 8 << 20  // of class data
	MaxControlFrame = 16 << 20 // a registration names each shard that the node serves
	MaxCall         = 16 << 20 // body of a request or an answer
	maxMethod       = 255
)

// Config describes one node's transport. Self, Label, Bind and Logger must be set.
type Config struct {
	Self      sharding.Member
	Label     string               // cluster of node.toml
	ClusterID sharding.Incarnation // zero: not known yet, see SetClusterID
	Roles     []string
	Versions  Versions // wire versions that this node reads; zero: 1 alone

	Bind         string // host:port; port 0 takes a free one, see Addr
	Advertise    string // where peers reach Bind; empty: Bind itself
	InsecureBind bool   // without TLS: allow Bind beyond loopback, with a gossip key

	Keys   [][]byte         // gossip keys, 16 bytes or more each; all are accepted, see SetKeys
	TLS    *pki.Credentials // nil: no TLS
	Logger *slog.Logger
	Faults *Faults // nil outside tests

	HandshakeTimeout time.Duration // default 5 s
	Handshakes       int           // unfinished inbound ones at once, default 512
	BackoffMin       time.Duration // default 50 ms
	BackoffMax       time.Duration // default 2 s
	QueueFrames      int           // a (peer, class), default 65 536
	QueueBytes       int           // a (peer, class), default 16 MiB
}

func (cfg *Config) fill() {
	if cfg.Versions == (Versions{}) {
		cfg.Versions = Versions{Oldest: 1, Newest: 1}
	}
	cfg.Roles = slices.Compact(slices.Sorted(slices.Values(cfg.Roles)))
	for _, d := range []struct {
		at      *time.Duration
		initial time.Duration
	}{
		{&cfg.HandshakeTimeout, 5 * time.Second},
		{&cfg.BackoffMin, 50 * time.Millisecond},
		{&cfg.BackoffMax, 2 * time.Second},
	} {
		if *d.at <= 0 {
			*d.at = d.initial
		}
	}
	for _, n := range []struct {
		at      *int
		initial int
	}{
		{&cfg.Handshakes, 512}, {&cfg.QueueFrames, 64 << 10}, {&cfg.QueueBytes, 16 << 20},
	} {
		if *n.at <= 0 {
			*n.at = n.initial
		}
	}
}

func (cfg *Config) validate() error {
	if cfg.Logger == nil {
		return errors.New("transport: no logger is given")
	}
	if cfg.Self.Incarnation.IsZero() {
		return errors.New("transport: the node has no incarnation")
	}
	id := pki.Identity{Cluster: cfg.Label, Node: cfg.Self.Node, Roles: cfg.Roles}
	if err := id.Validate(); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if len(cfg.Advertise) > pki.MaxName {
		return fmt.Errorf("transport.advertise has %d bytes: at most %d are allowed", len(cfg.Advertise), pki.MaxName)
	}
	if n := len((&hello{greeting: cfg.greeting()}).encode()) + pki.MaxName + maxKeys*macSize + 64; n > maxMessage {
		return errors.New("transport: the roles are too long together: use fewer or shorter ones")
	}
	if cfg.TLS != nil {
		return cfg.TLS.Identity.Certifies(cfg.Label, cfg.Self.Node, cfg.Roles)
	}
	host, _, err := net.SplitHostPort(cfg.Bind)
	if err != nil {
		return fmt.Errorf("transport.bind %q: want host:port: %w", cfg.Bind, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	if !cfg.InsecureBind || len(cfg.Keys) == 0 {
		return fmt.Errorf("transport.bind %q is not on loopback and there is no TLS: set [tls] (see drover tls), or bind to 127.0.0.1, "+
			"or set transport.insecure_bind together with [gossip] keys", cfg.Bind)
	}
	return nil
}

func (cfg *Config) greeting() greeting {
	g := greeting{
		mode: modeOpen, versions: cfg.Versions, label: cfg.Label, clusterID: cfg.ClusterID,
		member: cfg.Self, advertise: cfg.Advertise, roles: cfg.Roles,
	}
	switch {
	case cfg.TLS != nil:
		g.mode = modeTLS
	case len(cfg.Keys) > 0:
		g.mode = modeKeyed
	}
	return g
}
