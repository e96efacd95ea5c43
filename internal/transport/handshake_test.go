package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

// connect dials b from a as if a had been told that b is called want, and gives both errors.
func connect(t *testing.T, a, b *node, class Class, want sharding.Member) error {
	t.Helper()
	c, err := a.dial(t.Context(), b.Addr().String(), class, want)
	if err == nil {
		c.Close()
	}
	return err
}

func reasonOf(t *testing.T, err error) Reason {
	t.Helper()
	e, ok := errors.AsType[*HandshakeError](err)
	require.True(t, ok, "%v", err)
	require.NotEmpty(t, e.Addr)
	return e.Reason
}

// refusedAs waits until the listener has counted a refusal.
func (n *node) refusedAs(t *testing.T, r Reason) {
	t.Helper()
	require.Eventually(t, func() bool { return n.Stats().Refused[r] > 0 }, patience, time.Millisecond, "%s: %v", r, n.Stats().Refused)
}

// TestHandshakeRefuses: each mistake is refused by both sides, for the right reason (spec 2.1, 5.2).
func TestHandshakeRefuses(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	id1, id2 := sharding.NewIncarnation(), sharding.NewIncarnation()
	cluster := func(id sharding.Incarnation) func(*Config) { return func(c *Config) { c.ClusterID = id } }
	label := func(s string) func(*Config) { return func(c *Config) { c.Label = s } }
	roles := func(r ...string) func(*Config) { return func(c *Config) { c.Roles = r } }
	versions := func(o, n uint8) func(*Config) { return func(c *Config) { c.Versions = Versions{o, n} } }
	foreign := func(c *Config) {
		c.TLS = other.credentials(pki.Identity{Cluster: c.Label, Node: c.Self.Node, Roles: c.Roles})
	}
	foreignCluster := func(c *Config) {
		label("elsewhere")(c)
		ca.secure(c)
	}
	type changes = []func(*Config)
	for _, tc := range []struct {
		name   string
		a, b   changes
		class  Class
		want   string // name that a expects, b if empty
		reason Reason
		hint   string
	}{
		{"wrong key", changes{keyed(key(1))}, changes{keyed(key(2))}, Data, "", ReasonKey, "no gossip key in common"},
		{"key on one side", changes{keyed(key(1))}, changes{}, Data, "", ReasonMode, "configure both alike"},
		{"key on the other side", changes{}, changes{keyed(key(1))}, Data, "", ReasonMode, "configure both alike"},
		{"tls on one side", changes{ca.secure}, changes{keyed(key(1))}, Data, "", ReasonMode, "set [tls] on all nodes or on none"},
		{"tls on the other side", changes{keyed(key(1))}, changes{ca.secure}, Data, "", ReasonMode, "set [tls] on all nodes or on none"},
		{"other authority", changes{foreign}, changes{ca.secure}, Data, "", ReasonTLS, "certificate"},
		{"other cluster ID", changes{keyed(key(1)), cluster(id1)}, changes{keyed(key(1)), cluster(id2)}, Control, "", ReasonCluster, id2.String()},
		{"other cluster ID, tls", changes{ca.secure, cluster(id1)}, changes{ca.secure, cluster(id2)}, Control, "", ReasonCluster, id2.String()},
		{"other label, ID unknown", changes{cluster(id1)}, changes{label("elsewhere")}, Data, "", ReasonCluster, `"elsewhere" (no ID yet)`},
		{"certificate of another cluster", changes{ca.secure}, changes{foreignCluster}, Data, "", ReasonCluster, `"elsewhere"`},
		{"another node answers", changes{keyed(key(1))}, changes{keyed(key(1))}, Data, "c", ReasonName, `found node "b" where "c" was expected`},
		{"another node answers, tls", changes{ca.secure}, changes{ca.secure}, Call, "c", ReasonName, `found node "b" where "c" was expected`},
		{"raft to a node that cannot lead", changes{}, changes{roles("compute")}, Raft, "", ReasonRole, `"coordinator"`},
		{"raft from a node that cannot lead", changes{ca.secure}, changes{roles("compute"), ca.secure}, Raft, "", ReasonRole, `"coordinator"`},
		{"no common version", changes{versions(2, 3)}, changes{versions(1, 1)}, Data, "", ReasonVersion, "one version at a time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := start(t, "a", tc.a...), start(t, "b", tc.b...)
			want := b.member
			if tc.want != "" {
				want = member(tc.want)
			}
			err := connect(t, a, b, tc.class, want)
			assert.Equal(t, tc.reason, reasonOf(t, err), "%v", err)
			assert.ErrorContains(t, err, tc.hint)
			assert.Equal(t, map[Reason]uint64{tc.reason: 1}, a.Stats().DialFailures)
			b.refusedAs(t, tc.reason)
			assert.Empty(t, b.rec.in)
			switch tc.reason {
			case ReasonCluster:
				assert.ErrorAs(t, err, new(*ClusterMismatchError))
			case ReasonKey:
				assert.ErrorAs(t, err, new(*KeyMismatchError))
			case ReasonName:
				assert.ErrorAs(t, err, new(*NameMismatchError))
			}
		})
	}
}

