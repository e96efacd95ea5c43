// Package simulation runs the real machines (coordinator.Machine on raft servers, region.Session and region.Region on every node) in
// a world of virtual clocks, a virtual network, a model of raft and a model of the entity runtime, with clients and a schedule of faults, all drawn
// from one seed (spec 2.6). After every step the invariants of ADR 3 are checked on the facts that the world observes from outside the machines.
//
// One goroutine runs one world; nothing sleeps and nothing reads a real clock, so a seed always gives the same run. The package is for
// tests alone and imports no adapter.
package simulation
