package sharding

import "github.com/cespare/xxhash/v2"

// ShardOf maps an entity id to its shard: XXH64(id, seed 0) mod numShards (spec 2.4). Test vectors for clients in other languages are in
// docs/sharding.md; XXH64("") = 0xEF46DB3751D8E999. numShards must be positive.
func ShardOf(id string, numShards uint32) ShardID {
	return ShardID(xxhash.Sum64String(id) % uint64(numShards))
}
