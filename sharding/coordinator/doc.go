// Package coordinator decides who owns which shard. It holds the replicated [State], changed by committed log entries alone and the same
// on every raft server, and the leader's [Machine] over it: events in, commands out. It is pure: no goroutine, no clock, no context, no
// logger, nothing that ranges over a map into its output; the shell (internal/controlplane, node) carries out commands and logs. It may
// import pluginapi, strategies/hash (the fallback), sharding and sharding/protocol, and nothing else of this project.
//
// Files: state.go (columns, reads), apply_*.go (one log entry, rechecked), snapshot.go; machine.go (the leader's life, dispatch),
// members.go (registration, candidates), leases.go, homes.go (contact, allocate), passes.go (rebalance), handoff.go (moves, fences),
// starts.go (grants told to their owners), strategy.go (failures, swap), requests.go (operators), publish.go (map deltas), input.go (what a strategy sees).
package coordinator
