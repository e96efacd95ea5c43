// Package scenario reads scenario files and plays them against a strategy: a cluster, what happens to it, what the strategy
// is asked, and what it is expected to answer, as TOML (docs/scenario-files.md). `drover strategy test` and
// harness.Scenarios run them; it stands on package lab and imports no test library.
//
// Load and Parse check a file whole: every key that is not known, of the wrong type, or about a node or shard that is not
// there is an *Error with its place. Scenario.Run plays one; what was not as expected is a *Failure with the place of the
// expectation and a *lab.Fault.
package scenario
