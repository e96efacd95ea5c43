// Package protocol holds everything that crosses a process or a restart: node-to-node messages, replicated log entries, records, with
// their encodings and versions (docs/adr/0002-schema.md). It holds no behaviour: coordinator, region and transport give it meaning.
//
// Control messages and log entries are CBOR with integer keys (core deterministic), so fields can be added and unknown ones are skipped.
// Data frames, the hot path, are a fixed binary form (data.go). Both begin with the version.
package protocol

// Version is the version of frames, log entries and snapshots that this build writes. A build reads Version and OldestVersion..Version:
// two adjacent versions run side by side during a rolling upgrade (spec 2.1).
const (
	Version       = 1
	OldestVersion = 1
)
