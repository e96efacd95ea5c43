// Package config reads node.toml (spec 5.1): defaults, then the file, then the environment, then --set flags.
//
// It owns the names, types, defaults, bounds and explanations of every key; one table (keys.go) drives reading, checking,
// showing, the shipped node.toml and docs/config.md. It starts nothing, opens nothing but the file it is given, and
// imports neither serf, raft nor wazero.
package config

import (
	"log/slog"
	"strings"
	"time"
)

// Config is the effective configuration of one node. The zero value is not usable: start from Default or Load.
type Config struct {
	Cluster         string
	Name            string
	DataDir         string
	ShutdownTimeout time.Duration
	Roles           []string
	Zone            string
	Capacity        int // 100 is one unit
	Tags            map[string]string
	Gossip          Gossip
	Transport       Transport
	TLS             TLS
	Raft            Raft
	HTTP            HTTP
	Sharding        Sharding
	Migration       Migration
	Types           []Type
	Routers         []Router
	Log             Log
	Telemetry       Telemetry

	warnings []string
}

// Gossip is the membership layer. Keys are base64 of 16, 24 or 32 bytes; the first encrypts, all decrypt.
type Gossip struct {
	Bind      string
	Advertise string
	Join      []string
	Keys      []Secret
}

// Transport is the node-to-node layer; it carries raft too.
type Transport struct {
	Bind         string
	Advertise    string
	InsecureBind bool
}

// TLS names PEM files; all are set or none.
type TLS struct {
	CA   string
	Cert string
	Key  string
}

// Enabled says whether node-to-node connections use mutual TLS.
func (t TLS) Enabled() bool { return t.CA != "" && t.Cert != "" && t.Key != "" }

// Raft is the replicated log.
type Raft struct {
	BootstrapExpect  int
	HeartbeatTimeout time.Duration
}

// HTTP is the API for users and operators.
type HTTP struct {
	Address      string
	InsecureBind bool
	AdminToken   Secret
	ReadToken    Secret
	MaxBody      Bytes
}

// Sharding holds what applies to every sharded type.
type Sharding struct {
	RebalanceInterval time.Duration
	MoveCooldown      time.Duration
	Settle            time.Duration
	HandoffTimeout    time.Duration
	LeaseTTL          time.Duration
	BufferMessages    int
	BufferBytes       Bytes
}

// Migration bounds the movement of shard state.
type Migration struct {
	Rate         Rate
	MaxAtOnce    int
	PauseLatency time.Duration
	PauseCPU     int // per cent
	PauseQueue   int // requests waiting for the disk
	PauseLog     Bytes
}

// Type is one sharded type.
type Type struct {
	Name             string
	Entity           string
	URL              string
	Shards           int
	Place            Place
	Strategy         string
	Digest           string
	SigningKeys      []string
	Fuel             int64
	Budget           time.Duration
	Memory           Bytes
	MaxFailures      int
	MovesPerPass     int
	Persistence      Persistence
	Standby          int
	Role             string
	IdleTimeout      time.Duration
	ShardIdleTimeout time.Duration
	MaxEntities      int
	Remember         bool

	// Config is handed to the strategy. It holds nothing but bool, int64, float64, string, []any and map[string]any:
	// what CBOR can carry. TOML dates are text.
	Config map[string]any
}

// StrategyPath is the path of the strategy's .wasm; false if the strategy is built in or named by its digest.
func (t Type) StrategyPath() (string, bool) {
	named := strings.HasPrefix(t.Strategy, "builtin:") || strings.HasPrefix(t.Strategy, "sha256:")
	return t.Strategy, t.Strategy != "" && !named
}

// Router is a cluster router.
type Router struct {
	Name         string
	Path         string
	Role         string
	Strategy     RouterStrategy
	Key          string
	DepthRefresh time.Duration
	DepthStale   time.Duration
}

// Log says what the node writes to stderr.
type Log struct {
	Level  LogLevel
	Format LogFormat
}

// Telemetry says where traces go.
type Telemetry struct {
	Endpoint string
}

// Place says when a shard gets its first home.
type Place string

// The values of Place.
const (
	PlaceOnDemand Place = "on_demand"
	PlaceEager    Place = "eager"
)

func (p Place) String() string { return string(p) }

// Persistence says where the events of a type's entities live.
type Persistence string

// The values of Persistence.
const (
	PersistMemory   Persistence = "memory"
	PersistEmbedded Persistence = "embedded"
	PersistPostgres Persistence = "postgres"
)

