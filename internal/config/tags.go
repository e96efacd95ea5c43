package config

import (
	"fmt"
	"strconv"
	"strings"
)

// TagLimit is what Serf lets the tags of a node take, encoded, in bytes (spec 2.1).
const TagLimit = 512

// ownTags is room kept for what a node adds to its tags when it starts: cluster ID, server ID and incarnation (UUIDs),
// versions, and the names of these tags.
const ownTags = 200

// TagBytes is what tags take in Serf's encoding: MessagePack, in its old form without 8-bit text lengths, behind a marker
// byte.
func TagBytes(tags map[string]string) int {
	n := 2 // marker, map of up to 15
	if len(tags) > 15 {
		n += 2
	}
	for k, v := range tags {
		n += textBytes(k) + textBytes(v)
	}
	return n
}

func textBytes(s string) int {
	if len(s) < 32 {
		return 1 + len(s)
	}
	return 3 + len(s)
}

// tagProblem checks the budget before anything starts, with room for what the node will add.
func (c *Config) tagProblem() string {
	tags := map[string]string{
		"roles":     strings.Join(c.Roles, ","),
		"zone":      c.Zone,
		"capacity":  strconv.Itoa(c.Capacity),
		"transport": longer(c.Transport.Advertise, c.Transport.Bind),
		"http":      c.HTTP.Address,
	}
	const prefix = "t." // keeps the user's tags apart from the node's
	for k, v := range c.Tags {
		tags[prefix+k] = v
	}
	if n := TagBytes(tags) + ownTags; n > TagLimit {
		return fmt.Sprintf("together with roles and zone they take up to %d bytes of gossip's %d: shorten them by %d", n, TagLimit, n-TagLimit)
	}
	return ""
}

func longer(a, b string) string {
	if len(a) > len(b) {
		return a
	}
	return b
}
