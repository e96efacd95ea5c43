package protocol

import "fmt"

// appendData appends the binary body of a data message to dst, which already ends with the frame's header.
func appendData(dst []byte, m Message) ([]byte, error) {
	return dst, fmt.Errorf("encode %s: %w", m.FrameKind(), ErrUnknownKind)
}

// decodeData reads the body of a data frame. The message's Payload shares memory with b.
func decodeData(k FrameKind, b []byte) (Message, error) {
	return nil, fmt.Errorf("frame: %w %d", ErrUnknownKind, uint8(k))
}
