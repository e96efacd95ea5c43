package coordinator

import (
	"fmt"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Bounds of what members may bring into the log, where it stays: types are never taken out again, and every server and every strategy's
// input carries what nodes say of themselves. A node that asks for more is refused (spec 2.1: judged by who it is, never by what it says).
const (
	maxTypes   = 1024
	maxInfo    = 16 << 10 // bytes of a NodeInfo; gossip carries most of it in 512
	maxRegions = 1 << 20  // bytes of all of a node's regions, configurations of strategies included
)

// noRoom says why a type cannot be entered with a region's number of shards; "" where it can.
func (s *State) noRoom(g *protocol.RegionInfo) string {
	all := uint64(g.NumShards)
	for _, t := range s.types {
		all += uint64(t.numShards)
	}
	switch {
	case g.Type == "" || len(g.Type) > protocol.MaxName:
		return fmt.Sprintf("a type needs a name of 1 to %d bytes, this one has %d", protocol.MaxName, len(g.Type))
	case g.NumShards == 0 || g.NumShards > sharding.MaxShards:
		return fmt.Sprintf("type %s cannot have %d shards: want 1 to %d", g.Type, g.NumShards, sharding.MaxShards)
	case len(s.types) >= maxTypes:
		return fmt.Sprintf("type %s is one too many: a cluster has at most %d", g.Type, maxTypes)
	case all > sharding.MaxAllShards:
		return fmt.Sprintf("type %s cannot have %d shards: with it the types of this cluster would have %d, at most %d are allowed", g.Type, g.NumShards, all, sharding.MaxAllShards)
	}
	return ""
}

// tooLarge says what is too large about a registration; "" where it may be entered.
func tooLarge(msg *protocol.Register) string {
	i := &msg.Info
	info := len(i.Address) + len(i.Zone) + len(i.Version) + len(i.HTTP)
	for _, r := range i.Roles {
		info += len(r) + 1
	}
	for k, v := range i.Tags { // unordered: a sum
		info += len(k) + len(v) + 2
	}
	if info > maxInfo {
		return fmt.Sprintf("roles, zone, tags and addresses of this node have %d bytes, at most %d are allowed: use fewer or shorter ones", info, maxInfo)
	}
	regions := 0
	for n := range msg.Regions {
		g := &msg.Regions[n]
		regions += 64 + len(g.Type) + len(g.Role) + len(g.Place) + len(g.Strategy.Source) + len(g.Strategy.Config)
	}
	if regions > maxRegions {
		return fmt.Sprintf("the %d types of this node, their strategies' configurations included, have %d bytes, at most %d are allowed", len(msg.Regions), regions, maxRegions)
	}
	return ""
}

// handsOverTooMuch says that the numbers which an owner hands over with a shard do not fit into an entry of the log.
func handsOverTooMuch(senders []protocol.SenderSeq) bool {
	n := 0
	for i := range senders {
		n += 32 + len(senders[i].Sender.Node)
	}
	return n > protocol.MaxEntry/2
}

// badSettings says what is wrong with the cluster-wide times; "" where they may be set.
func badSettings(s protocol.Settings) string {
	if s.LeaseTTL < 1 || s.LeaseTTL > protocol.MaxLeaseTTL {
		return fmt.Sprintf("a lease TTL of %d ms: want 1 to %d", s.LeaseTTL, protocol.MaxLeaseTTL)
	}
	return ""
}
