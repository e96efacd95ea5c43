package transport

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

// identity is how this node presents itself and whom it believes, fixed for one handshake.
type identity struct {
	self      greeting // without the nonce
	ring      keyring
	creds     *pki.Credentials
	timeout   time.Duration
	faults    *Faults
	localhost bool // neither TLS nor key: believe loopback alone
}

func refuse(reason Reason, err error) *HandshakeError {
	return &HandshakeError{Reason: reason, Err: err}
}

func refusef(reason Reason, format string, args ...any) *HandshakeError {
	return refuse(reason, fmt.Errorf(format, args...))
}

// greeting gives this node's account of itself with a fresh nonce.
func (id *identity) greeting() greeting {
	g := id.self
	rand.Read(g.nonce[:]) // never fails: crypto/rand aborts the process instead
	return g
}

// handshake runs one side over a fresh connection, within the time-out and ctx. On failure the connection is closed.
func (id *identity) handshake(ctx context.Context, raw net.Conn, run func(context.Context, net.Conn) (net.Conn, Peer, Class, error)) (net.Conn, Peer, Class, error) {
	ctx, cancel := context.WithTimeout(ctx, id.timeout)
	defer cancel()
	// Reads and writes have no context: when it ends, a deadline in the past wakes them up.
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	var (
		conn  net.Conn
		peer  Peer
		class Class
		err   error
	)
	if id.localhost && !isLoopback(raw.RemoteAddr()) {
		err = refusef(ReasonInsecure, "with neither TLS nor a gossip key only loopback is believed: set [tls] or [gossip] keys")
	} else {
		conn, peer, class, err = run(ctx, raw)
	}
	if err == nil && !stop() {
		err = ctx.Err() // the deadline may already be spoiled
	}
	if err != nil {
		raw.Close()
		return nil, Peer{}, class, classify(err, raw.RemoteAddr())
	}
	return conn, peer, class, nil
}

// classify makes a *HandshakeError of whatever ended a handshake.
func classify(err error, addr net.Addr) error {
	e, ok := errors.AsType[*HandshakeError](err)
	if !ok {
		e = &HandshakeError{Reason: ReasonIO, Err: err}
		var op *net.OpError
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
			e.Reason, e.Err = ReasonTimeout, errors.New("the peer did not finish the handshake in time")
		case errors.Is(err, errMalformed):
			e.Reason = ReasonMalformed
		case errors.As(err, &op) && op.Op == "remote error": // a TLS alert
			e.Reason, e.Remote, e.Err = ReasonTLS, true, fmt.Errorf("%w: check that both certificates are of the same authority and not expired", op.Err)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			e.Err = errors.New("the peer closed the connection during the handshake")
		}
	}
	if addr != nil {
		e.Addr = addr.String()
	}
	return e
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// listen is the listener's side. A dialler that is refused learns why.
func (id *identity) listen(ctx context.Context, raw net.Conn) (net.Conn, Peer, Class, error) {
	conn, cert, err := id.serverTLS(ctx, raw)
	if err != nil {
		if e, ok := errors.AsType[*HandshakeError](err); ok && e.Reason == ReasonMode { // the dialler speaks no TLS
			refuseDialler(raw, raw, e)
		}
		return nil, Peer{}, 0, err
	}
	peer, class, err := id.greet(conn, cert)
	if err != nil {
		e, ok := errors.AsType[*HandshakeError](err)
		if !ok && errors.Is(err, errMalformed) { // perhaps somebody took this port for another
			e, ok = refuse(ReasonMalformed, errMalformed), true
		}
		if ok && !e.Remote {
			refuseDialler(conn, raw, e)
		}
		return nil, Peer{}, class, err
	}
	peer.Remote = raw.RemoteAddr().String()
	return conn, peer, class, nil
}

// lingerFor is how long a refused dialler may take to read why.
const lingerFor = 200 * time.Millisecond