func (p Persistence) String() string { return string(p) }

// RouterStrategy says how a router picks a routee.
type RouterStrategy string

// The values of RouterStrategy.
const (
	RouteRoundRobin        RouterStrategy = "round-robin"
	RouteRandom            RouterStrategy = "random"
	RouteConsistentHashing RouterStrategy = "consistent-hashing"
	RouteSmallestMailbox   RouterStrategy = "smallest-mailbox"
	RouteBroadcast         RouterStrategy = "broadcast"
)

func (s RouterStrategy) String() string { return string(s) }

// LogLevel is the least severe level that is written.
type LogLevel string

// The values of LogLevel.
const (
	LevelDebug LogLevel = "debug"
	LevelInfo  LogLevel = "info"
	LevelWarn  LogLevel = "warn"
	LevelError LogLevel = "error"
)

func (l LogLevel) String() string { return string(l) }

// Level is the same level as slog knows it; an unknown one is info.
func (l LogLevel) Level() slog.Level {
	switch l {
	case LevelDebug:
		return slog.LevelDebug
	case LevelWarn:
		return slog.LevelWarn
	case LevelError:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// LogFormat is the shape of a log line.
type LogFormat string

// The values of LogFormat.
const (
	FormatText LogFormat = "text"
	FormatJSON LogFormat = "json"
)

func (f LogFormat) String() string { return string(f) }

// Secret is text that must not reach a log, an error or "config show": every way of printing it hides it.
type Secret string

const hidden = "(not shown)"

// Reveal returns the text itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the text from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Builtins are the strategies that the binary carries (spec 1.2), as builtin:NAME.
var Builtins = []string{"hash", "leastshard", "rendezvous"}

// Entities are the entities that a node offers without any Go code, as far as they are there yet.
var Entities = []string{"counter"}

// laterEntities are named by spec 5.1 and not there yet.
var laterEntities = []string{"kv", "http"}

// Default returns the configuration of a node whose file is empty: no types, and no name (Load takes the host's).
func Default() *Config {
	return &Config{
		Cluster:         "drover",
		DataDir:         "data",
		ShutdownTimeout: 30 * time.Second,
		Roles:           []string{"coordinator", "compute"},
		Capacity:        100,
		Tags:            map[string]string{},
		Gossip:          Gossip{Bind: "127.0.0.1:7946"},
		Transport:       Transport{Bind: "127.0.0.1:7947"},
		Raft:            Raft{BootstrapExpect: 1, HeartbeatTimeout: time.Second},
		HTTP:            HTTP{Address: "127.0.0.1:8080", MaxBody: MiB},
		Sharding: Sharding{
			RebalanceInterval: 2 * time.Second,
			MoveCooldown:      2 * time.Second,
			Settle:            time.Second,
			HandoffTimeout:    10 * time.Second,
			LeaseTTL:          5 * time.Second,
			BufferMessages:    100_000,
			BufferBytes:       64 * MiB,
		},
		Migration: Migration{
			Rate:         Rate(100 * MiB),
			MaxAtOnce:    4,
			PauseLatency: 250 * time.Millisecond,
			PauseCPU:     90,
			PauseQueue:   64,
			PauseLog:     GiB,
		},
		Log: Log{Level: LevelInfo, Format: FormatText},
	}
}

// DefaultType returns a [[type]] that sets nothing: it still needs a name and an entity.
func DefaultType() Type {
	return Type{
		Shards:       100,
		Place:        PlaceOnDemand,
		Strategy:     "builtin:hash",
		Fuel:         50_000_000,
		Budget:       100 * time.Millisecond,
		Memory:       16 * MiB,
		MaxFailures:  3,
		MovesPerPass: 100,
		Persistence:  PersistMemory,
		Role:         "compute",
		Config:       map[string]any{},
	}
}

// DefaultRouter returns a [[router]] that sets nothing.
func DefaultRouter() Router {
	return Router{
		Strategy:     RouteRoundRobin,
		DepthRefresh: 200 * time.Millisecond,
		DepthStale:   time.Second,
	}
}

// Warnings are things that Load found odd and went on with, one sentence each.
func (c *Config) Warnings() []string { return c.warnings }

// Type returns the sharded type of that name.
func (c *Config) Type(name string) (Type, bool) {
	for _, t := range c.Types {
		if t.Name == name {
			return t, true
		}
	}
	return Type{}, false
}
