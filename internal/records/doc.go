// Package records keeps the records of strategy calls in a bounded ring on disk, reads them, and runs them again (spec 1.3 "Records").
//
// A [Ring] is a host.Recorder: it copies a record into a bounded queue and returns; its one goroutine writes. What does not fit into the queue
// is dropped, what cannot be written is lost; both are counted, and neither is felt by the call. The ring belongs to whoever holds the lock of
// the data_dir. [Read] takes no lock, and may read while a node writes.
//
// # Files
//
// A segment is a file named by the number of its first record, 16 hexadecimal digits and ".rec": the bytes of [magic], then frames:
//
//	length of the payload   4 bytes, little-endian
//	CRC-32C of the length   4 bytes
//	CRC-32C of the payload  4 bytes
//	payload                 a record, see Encode
//
// A damaged payload costs one record; a damaged length the rest of its segment. Frames are appended, each by one write, to the newest segment until it
// has an eighth of the ring's bytes or records; then the next one is begun, and the oldest go, so that the whole stays within its bounds. An exported file
// is one segment. Nothing is synced: a crash of the process loses what is queued, one of the machine the latest seconds.
package records
