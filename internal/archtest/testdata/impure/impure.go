// Package impure breaks every rule of the core once; a comment on the line says how.
package impure

import (
	"maps"
	"math/rand/v2"
	"slices"
	clock "time"
)

func impure(m map[string]int) []string {
	go println()     // want: starts a goroutine
	var c chan int   // want: uses a channel
	c <- 1           // want: sends on a channel
	select {}        // want: selects over channels
	_ = clock.Now()  // want: reads the clock with time.Now
	_ = clock.Second // a unit is no clock
	_ = rand.IntN(3) // want: draws from the process's random source with rand.IntN
	r := rand.New(rand.NewPCG(1, 2))
	_ = r.IntN(3) // its own source
	for range m { // want: ranges over a map in its order
	}
	for range m { // unordered: nothing is done
	}
	// unordered: nothing is done,
	// and that takes two lines to say
	for range m {
	}
	for range m { // want: ranges over a map in its order
		// unordered:
	}
	for range maps.Keys(m) { // want: maps.Keys in the order of the map
	}
	{
		var clock struct{ Now func() }
		clock.Now() // hides the import
	}
	return slices.Sorted(maps.Keys(m))
}
