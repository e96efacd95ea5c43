package simulation

import (
	"fmt"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// stored is I18.
type stored struct{}

func newStored() stored     { return stored{} }
func (stored) Name() string { return "I18 stored before used" }
func (stored) Observe(f Fact) error {
	if a, ok := f.(Activated); ok && a.Chosen && 2*a.Have <= a.Servers {
		return fmt.Errorf("entry %d puts module %x of %s to use (shadow: %t), and %d of %d servers have it", a.Index, a.Digest[:4], a.Type, a.Shadow, a.Have, a.Servers)
	}
	return nil
}

// decides is I19.
type decides struct{}

func newDecides() decides    { return decides{} }
func (decides) Name() string { return "I19 only the strategy in force decides" }
func (decides) Observe(f Fact) error {
	switch f := f.(type) {
	case Acted:
		if f.Entry != nil && !f.Ready {
			return fmt.Errorf("%v proposes what a module decided that is not ready there", f.Member)
		}
	case Applied:
		d := decision(f.Entry)
		if d == nil || len(f.Changes) == 0 {
			return nil
		}
		if d.Digest != [32]byte{} && d.Digest != f.Digest {
			return fmt.Errorf("entry %d follows from module %x, and %x is in force", f.Index, d.Digest[:4], f.Digest[:4])
		}
		if d.Digest == [32]byte{} && f.Entry.PlanMoves != nil && d.Cause == protocol.CauseRebalance {
			return fmt.Errorf("entry %d moves shards, and no strategy has asked for it", f.Index)
		}
	}
	return nil
}

// settles is I20.
type settles struct{ first map[sharding.TypeName]Settled }

func newSettles() *settles      { return &settles{map[sharding.TypeName]Settled{}} }
func (c *settles) Name() string { return "I20 one strategy in the end" }
func (c *settles) Observe(f Fact) error {
	s, ok := f.(Settled)
	if !ok {
		return nil
	}
	first, known := c.first[s.Type]
	switch {
	case s.Leads && !s.Ready:
		return fmt.Errorf("%v leads, and has not made the strategy %x of %s and its shadow %x ready", s.Server, s.Strategy[:4], s.Type, s.Shadow[:4])
	case !known:
		c.first[s.Type] = s
	case first.Strategy != s.Strategy || first.Shadow != s.Shadow:
		return fmt.Errorf("%v has the strategy %x of %s and the shadow %x, %v has %x and %x", first.Server, first.Strategy[:4], s.Type, first.Shadow[:4], s.Server, s.Strategy[:4], s.Shadow[:4])
	}
	return nil
}
