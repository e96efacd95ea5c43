package protocol

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/droverhq/drover/sharding"
)

var updateData = flag.Bool("update-data", false, "write testdata/data_frames.txt anew")

func incarnation(b byte) (i sharding.Incarnation) {
	for k := range i {
		i[k] = b + byte(k)
	}
	return i
}

type dataCase struct {
	name string
	m    Message
}

func dataCases() []dataCase {
	a := sharding.Member{Node: "node-a", Incarnation: incarnation(1)}
	return []dataCase{
		{"tell", &Deliver{Type: "counter", Shard: 7, Epoch: 3, Sender: a, Seq: 300, Entity: "user-42", Payload: []byte("hello")}},
		{"ask", &Deliver{Type: "counter", Shard: 99, Epoch: 1 << 40, Sender: a, Seq: 1, Hops: 5, Mode: Ask, Ask: 17, Deadline: 5000, Held: 300,
			Command: Command{Client: incarnation(9), Seq: 4}, Entity: "a/b\x00..", Payload: []byte{0xff}}},
		{"forwarded", &Deliver{Type: "counter", Shard: 7, Epoch: 300, Origin: 298, Sender: a, Seq: 300, Hops: 2, Held: 7, Entity: "user-42", Payload: []byte("hello")}},
		{"start", &Deliver{Type: "t", Mode: Start, Ask: 1, Seq: 1, Sender: a, Entity: "e"}},
		{"empty", &Deliver{}},
		{"largest", &Deliver{Type: sharding.TypeName(strings.Repeat("t", MaxName)), Shard: 1<<32 - 1, Epoch: 1<<64 - 1, Sender: a, Seq: 1<<64 - 1, Hops: 255,
			Deadline: 1<<63 - 1, Ask: 1<<64 - 1, Mode: Ask, Entity: strings.Repeat("e", sharding.MaxEntityID)}},
		{"reply", &Reply{Ask: 17, Status: StatusOK, Payload: []byte("world")}},
		{"unavailable", &Reply{Ask: 1, Status: StatusUnavailable, Home: &MovedTo{Type: "counter", Shard: 7, Owner: a, Epoch: 4}}},
		{"moved", &SenderMoved{Type: "counter", Shard: 7, Epoch: 3, From: 1, Seq: 12}},
		{"done", &SenderDone{Type: "counter", Shard: 7, Epoch: 4, Sender: a, From: 1, Seq: 12}},
		{"closed", &SenderDone{Type: "counter", Shard: 7, Epoch: 4, Sender: a}},
	}
}

// Golden bytes: the form of version 1 never changes (spec 2.1, adjacent versions run side by side).
func TestDataFramesKeepTheirBytes(t *testing.T) {
	var got strings.Builder
	for _, c := range dataCases() {
		b, err := appendData(nil, c.m)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got.WriteString(c.name + " " + hex.EncodeToString(b) + "\n")
	}
	path := filepath.Join("testdata", "data_frames.txt")
	if *updateData {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("data frames have other bytes than %s; a new form needs a new version. Got:\n%s", path, got.String())
	}
}

func TestDataFramesRoundTrip(t *testing.T) {
	for _, c := range dataCases() {
		t.Run(c.name, func(t *testing.T) {
			b, err := appendData([]byte("kept"), c.m)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(b, []byte("kept")) {
				t.Fatal("what was in dst is gone")
			}
			got, err := decodeData(c.m.FrameKind(), b[4:])
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.m) {
				t.Errorf("got  %+v\nwant %+v", got, c.m)
			}
		})
	}
}

// Every proper prefix is an error, or, where a payload ends the frame, a message with a shorter payload.
func TestDataFramesCutShort(t *testing.T) {
	for _, c := range dataCases() {
		b, err := appendData(nil, c.m)
		if err != nil {
			t.Fatal(err)
		}
		var payload int
		switch m := c.m.(type) {
		case *Deliver:
			payload = len(m.Payload)
		case *Reply:
			payload = len(m.Payload)
		}
		for n := range len(b) {
			_, err := decodeData(c.m.FrameKind(), b[:n])
			if wantErr := n < len(b)-payload; (err != nil) != wantErr {
				t.Errorf("%s cut to %d of %d bytes: error %v, want one: %v", c.name, n, len(b), err, wantErr)
			}
		}
	}
}

