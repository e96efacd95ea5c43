package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

// The handshake's messages: magic once, then type (1 byte), length (2 bytes, big endian), body. Strings are length (2
// bytes) and UTF-8. A message is bounded by maxMessage, so a peer that is not authenticated can claim little memory.
const (
	magic      = "drover/1"
	maxMessage = 8 << 10
	nonceSize  = 32
	macSize    = 32
	maxKeys    = 16 // of a keyring
	maxText    = 512
)

type messageType uint8

const (
	typeHello   messageType = 1 // dialler → listener
	typeWelcome messageType = 2 // listener → dialler
	typeProof   messageType = 3 // dialler → listener
	typeAccept  messageType = 4 // listener → dialler
	typeRefuse  messageType = 5 // either, then the connection ends
)

func (t messageType) String() string {
	switch t {
	case typeHello:
		return "hello"
	case typeWelcome:
		return "welcome"
	case typeProof:
		return "proof"
	case typeAccept:
		return "accept"
	case typeRefuse:
		return "refuse"
	default:
		return fmt.Sprintf("type-%d", uint8(t))
	}
}

// mode says how the sides prove who they are. Both must use the same.
type mode uint8

const (
	modeOpen  mode = 1 // not at all: loopback only
	modeKeyed mode = 2 // by the gossip key
	modeTLS   mode = 3 // by certificate
)

func (m mode) String() string {
	switch m {
	case modeOpen:
		return "neither TLS nor a gossip key"
	case modeKeyed:
		return "a gossip key without TLS"
	case modeTLS:
		return "TLS"
	default:
		return fmt.Sprintf("mode %d", uint8(m))
	}
}

// greeting is what hello and welcome share: a side's own account of itself.
type greeting struct {
	mode      mode
	versions  Versions
	label     string
	clusterID sharding.Incarnation
	member    sharding.Member
	advertise string
	roles     []string
	nonce     [nonceSize]byte
}

// hello opens a connection.
type hello struct {
	greeting
	class Class
	to    sharding.Member // whom the dialler means; zero parts: any
}

// welcome answers a hello. In keyed mode there is one MAC for each key of the listener's ring.
type welcome struct {
	greeting
	macs [][macSize]byte
}

// refusal ends a handshake.
type refusal struct {
	reason Reason
	text   string
}

var errMalformed = errors.New("malformed handshake message")

type writer struct{ b []byte }

func (w *writer) text(s string) {
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) member(m sharding.Member) {
	w.text(string(m.Node))
	w.b = append(w.b, m.Incarnation[:]...)
}

func (w *writer) greeting(g *greeting) {
	w.b = append(w.b, byte(g.mode), g.versions.Oldest, g.versions.Newest)
	w.text(g.label)
	w.b = append(w.b, g.clusterID[:]...)
	w.member(g.member)
	w.text(g.advertise)
	w.b = append(w.b, byte(len(g.roles)))
	for _, role := range g.roles {
		w.text(role)
	}
	w.b = append(w.b, g.nonce[:]...)
}

func (h *hello) encode() []byte {
	var w writer
	w.greeting(&h.greeting)
	w.b = append(w.b, byte(h.class))
	w.member(h.to)
	return w.b
}

// encode gives the message, and how much of it the MACs cover.
func (m *welcome) encode() (body []byte, covered int) {
	var w writer
	w.greeting(&m.greeting)
	covered = len(w.b)
	w.b = append(w.b, byte(len(m.macs)))
	for i := range m.macs {
		w.b = append(w.b, m.macs[i][:]...)
	}
	return w.b, covered
}

func (r *refusal) encode() []byte {
	var w writer
	w.b = append(w.b, byte(r.reason))
	w.text(clip(r.text))
	return w.b
}

// clip bounds a text for the wire.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	s = s[:maxText]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// reader takes a message apart. After the first mistake everything reads as zero and failed stays set.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || n > len(r.b) {
		r.failed = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) text(longest int) string {
	b := r.take(2)
	if b == nil {
		return ""
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > longest {
		r.failed = true
		return ""
	}
	s := r.take(n)
	if !utf8.Valid(s) {
		r.failed = true
		return ""
	}
	return string(s)
}

func (r *reader) member() sharding.Member {
	m := sharding.Member{Node: sharding.NodeID(r.text(pki.MaxName))}
	copy(m.Incarnation[:], r.take(len(m.Incarnation)))
	return m
}

func (r *reader) greeting() greeting {
	g := greeting{mode: mode(r.byte()), versions: Versions{Oldest: r.byte(), Newest: r.byte()}}
	g.label = r.text(pki.MaxName)
	copy(g.clusterID[:], r.take(len(g.clusterID)))
	g.member = r.member()
	g.advertise = r.text(pki.MaxName)
	n := int(r.byte())
	if n > pki.MaxRoles {
		r.failed = true
		return g
	}
	for range n {
		g.roles = append(g.roles, r.text(pki.MaxName))
	}
	slices.Sort(g.roles)
	g.roles = slices.Compact(g.roles)
	copy(g.nonce[:], r.take(nonceSize))
	if g.member.Node == "" || g.member.Incarnation.IsZero() {
		r.failed = true
	}
	return g
}

func (r *reader) done(t messageType) error {
	if r.failed || len(r.b) != 0 {
		return fmt.Errorf("%w (%s)", errMalformed, t)
	}
	return nil
}

func decodeHello(b []byte) (hello, error) {
	r := reader{b: b}
	h := hello{greeting: r.greeting()}
	h.class = Class(r.byte())
	h.to = r.member()
	return h, r.done(typeHello)
}

// decodeWelcome gives the message, and how much of it the MACs cover.
func decodeWelcome(b []byte) (m welcome, covered int, err error) {
	r := reader{b: b}
	m.greeting = r.greeting()
	covered = len(b) - len(r.b)
	n := int(r.byte())
	if n > maxKeys {
		r.failed = true
	}
	for range n {
		if mac := r.take(macSize); mac != nil {
			m.macs = append(m.macs, [macSize]byte(mac))
		}
	}
	return m, covered, r.done(typeWelcome)
}

func decodeRefusal(b []byte) (refusal, error) {
	r := reader{b: b}
	m := refusal{reason: Reason(r.byte())}
	m.text = r.text(maxText)
	return m, r.done(typeRefuse)
}

// writeMessage sends one message, with one Write.
func writeMessage(w io.Writer, prefix string, t messageType, body []byte) error {
	if len(body) > maxMessage {
		return fmt.Errorf("the %s message is %d bytes long, at most %d are allowed: use fewer or shorter roles", t, len(body), maxMessage)
	}
	b := append([]byte(prefix), byte(t))
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage reads one message and not a byte more.
func readMessage(r io.Reader) (messageType, []byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > maxMessage {
		return 0, nil, fmt.Errorf("%w: %d bytes", errMalformed, n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return messageType(head[0]), body, err
}