// TestHandshakeAccepts: what looks like a mistake and is none.
func TestHandshakeAccepts(t *testing.T) {
	ca, next := newAuthority(t), newAuthority(t)
	id := sharding.NewIncarnation()
	for name, tc := range map[string][2]func(*Config){
		"keys rotate":                 {keyed(key(1), key(2)), keyed(key(3), key(2))},
		"authorities rotate":          {func(c *Config) { c.TLS = ca.credentials(identityOf(c), next) }, func(c *Config) { c.TLS = next.credentials(identityOf(c), ca) }},
		"ID not known yet":            {func(c *Config) { c.ClusterID = id }, func(*Config) {}},
		"label renamed, ID as before": {func(c *Config) { c.ClusterID = id; c.Label = "new" }, func(c *Config) { c.ClusterID = id }},
		"adjacent versions":           {func(c *Config) { c.Versions = Versions{1, 2} }, func(c *Config) { c.Versions = Versions{1, 1} }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t, "a", tc[0]), start(t, "b", tc[1])
			require.NoError(t, connect(t, a, b, Data, b.member))
			require.NoError(t, connect(t, b, a, Control, sharding.Member{}))
		})
	}
}

func identityOf(c *Config) pki.Identity {
	return pki.Identity{Cluster: c.Label, Node: c.Self.Node, Roles: c.Roles}
}

func TestSelfConnection(t *testing.T) {
	modes(t, func(t *testing.T, secure func(*Config)) {
		a := start(t, "a", secure)
		err := connect(t, a, a, Data, sharding.Member{})
		assert.Equal(t, ReasonSelf, reasonOf(t, err))
		assert.ErrorContains(t, err, "this node reached itself")

		twin := start(t, "a", secure)
		err = connect(t, a, twin, Data, sharding.Member{})
		assert.Equal(t, ReasonSelf, reasonOf(t, err))
		assert.ErrorContains(t, err, `another process uses the name "a"`)
	})
}

// TestOldIncarnation: an address that is taken over by a new process of the same node is not the old process.
func TestOldIncarnation(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	err := connect(t, a, b, Data, member("b"))
	assert.Equal(t, ReasonName, reasonOf(t, err))
	assert.ErrorContains(t, err, "node b has restarted")
}

