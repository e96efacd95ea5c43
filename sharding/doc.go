// Package sharding is the public vocabulary of sharded, stateful services (ids, epochs, revisions) and the API through which Go
// programs declare entities and send them messages. It imports no adapter and none of its own sub-packages.
package sharding