// refuseDialler sends a reason. Closing a connection with bytes unread would reset it, and the reason could be lost: so what
// the dialler still says is read, within bounds. That the message may not arrive all the same changes nothing.
func refuseDialler(conn, raw net.Conn, e *HandshakeError) {
	r := refusal{reason: e.Reason, text: e.Err.Error()}
	if writeMessage(conn, "", typeRefuse, r.encode()) != nil {
		return
	}
	if tcp, ok := raw.(*net.TCPConn); ok && tcp.CloseWrite() == nil && tcp.SetReadDeadline(time.Now().Add(lingerFor)) == nil {
		_, _ = io.CopyN(io.Discard, tcp, maxMessage)
	}
}

// greet is the listener's side after TLS.
func (id *identity) greet(conn net.Conn, cert *pki.Identity) (Peer, Class, error) {
	var head [len(magic)]byte
	if _, err := io.ReadFull(conn, head[:3]); err != nil {
		return Peer{}, 0, err
	}
	if head[0] == 0x16 && head[1] == 3 { // a TLS client hello
		return Peer{}, 0, refusef(ReasonMode, "the peer uses TLS, this node does not: set [tls] on all nodes or on none")
	}
	if _, err := io.ReadFull(conn, head[3:]); err != nil {
		return Peer{}, 0, err
	}
	if string(head[:]) != magic {
		return Peer{}, 0, errMalformed
	}
	kind, body, err := readMessage(conn)
	if err != nil {
		return Peer{}, 0, err
	}
	if kind != typeHello {
		return Peer{}, 0, errMalformed
	}
	h, err := decodeHello(body)
	if err != nil {
		return Peer{}, 0, err
	}
	peer, err := id.answer(conn, h, body, cert)
	return peer, h.class, err
}

// answer is the listener's side after the hello.
func (id *identity) answer(conn net.Conn, h hello, helloBytes []byte, cert *pki.Identity) (Peer, error) {
	if !h.class.valid() {
		return Peer{}, refusef(ReasonVersion, "connection class %d is not known here", uint8(h.class))
	}
	if h.mode != id.self.mode {
		return Peer{}, id.modeMismatch(h.mode)
	}
	w := welcome{greeting: id.greeting()}
	body, covered := w.encode()
	said := transcript(helloBytes, body[:covered])
	if id.self.mode == modeKeyed {
		w.macs = id.ring.sums(domainListener, said)
		body, _ = w.encode()
	}
	if err := writeMessage(conn, "", typeWelcome, body); err != nil {
		return Peer{}, err
	}
	kind, proof, err := readMessage(conn)
	if err != nil {
		return Peer{}, err
	}
	switch {
	case kind == typeRefuse:
		return Peer{}, remoteRefusal(proof)
	case kind != typeProof:
		return Peer{}, errMalformed
	}
	if id.self.mode == modeKeyed {
		if len(proof) != macSize {
			return Peer{}, errMalformed
		}
		if _, ok := id.ring.find(domainDialler, said, [][macSize]byte{[macSize]byte(proof)}); !ok {
			return Peer{}, refuse(ReasonKey, &KeyMismatchError{PeerLabel: h.label})
		}
	}
	peer, err := id.check(&h.greeting, cert, h.class, h.to, id.self.member, In)
	if err != nil {
		return Peer{}, err
	}
	return peer, writeMessage(conn, "", typeAccept, nil)
}