// TestCertificateDecides: name and roles are those of the certificate, whatever a node says about itself (spec 2.1).
func TestCertificateDecides(t *testing.T) {
	ca := newAuthority(t)
	b := start(t, "b", ca.secure)

	// A compute node that claims more: the peer sees what the authority says.
	a := start(t, "a", func(c *Config) { c.Roles = []string{"compute"} }, ca.secure)
	a.idMu.Lock()
	a.id.self.roles = []string{"compute", "coordinator"}
	a.idMu.Unlock()
	meet(a, b)
	require.NoError(t, a.Send(b.member, Control, []byte("x")))
	b.rec.untilIn(t, a.member, Control, "opened", "frame x")
	peer := b.rec.peers[linkKey{a.member, Control}]
	assert.Equal(t, []string{"compute"}, peer.Roles)
	assert.False(t, peer.Coordinator)
	err := connect(t, a, b, Raft, b.member)
	assert.Equal(t, ReasonRole, reasonOf(t, err))

	// A node that uses another's name, on either side.
	spoof := start(t, "c", ca.secure)
	spoof.idMu.Lock()
	spoof.id.self.member.Node = "a"
	spoof.idMu.Unlock()
	err = connect(t, spoof, b, Data, b.member)
	assert.Equal(t, ReasonName, reasonOf(t, err))
	b.refusedAs(t, ReasonName)
	err = connect(t, b, spoof, Data, sharding.Member{Node: "a"})
	assert.Equal(t, ReasonName, reasonOf(t, err))
	assert.ErrorContains(t, err, `calls itself "a", its certificate is for "c"`)

	// A node of another cluster under the same authority, which claims this one.
	stray := start(t, "d", func(c *Config) { c.Label = "elsewhere" }, ca.secure)
	stray.idMu.Lock()
	stray.id.self.label = "test"
	stray.id.creds = ca.credentials(pki.Identity{Cluster: "elsewhere", Node: "d", Roles: []string{"compute"}})
	stray.idMu.Unlock()
	err = connect(t, b, stray, Data, stray.member)
	assert.ErrorAs(t, err, new(*ClusterMismatchError))
	assert.ErrorContains(t, err, `the peer belongs to cluster "elsewhere"`)
}

// tap records what goes through a connection.
type tap struct {
	net.Conn
	mu   sync.Mutex
	sent bytes.Buffer
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent.Write(b)
	return p.Conn.Write(b)
}

