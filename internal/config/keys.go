package config

import (
	"math"
	"time"
)

// key is one key of node.toml: the single place that knows its name, meaning, bounds and where it is kept.
type key struct {
	name  string // dotted below its table
	field func(c *Config, i int) any
	doc   string // why it is there, its unit, what it may be

	min, max int64    // of an int, duration (ns), size or rate, both included; max 0: no bounds
	oneOf    []string // of a text
	notYet   string   // why any value but the default is refused in this version
	secret   bool     // never shown, not even when it is wrong
	sample   string   // TOML that the shipped node.toml gives instead of the default
	example  string   // TOML shown as a comment, for keys whose default is nothing or this machine's
}

// table is one [table] of node.toml.
type table struct {
	name   string // empty: the top of the file
	list   bool   // [[table]], any number of them
	doc    string
	keys   []key
	notYet string // why any [[table]] is refused in this version
	count  func(c *Config) int
	add    func(c *Config)
	clear  func(c *Config)
}

const (
	day       = 24 * time.Hour
	stateNot  = "entities keep their state in memory alone until shard state can move"
	advertNot = "the others reach a node at the address that it listens on"
	idleNot   = "entities stay in memory until their shard stops"
)

// tables is every key of node.toml, in the order of the file.
var tables = []table{
	{
		doc: "Drover node configuration. Later layers win: the defaults (shown here), this file, the environment\n" +
			"(DROVER_GOSSIP_BIND for gossip.bind), then --set gossip.bind=… on the command line.\n" +
			"'drover config check' says what is wrong, 'drover config show' prints the result.\n" +
			"Relative paths are relative to the directory in which the node is started.",
		keys: []key{
			{name: "cluster", field: func(c *Config, _ int) any { return &c.Cluster },
				doc: "Label of the cluster, for people. What tells clusters apart is the cluster ID made at bootstrap."},
			{name: "name", field: func(c *Config, _ int) any { return &c.Name }, example: `"a"`,
				doc: "Name of this node, unique in the cluster and the same after a restart: letters, digits, '.', '-' and '_', at most 128. Default: the host name."},
			{name: "data_dir", field: func(c *Config, _ int) any { return &c.DataDir },
				doc: "Directory for everything that must survive a restart: identity, replicated log, modules. One node a directory."},
			{name: "shutdown_timeout", field: func(c *Config, _ int) any { return &c.ShutdownTimeout }, min: 0, max: int64(time.Hour),
				doc: "How long SIGTERM may take to hand the shards to other nodes before the node ends anyway. 0s to 1h."},
			{name: "roles", field: func(c *Config, _ int) any { return &c.Roles },
				doc: "What this node may do: coordinator (may vote and coordinate) and roles of your own, which a [[type]] or router asks for. A node without a type's role routes to it and hosts none of it."},
			{name: "zone", field: func(c *Config, _ int) any { return &c.Zone },
				doc: "Failure domain, told to strategies. Empty: none."},
			{name: "capacity", field: func(c *Config, _ int) any { return &c.Capacity }, min: 1, max: 1_000_000,
				doc: "Share of the load that this node should get, told to strategies as its weight; 100 is one unit. 1 to 1_000_000."},
		},
	},
	{
		name: "tags",
		doc:  "Labels of your own, text to text, told to strategies. All of a node's tags must fit into 512 bytes, those of Drover itself included.",
		keys: []key{
			{name: "", field: func(c *Config, _ int) any { return &c.Tags }, example: `rack = "r7"`,
				doc: "Any key, with a text as value."},
		},
	},
	{
		name: "gossip",
		doc:  "Serf: who is there, over TCP and UDP.",
		keys: []key{
			{name: "bind", field: func(c *Config, _ int) any { return &c.Gossip.Bind },
				doc: "Address to listen on: IP or localhost, and port; port 0 takes any that is free."},
			{name: "advertise", field: func(c *Config, _ int) any { return &c.Gossip.Advertise }, notYet: advertNot,
				doc: "Address that the others reach this node at, where it is not the one that it listens on. Not available yet."},
			{name: "join", field: func(c *Config, _ int) any { return &c.Gossip.Join },
				doc: "Gossip addresses of other nodes, host and port; one that answers is enough. A node that has any never founds a cluster by itself."},
			{name: "keys", field: func(c *Config, _ int) any { return &c.Gossip.Keys }, secret: true,
				doc: "Keys that encrypt gossip and, without [tls], prove membership on node-to-node connections: base64 of 16, 24 or 32 bytes ('openssl rand -base64 32'). The first encrypts, all decrypt: add the new one last everywhere, move it first everywhere, then drop the old."},
		},
	},
	{
		name: "transport",
		doc:  "Node-to-node streams, TCP. They carry raft too.",
		keys: []key{
			{name: "bind", field: func(c *Config, _ int) any { return &c.Transport.Bind },
				doc: "Address to listen on: IP or localhost, and port; port 0 takes any that is free."},
			{name: "advertise", field: func(c *Config, _ int) any { return &c.Transport.Advertise }, notYet: advertNot,
				doc: "Address that the others reach this node at, where it is not the one that it listens on. Not available yet."},
			{name: "insecure_bind", field: func(c *Config, _ int) any { return &c.Transport.InsecureBind },
				doc: "Without [tls] gossip and transport listen on loopback only. true lifts that: anybody who reaches the ports can then read the traffic, and without gossip.keys take part in it."},
		},
	},
	{
		name: "tls",
		doc:  "Mutual TLS for every node-to-node connection: PEM files, all three or none ('drover tls ca' and 'drover tls cert' make them).",
		keys: []key{
			{name: "ca", field: func(c *Config, _ int) any { return &c.TLS.CA },
				doc: "Certificates of the authority that signed every node's certificate."},
			{name: "cert", field: func(c *Config, _ int) any { return &c.TLS.Cert },
				doc: "This node's certificate; it names the node and, for a voter, the role coordinator."},
			{name: "key", field: func(c *Config, _ int) any { return &c.TLS.Key },
				doc: "The certificate's private key."},
		},
	},
	{
		name: "raft",
		doc:  "The replicated log in which ownership of shards is decided.",
		keys: []key{
			{name: "bootstrap_expect", field: func(c *Config, _ int) any { return &c.Raft.BootstrapExpect }, min: 1, max: 1000,
				doc: "How many nodes a new cluster starts with; types with place = \"eager\" wait for as many. Safe to keep at 1 where gossip.join is set. 1 to 1000."},
			{name: "heartbeat_timeout", field: func(c *Config, _ int) any { return &c.Raft.HeartbeatTimeout }, min: int64(50 * time.Millisecond), max: int64(time.Minute),
				doc: "Silence of the leader after which the others elect a new one. 50ms to 1m; shorter is quicker to recover and easier to upset."},
		},
	},
	{
		name: "http",
		doc:  "HTTP API and metrics. The dashboard is not available yet.",
		keys: []key{
			{name: "address", field: func(c *Config, _ int) any { return &c.HTTP.Address },
				doc: "Address to listen on: IP or localhost, and port; port 0 takes any that is free."},
			{name: "insecure_bind", field: func(c *Config, _ int) any { return &c.HTTP.InsecureBind },
				doc: "Without a token HTTP listens on loopback only. true lifts that: anybody who reaches the port can then do anything."},
			{name: "tokens.admin", field: func(c *Config, _ int) any { return &c.HTTP.AdminToken }, secret: true,
				doc: "Bearer token that may do everything; at least 16 characters. Empty: that token is off."},
			{name: "tokens.read", field: func(c *Config, _ int) any { return &c.HTTP.ReadToken }, secret: true,
				doc: "Bearer token that may look and change nothing; at least 16 characters. Empty: that token is off."},
			{name: "max_body", field: func(c *Config, _ int) any { return &c.HTTP.MaxBody }, min: int64(KiB), max: int64(4 * MiB),
				doc: "Largest body of a request, a message to an entity included. 1KiB to 4MiB."},
		},
	},
	{
		name: "sharding",
		doc:  "What holds for every [[type]].",
		keys: []key{
			{name: "rebalance_interval", field: func(c *Config, _ int) any { return &c.Sharding.RebalanceInterval }, min: int64(100 * time.Millisecond), max: int64(time.Hour),
				doc: "How often strategies are asked for moves when nothing else happens. 100ms to 1h."},
			{name: "move_cooldown", field: func(c *Config, _ int) any { return &c.Sharding.MoveCooldown }, min: 0, max: int64(time.Hour),
				doc: "Rest after a move, so that the load it causes does not start the next. 0s to 1h."},
			{name: "settle", field: func(c *Config, _ int) any { return &c.Sharding.Settle }, min: 0, max: int64(10 * time.Minute),
				doc: "How long a new node has to be up before it may get shards. 0s to 10m."},
			{name: "handoff_timeout", field: func(c *Config, _ int) any { return &c.Sharding.HandoffTimeout }, min: int64(100 * time.Millisecond), max: int64(time.Hour),
				doc: "How long the entities of a moving shard may take to stop before it is taken away. 100ms to 1h."},
			{name: "lease_ttl", field: func(c *Config, _ int) any { return &c.Sharding.LeaseTTL }, min: int64(300 * time.Millisecond), max: int64(5 * time.Minute),
				doc: "How long a node serves its shards without word from the coordinator; renewed at a third. Takes effect through the replicated state. 300ms to 5m, and more than raft.heartbeat_timeout."},
			{name: "buffer_messages", field: func(c *Config, _ int) any { return &c.Sharding.BufferMessages }, min: 1, max: 100_000_000,
				doc: "Most messages that a node keeps for shards on the move or without a home; beyond it they are dead letters. 1 to 100_000_000."},
			{name: "buffer_bytes", field: func(c *Config, _ int) any { return &c.Sharding.BufferBytes }, min: int64(KiB), max: int64(1024 * GiB),
				doc: "Most bytes of such messages. 1KiB to 1TiB."},
		},
	},
	{
		name: "migration",
		doc:  "Movement of shard state. Not available yet: any value but the default is refused.",
		keys: []key{
			{name: "rate", field: func(c *Config, _ int) any { return &c.Migration.Rate }, min: 1, max: math.MaxInt64, notYet: stateNot,
				doc: "Most bytes a second that a node sends for snapshots."},
			{name: "max_at_once", field: func(c *Config, _ int) any { return &c.Migration.MaxAtOnce }, min: 1, max: 10_000, notYet: stateNot,
				doc: "Most shards that a node sends or receives at once."},
			{name: "pause_latency", field: func(c *Config, _ int) any { return &c.Migration.PauseLatency }, min: 0, max: int64(time.Hour), notYet: stateNot,
				doc: "Snapshots pause while the slowest hundredth of messages takes longer than this."},
			{name: "pause_cpu", field: func(c *Config, _ int) any { return &c.Migration.PauseCPU }, min: 1, max: 100, notYet: stateNot,
				doc: "Snapshots pause while the node's CPU is busier than this, in per cent."},
			{name: "pause_disk_queue", field: func(c *Config, _ int) any { return &c.Migration.PauseQueue }, min: 1, max: 1_000_000, notYet: stateNot,
				doc: "Snapshots pause while more requests than this wait for the disk."},
			{name: "pause_log", field: func(c *Config, _ int) any { return &c.Migration.PauseLog }, min: int64(MiB), max: math.MaxInt64, notYet: stateNot,
				doc: "Snapshots pause while the log kept for them is larger than this."},
		},
	},
	{
		name: "type", list: true,
		doc:   "One sharded type; repeat the table for more. Settings of a type can be overridden by its name: --set type.counter.strategy=builtin:hash, DROVER_TYPE_COUNTER_STRATEGY.",
		count: func(c *Config) int { return len(c.Types) },
		add:   func(c *Config) { c.Types = append(c.Types, DefaultType()) },
		clear: func(c *Config) { c.Types = nil },
		keys: []key{
			{name: "name", field: func(c *Config, i int) any { return &c.Types[i].Name }, sample: `"counter"`,
				doc: "Name of the type, unique: letters, digits, '-' and '_', at most 64. Required."},
			{name: "entity", field: func(c *Config, i int) any { return &c.Types[i].Entity }, sample: `"counter"`,
				doc: "What its entities are: counter answers {\"add\":n} and {\"get\":true}. kv and http are not available yet. Required."},
			{name: "url", field: func(c *Config, i int) any { return &c.Types[i].URL }, notYet: "entities outside the node come with entity = \"http\"",
				doc: "Where entity = \"http\" posts the messages. Not available yet."},
			{name: "shards", field: func(c *Config, i int) any { return &c.Types[i].Shards }, min: 1, max: 100_000,
				doc: "Number of shards, the same on every node and fixed for the life of the type. 1 to 100_000."},
			{name: "place", field: func(c *Config, i int) any { return &c.Types[i].Place }, oneOf: []string{string(PlaceOnDemand), string(PlaceEager)},
				doc: "When a shard gets its first home: on_demand (with its first message) or eager (all, once raft.bootstrap_expect nodes are there)."},
			{name: "strategy", field: func(c *Config, i int) any { return &c.Types[i].Strategy }, sample: `"builtin:leastshard"`,
				doc: "Who decides on homes and moves: builtin:hash, builtin:leastshard, builtin:rendezvous, the path of a .wasm, or sha256:… of one that the cluster has. A file proposes only where the cluster has no strategy for the type yet."},
			{name: "digest", field: func(c *Config, i int) any { return &c.Types[i].Digest }, notYet: "strategies are not checked against a pin",
				doc: "The one digest (sha256:…) that the strategy must have. Not available yet."},
			{name: "signing_keys", field: func(c *Config, i int) any { return &c.Types[i].SigningKeys }, notYet: "strategies are not checked for signatures",
				doc: "Ed25519 public keys, base64, one of which must have signed the strategy. Not available yet."},
			{name: "fuel", field: func(c *Config, i int) any { return &c.Types[i].Fuel }, min: 10_000, max: 1_000_000_000_000,
				doc: "Most work of one call of the strategy, in units of about one wasm operator. 10000 to 1_000_000_000_000."},
			{name: "budget", field: func(c *Config, i int) any { return &c.Types[i].Budget }, min: int64(time.Millisecond), max: int64(time.Minute),
				doc: "Most time of one call. A call that takes longer decides nothing. 1ms to 1m."},
			{name: "memory", field: func(c *Config, i int) any { return &c.Types[i].Memory }, min: int64(64 * KiB), max: int64(64 * MiB),
				doc: "Most memory of the strategy, a multiple of 64KiB. 64KiB to 64MiB."},
			{name: "max_failures", field: func(c *Config, i int) any { return &c.Types[i].MaxFailures }, min: 1, max: 1000,
				doc: "Failures in a row (trap, fuel, wrong answer) after which the last strategy that worked comes back. 1 to 1000."},
			{name: "moves_per_pass", field: func(c *Config, i int) any { return &c.Types[i].MovesPerPass }, min: 1, max: 1_000_000,
				doc: "Most shards on the move at once, whatever the strategy asks for. 1 to 1_000_000."},
			{name: "persistence", field: func(c *Config, i int) any { return &c.Types[i].Persistence }, notYet: stateNot,
				oneOf: []string{string(PersistMemory), string(PersistEmbedded), string(PersistPostgres)},
				doc:   "Where entities keep their state: memory (lost on a move or restart). embedded and postgres are not available yet."},
			{name: "standby", field: func(c *Config, i int) any { return &c.Types[i].Standby }, min: 0, max: 1, notYet: stateNot,
				doc: "Nodes that hold a second copy of each shard's state. Not available yet: 0."},
			{name: "role", field: func(c *Config, i int) any { return &c.Types[i].Role },
				doc: "Role that a node needs to host the type. Empty: any node."},
			{name: "idle_timeout", field: func(c *Config, i int) any { return &c.Types[i].IdleTimeout }, min: 0, max: int64(365 * day), notYet: idleNot,
				doc: "Idle time after which an entity leaves memory; 0s: never. Not available yet."},
			{name: "shard_idle_timeout", field: func(c *Config, i int) any { return &c.Types[i].ShardIdleTimeout }, min: 0, max: int64(365 * day), notYet: idleNot,
				doc: "Time after which a shard without entities leaves memory; 0s: never. Not available yet."},
			{name: "max_entities", field: func(c *Config, i int) any { return &c.Types[i].MaxEntities }, min: 0, max: 1_000_000_000, notYet: idleNot,
				doc: "Most entities in memory on a node, the least recently used leave; 0: no limit. Not available yet."},
			{name: "remember", field: func(c *Config, i int) any { return &c.Types[i].Remember }, notYet: stateNot,
				doc: "Whether entities are started again after a failover without waiting for a message. Not available yet."},
			{name: "config", field: func(c *Config, i int) any { return &c.Types[i].Config }, sample: "threshold = 1\nmax_moves = 3",
				doc: "Handed to the strategy as it stands; dates become text. For leastshard: a larger threshold and fewer moves mean less churn (for 100 shards with frequent membership changes about 3 and 10; for few shards with much state keep both low)."},
		},
	},
	{
		name: "router", list: true,
		doc:    "A router spreads messages over routees on all nodes; repeat the table for more. Not available yet: any [[router]] is refused.",
		notYet: "nodes do not run routers",
		count:  func(c *Config) int { return len(c.Routers) },
		add:    func(c *Config) { c.Routers = append(c.Routers, DefaultRouter()) },
		clear:  func(c *Config) { c.Routers = nil },
		keys: []key{
			{name: "name", field: func(c *Config, i int) any { return &c.Routers[i].Name }, sample: `"work"`,
				doc: "Name of the router, unique."},
			{name: "path", field: func(c *Config, i int) any { return &c.Routers[i].Path }, sample: `"/user/worker"`,
				doc: "Path under which routees register."},
			{name: "role", field: func(c *Config, i int) any { return &c.Routers[i].Role },
				doc: "Role that a routee's node needs. Empty: any node."},
			{name: "strategy", field: func(c *Config, i int) any { return &c.Routers[i].Strategy },
				oneOf: []string{string(RouteRoundRobin), string(RouteRandom), string(RouteConsistentHashing), string(RouteSmallestMailbox), string(RouteBroadcast)},
				doc:   "How a routee is picked: round-robin, random, consistent-hashing, smallest-mailbox or broadcast."},
			{name: "key", field: func(c *Config, i int) any { return &c.Routers[i].Key },
				doc: "Field of the message that consistent-hashing takes its key from."},
			{name: "mailbox_depth_refresh", field: func(c *Config, i int) any { return &c.Routers[i].DepthRefresh }, min: int64(time.Millisecond), max: int64(time.Hour),
				doc: "How often mailbox depths are asked for."},
			{name: "mailbox_depth_stale_after", field: func(c *Config, i int) any { return &c.Routers[i].DepthStale }, min: 0, max: int64(time.Hour),
				doc: "Age at which a depth no longer counts; 0s: never."},
		},
	},
	{
		name: "log",
		doc:  "What the node writes to stderr.",
		keys: []key{
			{name: "level", field: func(c *Config, _ int) any { return &c.Log.Level },
				oneOf: []string{string(LevelDebug), string(LevelInfo), string(LevelWarn), string(LevelError)},
				doc:   "Least severe level written: debug, info, warn or error."},
			{name: "format", field: func(c *Config, _ int) any { return &c.Log.Format }, oneOf: []string{string(FormatText), string(FormatJSON)},
				doc: "text for people, json for machines."},
		},
	},
	{
		name: "telemetry",
		doc:  "OpenTelemetry traces.",
		keys: []key{
			{name: "endpoint", field: func(c *Config, _ int) any { return &c.Telemetry.Endpoint }, notYet: "nodes send no traces",
				doc: "OTLP endpoint that gets the traces. Empty: none are sent. Not available yet."},
		},
	},
}