// dial is the dialler's side. Zero parts of to mean any.
func (id *identity) dial(ctx context.Context, raw net.Conn, class Class, to sharding.Member) (net.Conn, Peer, error) {
	conn, cert, err := id.clientTLS(ctx, raw)
	if err != nil {
		return nil, Peer{}, err
	}
	h := hello{greeting: id.greeting(), class: class, to: to}
	helloBytes := h.encode()
	if err := writeMessage(conn, magic, typeHello, helloBytes); err != nil {
		return nil, Peer{}, err
	}
	kind, body, err := readMessage(conn)
	if err != nil {
		return nil, Peer{}, err
	}
	switch kind {
	case typeWelcome:
	case typeRefuse:
		return nil, Peer{}, remoteRefusal(body)
	default:
		if id.self.mode != modeTLS && kind == 0x15 { // a TLS alert
			return nil, Peer{}, refusef(ReasonMode, "the peer wants TLS, this node does not use it: set [tls] on all nodes or on none")
		}
		return nil, Peer{}, errMalformed
	}
	w, covered, err := decodeWelcome(body)
	if err != nil {
		return nil, Peer{}, err
	}
	peer, proof, err := id.judge(&w, transcript(helloBytes, body[:covered]), cert, class, to)
	if err != nil {
		if e, ok := errors.AsType[*HandshakeError](err); ok {
			r := refusal{reason: e.Reason, text: e.Err.Error()}
			_ = writeMessage(conn, "", typeRefuse, r.encode()) // as in listen
		}
		return nil, Peer{}, err
	}
	if err := writeMessage(conn, "", typeProof, proof); err != nil {
		return nil, Peer{}, err
	}
	kind, body, err = readMessage(conn)
	if err != nil {
		return nil, Peer{}, err
	}
	switch kind {
	case typeAccept:
	case typeRefuse:
		return nil, Peer{}, remoteRefusal(body)
	default:
		return nil, Peer{}, errMalformed
	}
	peer.Remote = raw.RemoteAddr().String()
	return conn, peer, nil
}

// judge checks a welcome and makes the dialler's own proof.
func (id *identity) judge(w *welcome, said []byte, cert *pki.Identity, class Class, to sharding.Member) (Peer, []byte, error) {
	if w.mode != id.self.mode {
		return Peer{}, nil, id.modeMismatch(w.mode)
	}
	var proof []byte
	if id.self.mode == modeKeyed {
		key, ok := id.ring.find(domainListener, said, w.macs)
		if !ok {
			return Peer{}, nil, refuse(ReasonKey, &KeyMismatchError{PeerLabel: w.label})
		}
		mac := sum(key, domainDialler, said)
		proof = mac[:]
	}
	peer, err := id.check(&w.greeting, cert, class, to, w.member, Out)
	return peer, proof, err
}

func (id *identity) modeMismatch(theirs mode) error {
	return refusef(ReasonMode, "the peer uses %s, this node %s: configure both alike", theirs, id.self.mode)
}

// check judges what an authenticated peer says about itself. Wanted is whom the dialler meant, found who answers there.
func (id *identity) check(g *greeting, cert *pki.Identity, class Class, wanted, found sharding.Member, dir Direction) (Peer, error) {
	me := &id.self
	switch {
	case g.member == me.member:
		return Peer{}, refusef(ReasonSelf, "this node reached itself: check [gossip] join and [transport] advertise")
	case g.member.Node == me.member.Node:
		return Peer{}, refusef(ReasonSelf, "another process uses the name %q of this node: give each node a name of its own", g.member.Node)
	case cert != nil && cert.Node != g.member.Node:
		return Peer{}, refusef(ReasonName, "the peer calls itself %q, its certificate is for %q", g.member.Node, cert.Node)
	case wanted.Node != "" && wanted.Node != found.Node,
		!wanted.Incarnation.IsZero() && wanted.Incarnation != found.Incarnation:
		return Peer{}, refuse(ReasonName, &NameMismatchError{Want: wanted, Got: found})
	case !id.sameCluster(g, cert):
		e := &ClusterMismatchError{Label: me.label, PeerLabel: g.label, ID: me.clusterID, PeerID: g.clusterID}
		if cert != nil {
			e.PeerLabel = cert.Cluster
		}
		return Peer{}, refuse(ReasonCluster, e)
	}
	version, ok := me.versions.common(g.versions)
	if !ok {
		return Peer{}, refusef(ReasonVersion, "the peer reads wire versions %d to %d, this node %d to %d: upgrade one version at a time",
			g.versions.Oldest, g.versions.Newest, me.versions.Oldest, me.versions.Newest)
	}
	peer := Peer{Member: g.member, Roles: g.roles, ClusterID: g.clusterID, Version: version, Addr: g.advertise}
	if cert != nil {
		peer.Roles = cert.Roles // only what the authority says counts (spec 2.1)
	}
	peer.Coordinator = peer.hasRole(CoordinatorRole)
	if class == Raft && !peer.Coordinator {
		return Peer{}, refusef(ReasonRole, "node %q lacks the role %q, which raft needs", g.member.Node, CoordinatorRole)
	}
	if class == Raft && !slices.Contains(me.roles, CoordinatorRole) {
		return Peer{}, refusef(ReasonRole, "node %q lacks the role %q, which raft needs", me.member.Node, CoordinatorRole)
	}
	if id.faults.partitioned(dir, g.member.Node, class) {
		return Peer{}, refusef(ReasonFault, "partitioned from %q by a fault point", g.member.Node)
	}
	return peer, nil
}