func dialTCP(t *testing.T, n *node) net.Conn {
	c, err := net.Dial("tcp", n.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// TestReplay: what was heard of a good handshake opens nothing later, because the listener's nonce is new.
func TestReplay(t *testing.T) {
	a, b := start(t, "a", keyed(key(1))), start(t, "b", keyed(key(1)))
	id := a.identity()
	heard := &tap{Conn: dialTCP(t, b)}
	_, peer, err := id.dial(t.Context(), heard, Data, b.member)
	require.NoError(t, err)
	require.Equal(t, b.member, peer.Member)

	again := dialTCP(t, b)
	_, err = again.Write(heard.sent.Bytes())
	require.NoError(t, err)
	kind, _, err := readMessage(again)
	require.NoError(t, err)
	require.Equal(t, typeWelcome, kind)
	kind, body, err := readMessage(again)
	require.NoError(t, err)
	require.Equal(t, typeRefuse, kind)
	r, err := decodeRefusal(body)
	require.NoError(t, err)
	assert.Equal(t, ReasonKey, r.reason)
	b.refusedAs(t, ReasonKey)
}

// TestReflection: a stranger cannot have a node make the proof that the node itself asks for. He passes the node's own MACs
// back, from the same and from another connection.
func TestReflection(t *testing.T) {
	b := start(t, "b", keyed(key(1)))
	stranger := greeting{mode: modeKeyed, versions: Versions{1, 1}, label: "test", member: member("x")}
	first := dialTCP(t, b)
	h := hello{greeting: stranger, class: Data}
	require.NoError(t, writeMessage(first, magic, typeHello, h.encode()))
	_, body, err := readMessage(first)
	require.NoError(t, err)
	w, covered, err := decodeWelcome(body)
	require.NoError(t, err)
	require.Len(t, w.macs, 1)
	// The domains differ, so the listener's MAC is none of a dialler over the same transcript.
	ring, err := newKeyring([][]byte{key(1)})
	require.NoError(t, err)
	said := transcript(h.encode(), body[:covered])
	require.Equal(t, w.macs[0], sum(ring[0], domainListener, said))
	require.NotEqual(t, w.macs[0], sum(ring[0], domainDialler, said))

	require.NoError(t, writeMessage(first, "", typeProof, w.macs[0][:]))
	kind, _, err := readMessage(first)
	require.NoError(t, err)
	assert.Equal(t, typeRefuse, kind)
	b.refusedAs(t, ReasonKey)
}

// TestTranscriptCoversAll: no part of what a side says can be changed on the way.
func TestTranscriptCoversAll(t *testing.T) {
	a, b := start(t, "a", keyed(key(1))), start(t, "b", keyed(key(1)))
	id := a.identity()
	h := hello{greeting: id.greeting(), class: Data, to: b.member}
	body := h.encode()
	c := dialTCP(t, b)
	require.NoError(t, writeMessage(c, magic, typeHello, body))
	_, welcomeBytes, err := readMessage(c)
	require.NoError(t, err)
	_, covered, err := decodeWelcome(welcomeBytes)
	require.NoError(t, err)
	said := transcript(body, welcomeBytes[:covered])
	for i := range said {
		changed := bytes.Clone(said)
		changed[i] ^= 1
		require.NotEqual(t, sum(id.ring[0], domainDialler, said), sum(id.ring[0], domainDialler, changed))
	}
	// The dialler says control on the way: its proof is for data.
	forged := h
	forged.class = Control
	c2 := dialTCP(t, b)
	require.NoError(t, writeMessage(c2, magic, typeHello, forged.encode()))
	_, welcomeBytes, err = readMessage(c2)
	require.NoError(t, err)
	_, covered, err = decodeWelcome(welcomeBytes)
	require.NoError(t, err)
	proof := sum(id.ring[0], domainDialler, transcript(body, welcomeBytes[:covered]))
	require.NoError(t, writeMessage(c2, "", typeProof, proof[:]))
	kind, _, err := readMessage(c2)
	require.NoError(t, err)
	assert.Equal(t, typeRefuse, kind)
}

// TestHostileDiallers: garbage and silence cost the listener a bounded time, and others nothing.
func TestHostileDiallers(t *testing.T) {
	modes(t, func(t *testing.T, secure func(*Config)) {
		b := start(t, "b", secure, func(c *Config) { c.HandshakeTimeout = 50 * time.Millisecond; c.Handshakes = 8 })
		for _, garbage := range []string{"", "GET / HTTP/1.1\r\n\r\n", magic, magic + "\x01\xff\xff", magic + "\x01\x00\x00", magic + "\x09\x00\x01x", "\x16\x03\x01\x02\x00"} {
			c := dialTCP(t, b)
			_, err := io.WriteString(c, garbage)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, c) // ends: the listener closes it
			if err != nil {
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.False(t, errors.Is(err, net.ErrClosed), "%q", garbage)
			}
		}
		b.refusedAs(t, ReasonTimeout)

		// As many silent ones as there are places, and one more: it is turned away, and later ones are served.
		var silent []net.Conn
		for range 20 {
			silent = append(silent, dialTCP(t, b))
		}
		for _, c := range silent {
			_, err := io.Copy(io.Discard, c)
			if err != nil {
				assert.False(t, errors.Is(err, net.ErrClosed))
			}
		}
		b.refusedAs(t, ReasonBusy)
		a := start(t, "a", secure)
		require.NoError(t, connect(t, a, b, Data, b.member))
	})
}

// TestSilentListener: a dialler gives up too.
func TestSilentListener(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	modes(t, func(t *testing.T, secure func(*Config)) {
		a := start(t, "a", secure, func(c *Config) { c.HandshakeTimeout = 20 * time.Millisecond })
		_, err := a.dial(t.Context(), lis.Addr().String(), Data, member("b"))
		assert.Equal(t, ReasonTimeout, reasonOf(t, err), "%v", err)
	})
}

// farConn comes from another machine.
type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1} }

