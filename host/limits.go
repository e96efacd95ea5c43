package host

import (
	"fmt"
	"time"
)

// PageBytes is the size of one page of wasm memory.
const PageBytes = 65536

// The defaults and bounds of Limits (spec 1.3).
const (
	// DefaultFuel is less than a tight loop can burn within DefaultBudget, so that fuel, which is the same on every machine, ends a strategy
	// that never ends by itself, and not the clock, which rolls nothing back. See RATIONALE.md.
	DefaultFuel        = 50_000_000
	DefaultInitFuel    = 500_000_000
	DefaultBudget      = 100 * time.Millisecond
	DefaultMemoryPages = 16 << 20 / PageBytes
	MaxMemoryPages     = 64 << 20 / PageBytes
	DefaultDepth       = 1500
	MaxDepth           = 1500
	// MaxFuel keeps sums of fuel far from the end of int64.
	MaxFuel = 1 << 50
)

// Limits bound what a strategy may use. The zero value of a field means its
// default.
type Limits struct {
	// Fuel is what one call may spend, in units of the cost model.
	Fuel int64
	// InitFuel is what start section, _initialize, drover_configure and the
	// warm-up may spend together.
	InitFuel int64
	// Budget is the wall-clock time of one call.
	Budget time.Duration
	// MemoryPages bounds the memory, in pages of 64 KiB.
	MemoryPages uint32
	// Depth bounds the weighted call depth. It cannot be raised above MaxDepth:
	// beyond that the engines' own limits would decide, each at another place.
	Depth int32
}

// WithDefaults returns l with zero fields filled in.
func (l Limits) WithDefaults() Limits {
	if l.Fuel == 0 {
		l.Fuel = DefaultFuel
	}
	if l.InitFuel == 0 {
		l.InitFuel = DefaultInitFuel
	}
	if l.Budget == 0 {
		l.Budget = DefaultBudget
	}
	if l.MemoryPages == 0 {
		l.MemoryPages = DefaultMemoryPages
	}
	if l.Depth == 0 {
		l.Depth = DefaultDepth
	}
	return l
}

// Validate names the first field that is out of bounds.
func (l Limits) Validate() error {
	switch {
	case l.Fuel < 0 || l.Fuel > MaxFuel:
		return fmt.Errorf("fuel %d: must be between 1 and %d", l.Fuel, int64(MaxFuel))
	case l.InitFuel < 0 || l.InitFuel > MaxFuel:
		return fmt.Errorf("init fuel %d: must be between 1 and %d", l.InitFuel, int64(MaxFuel))
	case l.Budget < 0:
		return fmt.Errorf("budget %s: must be positive", l.Budget)
	case l.MemoryPages > MaxMemoryPages:
		return fmt.Errorf("memory %d pages: at most %d pages (64 MiB)", l.MemoryPages, MaxMemoryPages)
	case l.Depth < 0 || l.Depth > MaxDepth:
		return fmt.Errorf("depth %d: must be between 1 and %d", l.Depth, MaxDepth)
	}
	return nil
}
