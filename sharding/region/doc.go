// Package region holds the two machines that every node runs: [Session], one a node, which knows who leads, which orders count, how
// long the lease runs and what the shard map says; and [Region], one a type and node, which routes, buffers, hands off, holds and
// forwards messages (spec 2.1, 2.3, docs/adr/0002-schema.md). It decides whether a message may begin and whether an effect may leave;
// it runs no entity code.
//
// Both are pure: Step(at, event) gives commands, in order. There is no clock, goroutine, context, logger or map order in here, and the
// package must not import adapters or the coordinator.
package region
