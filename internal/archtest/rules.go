package archtest

var core = []string{
	"sharding/coordinator/...", "sharding/region/...", "sharding/migration/...", "sharding/protocol/...",
	"sharding/placement/...", "sharding/simulation/...",
}

// Rules are the import rules of the project.
var Rules = []Rule{
	{
		Name: "only internal/cluster imports serf", Reason: "membership is a hint; nothing else may come to depend on how it is spread",
		In: []string{"..."}, Except: []string{"internal/cluster/..."}, Tests: true,
		Deny: []string{"github.com/hashicorp/serf/...", "github.com/hashicorp/memberlist/..."},
	},
	{
		Name: "only internal/controlplane imports raft", Reason: "the log is reached through one thin shell, so that what is replicated stays in sharding/protocol",
		In: []string{"..."}, Except: []string{"internal/controlplane/..."}, Tests: true,
		Deny: []string{"github.com/hashicorp/raft/...", "github.com/hashicorp/raft-wal/...", "github.com/hashicorp/raft-autopilot/..."},
	},
	{
		Name: "only host imports wazero", Reason: "no guest may run but metered, limited and from its image",
		In: []string{"..."}, Except: []string{"host/..."}, Tests: true,
		Deny: []string{"github.com/tetratelabs/wazero/..."},
	},
	{
		Name: "only internal/transport imports grpc", Reason: "its stream sits behind a small interface so that another can take its place",
		In: []string{"..."}, Except: []string{"internal/transport/..."}, Tests: true,
		Deny: []string{"google.golang.org/grpc/...", "google.golang.org/protobuf/..."},
	},
	{
		Name: "wasmbin imports the standard library alone", Reason: "decoding hostile bytes is read most easily without context",
		In: []string{"host/internal/wasmbin/..."}, Allow: []string{"host/internal/wasmbin/..."},
	},
	{
		Name: "fuel imports wasmbin alone", Reason: "metering is bytes to bytes, and proven without an engine",
		In: []string{"host/internal/fuel/..."}, Allow: []string{"host/internal/wasmbin/...", "host/internal/fuel/..."},
	},
	{
		Name: "the reference interpreter imports wasmbin alone", Reason: "a mistake that it shared with the metering would agree with itself",
		In: []string{"host/internal/reference/..."}, Allow: []string{"host/internal/wasmbin/..."},
	},
	{
		Name: "only tests import the reference interpreter", Reason: "it is slow and bare: what the engines are held against, and no way to run a guest",
		In: []string{"..."}, Except: []string{"host/internal/reference/..."}, Deny: []string{"host/internal/reference/..."},
	},
	{
		Name: "pluginapi imports the standard library alone", Reason: "it is compiled into guests, by TinyGo too",
		In: []string{"pluginapi"}, Allow: []string{"pluginapi/..."},
	},
	{
		Name: "a strategy imports pluginapi alone", Reason: "it is compiled to wasm and must be a function of its input",
		In: []string{"strategies/hash/...", "strategies/leastshard/...", "strategies/rendezvous/...", "strategies/internal/..."}, Allow: []string{"pluginapi", "strategies/..."},
		Std: []string{"time", "net/...", "os/...", "math/rand/...", "crypto/rand", "hash/maphash", "sync/...", "context", "log/...", "runtime/..."},
	},
	{
		Name: "the core imports sharding, pluginapi and pure strategies alone", Reason: "the machines must be the same in the simulation, in tests and in a node",
		In: core, Allow: []string{"sharding/...", "pluginapi", "strategies/hash", "strategies/leastshard", "strategies/rendezvous", "github.com/fxamacker/cbor/v2", "github.com/cespare/xxhash/v2"},
		Std: []string{"net/...", "os/...", "context", "sync/...", "log/...", "crypto/rand", "hash/maphash", "runtime/...", "io/fs", "syscall"},
	},
	{
		Name: "sharding is the vocabulary and imports none of its parts", Reason: "every part imports it",
		In: []string{"sharding"}, Deny: []string{
			"sharding/coordinator/...", "sharding/region/...", "sharding/migration/...", "sharding/simulation/...",
			"internal/...", "host/...", "node/...", "router/...", "cmd/...",
		},
	},
	{
		Name: "nothing below sharding imports an adapter", Reason: "imports point one way: cmd/node, node, adapters, sharding",
		In: []string{"sharding/..."}, Deny: []string{"internal/...", "host/...", "node/...", "cmd/..."},
	},
	{
		Name: "only tests import the simulation", Reason: "it is a test bench, not a part of a node",
		In: []string{"..."}, Except: []string{"sharding/simulation/..."}, Deny: []string{"sharding/simulation/..."},
	},
	{
		Name: "only tests import the harness", Reason: "it brings testing along; what needs none of it is host/harness/lab",
		In: []string{"..."}, Deny: []string{"host/harness"},
	},
	{
		Name: "an adapter imports neither node nor cmd", Reason: "imports point one way: cmd/node, node, adapters, sharding",
		In: []string{"internal/...", "host/...", "router/...", "pluginapi/...", "strategies/..."}, Deny: []string{"node/...", "cmd/..."}, Tests: true,
	},
	{
		Name: "node does not import cmd", Reason: "it is public, for people who embed a node",
		In: []string{"node/..."}, Deny: []string{"cmd/..."}, Tests: true,
	},
	{
		Name: "httpapi imports no adapter that runs the cluster", Reason: "handlers see interfaces that they declare; serf, raft and wazero must not show through",
		In: []string{"internal/httpapi/..."}, Deny: []string{"internal/cluster/...", "internal/controlplane/...", "internal/transport/...", "host/..."},
	},
	{
		Name: "config and tomldoc import toml alone", Reason: "a configuration can be checked without anything that it configures",
		In: []string{"internal/config/...", "internal/tomldoc/..."}, Allow: []string{"github.com/BurntSushi/toml", "internal/tomldoc"},
	},
	{
		Name: "testify stays in tests", Reason: "a node carries no test library; host/harness is one",
		In: []string{"..."}, Except: []string{"host/harness", "sharding/simulation/..."}, Deny: []string{"github.com/stretchr/testify/...", "pgregory.net/rapid/..."},
		Std: []string{"testing/..."},
	},
}
