package pluginapi

// MoveLimits are the limits on the moves of one rebalance that a strategy takes from its configuration, under the keys
// that the built-in ones share: max_moves and max_moves_share.
type MoveLimits struct {
	Moves uint64 // most moves; 0 moves nothing
	Share Share  // most moves as a part of the shards with a home; one move is always allowed
}

// The limits of a configuration that names none.
const (
	DefaultMaxMoves      uint64 = 3
	DefaultMaxMovesShare        = Whole
)

// MoveLimits returns the limits that the table holds, each its default where the key is missing.
func (c Config) MoveLimits() (l MoveLimits, err error) {
	if l.Moves, err = c.Uint("max_moves", DefaultMaxMoves); err != nil {
		return l, err
	}
	l.Share, err = c.Share("max_moves_share", DefaultMaxMovesShare)
	return l, err
}

// MoveLimitKeys describes the keys that Config.MoveLimits reads.
func MoveLimitKeys() []ConfigKey {
	return []ConfigKey{
		{Key: "max_moves", Type: "uint", Default: DefaultMaxMoves, Help: "most moves of one rebalance; 0 moves nothing"},
		{Key: "max_moves_share", Type: "float", Default: 1.0, Help: "most moves of one rebalance as a share of all shards with a home, from 0 to 1; one move is always allowed"},
	}
}

// MoveLimit is the most moves that a plan may hold: the smallest of l.Moves, max(1, floor(l.Share × homed)) and what the
// host will take. homed is a number of shards.
func (s *Snapshot) MoveLimit(homed int, l MoveLimits) int {
	return int(min(uint64(max(1, l.Share.Of(homed))), l.Moves, s.MaxMoves))
}

// Hold returns the reason for which no strategy should plan a move now, "" where there is none: there is nowhere to go,
// or a rolling upgrade is under way.
func (s *Snapshot) Hold() string {
	switch {
	case len(s.Candidates) == 0:
		return "no candidates"
	case s.MixedVersions():
		return "candidates run different versions"
	}
	return ""
}
