// Package transport carries frames, calls and raft between nodes, and knows who the peer is (spec 2.1, 5.2).
//
// A node listens on one port. Each connection begins with a handshake (mutual TLS, or HMAC by the gossip key over fresh
// nonces of both sides) that fixes the peer's sharding.Member, its cluster, its roles and the class of the connection:
// raft, control, data or call. What travels afterwards is not interpreted here, and nothing in a payload says who sent it.
// The package imports sharding for Member alone, and is the only importer of grpc.
//
// # Streams
//
// For each (peer, class), class control or data, there is at most one stream in each direction, each on a connection of
// its own: a node dials the streams that it sends on. A slow or broken direction therefore never touches the other, and
// control never waits behind data. DESIGN.md says what a stream promises.
//
// # Goroutines
//
//   - accept loop: owns the listener; hands each connection to a goroutine of its own for the handshake, which ends
//     when the connection is handed on, or refused, or its time is up.
//   - expiry, with TLS: says each day that the certificate ends soon. Ends at Close.
//   - link, one a (peer, class) that frames were sent to: dials, writes batches, reports Up and Down. Ends when the peer is
//     no longer wanted, or at Close.
//   - inbound stream, one a (peer, class) that frames come from: reads batches and calls Handler.Frame. Runs in a
//     goroutine of grpc, ends with the stream.
//   - self, one a class once a node sends to itself: hands its own frames to Handler.Frame.
//   - call, one a request under way: runs Handler.Call.
//
// Close ends all of them and waits. No channel is closed by anyone but its only sender.
package transport
