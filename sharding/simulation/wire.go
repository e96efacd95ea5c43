package simulation

import "github.com/droverhq/drover/sharding/protocol"

// wireEvery says in how many seeds one sends its messages and entries through their encodings: there, what an encoding leaves out does not arrive,
// and nobody shares memory with a sender. It costs two fifths of a seed's time.
const wireEvery = 4

func (w *world) wire() bool { return w.opts.Seed%wireEvery == 0 }

// overWire gives a message as its receiver has it. A Deliver is copied in any case: its receiver changes it, and its sender may go on with its own.
func (w *world) overWire(m protocol.Message) protocol.Message {
	if !w.wire() {
		if d, ok := m.(*protocol.Deliver); ok {
			copied := *d
			return &copied
		}
		return m
	}
	frame, err := protocol.AppendFrame(nil, m)
	if err == nil {
		var read protocol.Message
		if read, err = protocol.DecodeFrame(frame); err == nil {
			return read
		}
	}
	w.fail("wire", "%s: %v", m.FrameKind(), err)
	return m
}

// overLog gives an entry as a server reads it from the log.
func (w *world) overLog(e *protocol.Entry) *protocol.Entry {
	if !w.wire() {
		return e
	}
	data, err := protocol.EncodeEntry(e)
	if err == nil {
		var read *protocol.Entry
		if read, err = protocol.DecodeEntry(data); err == nil {
			return read
		}
	}
	w.fail("wire", "%s: %v", e.Kind, err)
	return e
}