// TestLoopbackOnly: with neither TLS nor key, peers on loopback alone are believed (spec 2.1).
func TestLoopbackOnly(t *testing.T) {
	open, withKey := start(t, "a"), start(t, "b", keyed(key(1)))
	run := func(n *node) error {
		x, y := net.Pipe()
		defer y.Close()
		go io.Copy(io.Discard, y)
		id := n.identity()
		_, _, _, err := id.handshake(t.Context(), farConn{x}, func(context.Context, net.Conn) (net.Conn, Peer, Class, error) {
			return x, Peer{}, Data, nil
		})
		return err
	}
	assert.Equal(t, ReasonInsecure, reasonOf(t, run(open)))
	assert.NoError(t, run(withKey))
}

// TestConfigRefuses: what cannot work is said at the start, with the next step.
func TestConfigRefuses(t *testing.T) {
	ca := newAuthority(t)
	taken := start(t, "taken")
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"not on loopback":          {func(c *Config) { c.Bind = "0.0.0.0:0" }, "not on loopback"},
		"no host":                  {func(c *Config) { c.Bind = ":0" }, "not on loopback"},
		"insecure without key":     {func(c *Config) { c.Bind = "0.0.0.0:0"; c.InsecureBind = true }, "not on loopback"},
		"no port":                  {func(c *Config) { c.Bind = "127.0.0.1" }, "want host:port"},
		"port in use":              {func(c *Config) { c.Bind = taken.Addr().String() }, "address already in use"},
		"short key":                {func(c *Config) { c.Keys = [][]byte{{1}} }, "at least 16"},
		"too many keys":            {func(c *Config) { c.Keys = make([][]byte, 17) }, "at most 16"},
		"no name":                  {func(c *Config) { c.Self.Node = "" }, "node name is empty"},
		"no incarnation":           {func(c *Config) { c.Self.Incarnation = sharding.Incarnation{} }, "no incarnation"},
		"certificate of another":   {func(c *Config) { ca.secure(c); c.Self.Node = "z" }, `tls.cert is for node "a", this node is "z"`},
		"certificate of elsewhere": {func(c *Config) { ca.secure(c); c.Label = "z" }, `tls.cert is for cluster "test"`},
		"role not certified":       {func(c *Config) { ca.secure(c); c.Roles = append(c.Roles, "gpu") }, `lacks the role "gpu"`},
	} {
		cfg := testConfig(t, "a")
		tc.change(&cfg)
		_, err := New(cfg, newRecorder())
		assert.ErrorContains(t, err, tc.want, name)
	}
	cfg := testConfig(t, "a")
	cfg.Bind, cfg.InsecureBind, cfg.Keys = "0.0.0.0:0", true, [][]byte{key(1)}
	tr, err := New(cfg, newRecorder())
	require.NoError(t, err, "told so by name (spec 5.2)")
	require.NoError(t, tr.Close())
}

// TestSetKeys: a rotation step by step, while nodes run.
func TestSetKeys(t *testing.T) {
	a, b := start(t, "a", keyed(key(1))), start(t, "b", keyed(key(1)))
	for _, step := range []struct {
		on   *node
		keys [][]byte
	}{{a, [][]byte{key(1), key(2)}}, {b, [][]byte{key(2), key(1)}}, {a, [][]byte{key(2)}}, {b, [][]byte{key(2)}}} {
		require.NoError(t, step.on.SetKeys(step.keys))
		require.NoError(t, connect(t, a, b, Data, b.member))
	}
	require.NoError(t, a.SetKeys([][]byte{key(1)}))
	require.Equal(t, ReasonKey, reasonOf(t, connect(t, a, b, Data, b.member)))
	require.ErrorContains(t, a.SetKeys(nil), "cannot be introduced or given up")
}