func TestDataFramesOutOfBounds(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	for name, m := range map[string]Message{
		"type":     &Deliver{Type: sharding.TypeName(long)},
		"node":     &Deliver{Sender: sharding.Member{Node: sharding.NodeID(long)}},
		"entity":   &Deliver{Entity: strings.Repeat("x", sharding.MaxEntityID+1)},
		"payload":  &Deliver{Payload: make([]byte, MaxPayload+1)},
		"mode":     &Deliver{Mode: 3},
		"deadline": &Deliver{Deadline: -1},
		"status":   &Reply{Status: 8},
		"reply":    &Reply{Payload: make([]byte, MaxPayload+1)},
		"home":     &Reply{Home: &MovedTo{Type: sharding.TypeName(long)}},
		"moved":    &SenderMoved{Type: sharding.TypeName(long)},
		"done":     &SenderDone{Sender: sharding.Member{Node: sharding.NodeID(long)}},
		"control":  &Leading{},
	} {
		if _, err := appendData(nil, m); err == nil {
			t.Errorf("%s: encoded, want an error", name)
		}
		if m.FrameKind() < FrameDeliver {
			continue
		}
		if dst, err := AppendFrame([]byte("kept"), m); err == nil || string(dst) != "kept" {
			t.Errorf("%s: dst is %q after the error %v, want it as it was", name, dst, err)
		}
	}
	moved, err := appendData(nil, &SenderMoved{Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind FrameKind
		body []byte
	}{
		"control kind":     {FrameLeading, nil},
		"bytes too many":   {FrameSenderMoved, append(moved, 0)},
		"unknown flags":    {FrameReply, []byte{0x80, 0, 0}},
		"unknown mode":     {FrameDeliver, append([]byte{3}, make([]byte, 40)...)},
		"unknown status":   {FrameReply, []byte{0, 0, 9}},
		"varint overflow":  {FrameReply, append([]byte{0}, bytes.Repeat([]byte{0xff}, 11)...)},
		"shard too large":  {FrameSenderMoved, []byte{0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0}},
		"payload too long": {FrameReply, append([]byte{0, 0, 0}, make([]byte, MaxPayload+1)...)},
	} {
		if m, err := decodeData(c.kind, c.body); err == nil {
			t.Errorf("%s: decoded %+v, want an error", name, m)
		}
	}
}

// A payload cannot be appended to over the frame that follows it in the read buffer.
func TestPayloadHasNoRoom(t *testing.T) {
	b, err := appendData(nil, &Reply{Payload: []byte("abc")})
	if err != nil {
		t.Fatal(err)
	}
	buf := append(b, "next frame"...)
	m, err := decodeData(FrameReply, buf[:len(b)])
	if err != nil {
		t.Fatal(err)
	}
	_ = append(m.(*Reply).Payload, "over"...)
	if string(buf[len(b):]) != "next frame" {
		t.Error("appending to a payload wrote into the next frame")
	}
}

func FuzzDecodeData(f *testing.F) {
	for _, c := range dataCases() {
		b, err := appendData(nil, c.m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(c.m.FrameKind()), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		m, err := decodeData(FrameKind(kind), body)
		if err != nil {
			return
		}
		b, err := appendData(nil, m)
		if err != nil {
			t.Fatalf("decoded %+v, but it does not encode: %v", m, err)
		}
		again, err := decodeData(FrameKind(kind), b)
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("decode, encode, decode: %+v became %+v, %v", m, again, err)
		}
	})
}

func TestDecodeDeliverAllocatesOnce(t *testing.T) {
	b, err := appendData(nil, dataCases()[0].m)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { sink, _ = decodeData(FrameDeliver, b) }); n > 1 {
		t.Errorf("decoding a Deliver allocates %v times, want at most the message itself", n)
	}
	m := dataCases()[0].m
	buf := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() { buf, _ = appendData(buf[:0], m) }); n > 0 {
		t.Errorf("encoding a Deliver into a buffer allocates %v times, want 0", n)
	}
}

var sink Message

func BenchmarkData(b *testing.B) {
	m := &Deliver{Type: "counter", Shard: 7, Epoch: 3, Sender: sharding.Member{Node: "node-a", Incarnation: incarnation(1)}, Seq: 300,
		Entity: "user-42", Payload: make([]byte, 100)}
	buf, err := appendData(nil, m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = appendData(buf[:0], m)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink, _ = decodeData(FrameDeliver, buf)
		}
	})
}
