// Package host runs placement strategies: it admits a WebAssembly module,
// rewrites it so that fuel and call depth are bounded, compiles it, and calls
// it, each time from the same memory image (spec 1.3). It is the only importer
// of wazero.
//
// A [Runtime] owns one engine. [Runtime.Compile] turns bytes into a [Module],
// which depends on no configuration; [Module.Prepare] initialises it with one
// and returns a [Strategy], which answers allocate and rebalance, is safe for
// concurrent use and returns a [Record] of every call.
//
// # Goroutines
//
// One for each module that is being compiled, which uses wazero's workers and
// waits for them. It goes on for whoever waits for the module, is cancelled once
// all of them have given up, and [Runtime.Close] waits for it. A guest runs on
// its caller's goroutine; it cannot be pre-empted, but calls back whenever a
// slice of its fuel is used up (see meter), which is where Go's collector can
// stop it and where fuel and clock are looked at. A
// guest instance is single-threaded: a Strategy keeps a pool of them.
package host
