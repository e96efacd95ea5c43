package transport

import "sync/atomic"

// ClassStats counts one class since the start. What a node sends to itself is not in it.
type ClassStats struct {
	FramesSent, BytesSent, BatchesSent             uint64 // handed to the connection; bytes of frames without framing
	FramesReceived, BytesReceived, BatchesReceived uint64 // handed to the handler
	FramesLost                                     uint64 // accepted by Send, dropped before the connection had them
	Rejected                                       uint64 // refused by Send: queue full, peer away, too large
	Connects                                       uint64 // connections that this node made
	Breaks                                         uint64 // outbound streams that ended other than by Close
}

// Stats is a snapshot of all counters and of the queues.
type Stats struct {
	Classes      map[Class]ClassStats
	Refused      map[Reason]uint64 // inbound handshakes that failed
	DialFailures map[Reason]uint64 // outbound attempts that failed
	Connections  int
	QueuedFrames int
	QueuedBytes  int
}

type classCounters struct {
	framesSent, bytesSent, batchesSent             atomic.Uint64
	framesReceived, bytesReceived, batchesReceived atomic.Uint64
	framesLost, rejected, connects, breaks         atomic.Uint64
}

type counters struct {
	classes      [Raft + 1]classCounters
	refused      [reasonCount]atomic.Uint64
	dialFailures [reasonCount]atomic.Uint64
}

func (r Reason) index() Reason {
	if r >= reasonCount { // a peer may name one of a later version
		return 0
	}
	return r
}

func (c *counters) snapshot() Stats {
	s := Stats{Classes: map[Class]ClassStats{}, Refused: map[Reason]uint64{}, DialFailures: map[Reason]uint64{}}
	for class := Control; class <= Raft; class++ {
		k := &c.classes[class]
		s.Classes[class] = ClassStats{
			FramesSent: k.framesSent.Load(), BytesSent: k.bytesSent.Load(), BatchesSent: k.batchesSent.Load(),
			FramesReceived: k.framesReceived.Load(), BytesReceived: k.bytesReceived.Load(), BatchesReceived: k.batchesReceived.Load(),
			FramesLost: k.framesLost.Load(), Rejected: k.rejected.Load(), Connects: k.connects.Load(), Breaks: k.breaks.Load(),
		}
	}
	for i := range reasonCount {
		if n := c.refused[i].Load(); n > 0 {
			s.Refused[Reason(i)] = n
		}
		if n := c.dialFailures[i].Load(); n > 0 {
			s.DialFailures[Reason(i)] = n
		}
	}
	return s
}
