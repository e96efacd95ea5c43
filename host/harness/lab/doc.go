// Package lab is the part of the harness that needs no test: clusters built fluently, a strategy behind one look whether
// it is native or a module, checks of what it answers, and a simulator. Package harness puts testing.TB around it; a
// command line can use it as it is. It imports no test library.
//
// A check returns nil or a *Fault, whose text shows the snapshot, the decision and what would have been right. Nothing
// here is safe for concurrent use.
package lab