// sameCluster compares IDs where both are known, else labels. A certificate's label must fit in any case.
func (id *identity) sameCluster(g *greeting, cert *pki.Identity) bool {
	if cert != nil && cert.Cluster != id.self.label {
		return false
	}
	if !g.clusterID.IsZero() && !id.self.clusterID.IsZero() {
		return g.clusterID == id.self.clusterID
	}
	return g.label == id.self.label
}

func remoteRefusal(body []byte) error {
	r, err := decodeRefusal(body)
	if err != nil {
		return err
	}
	// The peer is not authenticated at this point: its words are quoted.
	e := &HandshakeError{Reason: r.reason, Remote: true, Err: fmt.Errorf("%q", r.text)}
	if r.reason == ReasonKey {
		e.Err = &KeyMismatchError{}
	}
	return e
}

func (id *identity) serverTLS(ctx context.Context, raw net.Conn) (net.Conn, *pki.Identity, error) {
	if id.creds == nil {
		return raw, nil, nil
	}
	var peer pki.Identity
	config := id.tlsConfig(x509.ExtKeyUsageClientAuth, &peer)
	config.ClientAuth = tls.RequireAnyClientCert // verified by VerifyConnection
	return finishTLS(ctx, tls.Server(raw, config), &peer)
}

func (id *identity) clientTLS(ctx context.Context, raw net.Conn) (net.Conn, *pki.Identity, error) {
	if id.creds == nil {
		return raw, nil, nil
	}
	var peer pki.Identity
	config := id.tlsConfig(x509.ExtKeyUsageServerAuth, &peer)
	// Skips only the check of host names: VerifyConnection verifies the chain, and the identity is the URI of package pki.
	config.InsecureSkipVerify = true
	return finishTLS(ctx, tls.Client(raw, config), &peer)
}

func (id *identity) tlsConfig(usage x509.ExtKeyUsage, peer *pki.Identity) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{id.creds.Certificate},
		SessionTicketsDisabled: true, // connections live long: resumption would only add a way in
		VerifyConnection: func(state tls.ConnectionState) error {
			found, err := id.creds.Verify(state.PeerCertificates, usage, time.Now())
			if err != nil {
				return refusef(ReasonTLS, "the peer's certificate: %w", err)
			}
			*peer = found
			return nil
		},
	}
}

func finishTLS(ctx context.Context, conn *tls.Conn, peer *pki.Identity) (net.Conn, *pki.Identity, error) {
	err := conn.HandshakeContext(ctx)
	if err == nil {
		return conn, peer, nil
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if _, ok := errors.AsType[*HandshakeError](err); ok {
		return nil, nil, err
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return nil, nil, refusef(ReasonMode, "this node uses TLS, the peer does not: set [tls] on all nodes or on none")
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return nil, nil, refuse(ReasonTLS, err)
}
