package transport

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sampleGreeting() greeting {
	return greeting{mode: modeKeyed, versions: Versions{1, 2}, label: "test", member: member("a"), advertise: "127.0.0.1:7947", roles: []string{"compute", "coordinator"}}
}

// FuzzDecode: no bytes make a decoder panic, and what decodes encodes to the same bytes, roles in order.
func FuzzDecode(f *testing.F) {
	h := hello{greeting: sampleGreeting(), class: Data, to: member("b")}
	f.Add(byte(0), h.encode())
	w := welcome{greeting: sampleGreeting(), macs: make([][macSize]byte, 2)}
	body, _ := w.encode()
	f.Add(byte(1), body)
	r := refusal{reason: ReasonKey, text: "why"}
	f.Add(byte(2), r.encode())
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		switch which % 3 {
		case 0:
			if h, err := decodeHello(b); err == nil {
				again, err := decodeHello(h.encode())
				require.NoError(t, err)
				require.Equal(t, h, again)
			}
		case 1:
			if w, covered, err := decodeWelcome(b); err == nil {
				require.LessOrEqual(t, covered, len(b))
				body, _ := w.encode()
				again, _, err := decodeWelcome(body)
				require.NoError(t, err)
				require.Equal(t, w, again)
			}
		case 2:
			if r, err := decodeRefusal(b); err == nil {
				require.Equal(t, b, r.encode())
			}
		}
	})
}

// bytesConn is a peer that says what it is given, and then nothing more.
type bytesConn struct {
	io.Reader
}

func (bytesConn) Write(b []byte) (int, error)      { return len(b), nil }
func (bytesConn) Close() error                     { return nil }
func (bytesConn) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (bytesConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (bytesConn) SetDeadline(time.Time) error      { return nil }
func (bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (bytesConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzHandshake: hostile bytes on either side never panic, hang, or pass for a peer that holds the key.
func FuzzHandshake(f *testing.F) {
	h := hello{greeting: sampleGreeting(), class: Data}
	var good bytes.Buffer
	require.NoError(f, writeMessage(&good, magic, typeHello, h.encode()))
	require.NoError(f, writeMessage(&good, "", typeProof, make([]byte, macSize)))
	f.Add(true, good.Bytes())
	w := welcome{greeting: sampleGreeting(), macs: make([][macSize]byte, 1)}
	body, _ := w.encode()
	var answer bytes.Buffer
	require.NoError(f, writeMessage(&answer, "", typeWelcome, body))
	require.NoError(f, writeMessage(&answer, "", typeAccept, nil))
	f.Add(false, answer.Bytes())
	ring, err := newKeyring([][]byte{key(1)})
	require.NoError(f, err)
	me := sampleGreeting()
	me.member = member("me")
	f.Fuzz(func(t *testing.T, listening bool, b []byte) {
		id := identity{self: me, ring: ring, timeout: time.Minute}
		_, _, _, err := id.handshake(t.Context(), bytesConn{bytes.NewReader(b)}, func(ctx context.Context, raw net.Conn) (net.Conn, Peer, Class, error) {
			if listening {
				return id.listen(ctx, raw)
			}
			c, p, err := id.dial(ctx, raw, Data, member("a"))
			return c, p, Data, err
		})
		require.ErrorAs(t, err, new(*HandshakeError))
	})
}

// FuzzBatch: a batch of an authenticated but broken peer is an error, never a panic.
func FuzzBatch(f *testing.F) {
	f.Add([]byte("\x03abc\x00\x01x"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		err := eachFrame(b, 1<<10, func(frame []byte) { require.LessOrEqual(t, len(frame), 1<<10); total += len(frame) + 1 })
		require.LessOrEqual(t, total, len(b))
		if err == nil && len(b) > 0 {
			require.Positive(t, total)
		}
	})
}
