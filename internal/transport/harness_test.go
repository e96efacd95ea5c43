package transport

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

// recorder is a Handler that writes down what happens, a row for each (peer, class) and direction.
type recorder struct {
	mu      sync.Mutex
	cond    *sync.Cond
	in      map[linkKey][]string // "opened", "frame …", "closed"
	out     map[linkKey][]string // "up", "down"
	errs    map[linkKey]error    // of the last Closed
	downs   map[linkKey]error    // of the last Down
	peers   map[linkKey]Peer
	onCall  func(ctx context.Context, from Peer, method string, body []byte) ([]byte, error)
	onFrame func(from Peer, class Class, frame []byte)
	onUp    func(to sharding.Member, class Class)
}

func newRecorder() *recorder {
	r := &recorder{in: map[linkKey][]string{}, out: map[linkKey][]string{}, errs: map[linkKey]error{}, downs: map[linkKey]error{}, peers: map[linkKey]Peer{}}
	r.cond = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	r.cond.Broadcast()
}

func (r *recorder) Opened(from Peer, class Class) {
	k := linkKey{from.Member, class}
	r.change(func() { r.in[k] = append(r.in[k], "opened"); r.peers[k] = from })
}

func (r *recorder) Frame(from Peer, class Class, frame []byte) {
	if r.onFrame != nil {
		r.onFrame(from, class, frame)
	}
	k := linkKey{from.Member, class}
	r.change(func() { r.in[k] = append(r.in[k], "frame "+string(frame)) })
}

func (r *recorder) Closed(from Peer, class Class, err error) {
	k := linkKey{from.Member, class}
	r.change(func() { r.in[k] = append(r.in[k], "closed"); r.errs[k] = err })
}

func (r *recorder) Up(to sharding.Member, class Class) {
	if r.onUp != nil {
		r.onUp(to, class)
	}
	k := linkKey{to, class}
	r.change(func() { r.out[k] = append(r.out[k], "up") })
}

func (r *recorder) Down(to sharding.Member, class Class, err error) {
	k := linkKey{to, class}
	r.change(func() { r.out[k] = append(r.out[k], "down"); r.downs[k] = err })
}

func (r *recorder) Call(ctx context.Context, from Peer, method string, body []byte) ([]byte, error) {
	if r.onCall != nil {
		return r.onCall(ctx, from, method, body)
	}
	return fmt.Appendf(nil, "%s %s %s", from.Member.Node, method, body), nil
}

// patience bounds every wait: it is only ever used up by a test that fails.
const patience = 20 * time.Second

// until waits until a condition over the recorder holds.
func (r *recorder) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() { r.change(func() { late = true }) })
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !ok() {
		if late {
			t.Fatalf("waited in vain for: %s\nin: %v\nout: %v", what, r.in, r.out)
		}
		r.cond.Wait()
	}
}

// rows gives what has come from a peer so far; more may come.
func (r *recorder) rows(from sharding.Member, class Class) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.in[linkKey{from, class}])
}

func count(rows []string, what string) (n int) {
	for _, row := range rows {
		if row == what {
			n++
		}
	}
	return n
}

func (r *recorder) untilIn(t testing.TB, from sharding.Member, class Class, rows ...string) {
	t.Helper()
	k := linkKey{from, class}
	r.until(t, fmt.Sprintf("%v from %s", rows, from), func() bool { return fmt.Sprint(r.in[k]) == fmt.Sprint(rows) })
}

// untilInBegins waits for rows behind which others may have come since.
func (r *recorder) untilInBegins(t testing.TB, from sharding.Member, class Class, rows ...string) {
	t.Helper()
	k := linkKey{from, class}
	r.until(t, fmt.Sprintf("%v, first, from %s", rows, from), func() bool {
		return len(r.in[k]) >= len(rows) && slices.Equal(r.in[k][:len(rows)], rows)
	})
}

func (r *recorder) untilOut(t testing.TB, to sharding.Member, class Class, rows ...string) {
	t.Helper()
	k := linkKey{to, class}
	r.until(t, fmt.Sprintf("%v to %s", rows, to), func() bool { return fmt.Sprint(r.out[k]) == fmt.Sprint(rows) })
}

// node is one transport of a test.
type node struct {
	*Transport
	rec    *recorder
	member sharding.Member
}

func member(name string) sharding.Member {
	return sharding.Member{Node: sharding.NodeID(name), Incarnation: sharding.NewIncarnation()}
}

type testLog struct{ t testing.TB }

func (w testLog) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

func testConfig(t testing.TB, name string) Config {
	return Config{
		Self: member(name), Label: "test", Roles: []string{"coordinator", "compute"}, Bind: "127.0.0.1:0",
		Logger:     slog.New(slog.NewTextHandler(testLog{t}, nil)),
		BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond,
	}
}

func start(t testing.TB, name string, change ...func(*Config)) *node {
	t.Helper()
	cfg := testConfig(t, name)
	for _, f := range change {
		f(&cfg)
	}
	r := newRecorder()
	tr, err := New(cfg, r)
	require.NoError(t, err)
	t.Cleanup(func() { tr.Close() })
	return &node{Transport: tr, rec: r, member: cfg.Self}
}

// meet makes every node know all others.
func meet(nodes ...*node) {
	var targets []Target
	for _, n := range nodes {
		targets = append(targets, Target{Member: n.member, Addr: n.Addr().String()})
	}
	for _, n := range nodes {
		n.SetPeers(targets)
	}
}

func key(b byte) []byte {
	k := make([]byte, 32)
	for i := range k {
		k[i] = b
	}
	return k
}

func keyed(keys ...[]byte) func(*Config) { return func(c *Config) { c.Keys = keys } }

// authority makes certificates for tests.
type authority struct {
	t  testing.TB
	ca *pki.Authority
}

func newAuthority(t testing.TB) *authority {
	ca, _, err := pki.NewAuthority("test", time.Now())
	require.NoError(t, err)
	return &authority{t: t, ca: ca}
}

func (a *authority) credentials(id pki.Identity, trust ...*authority) *pki.Credentials {
	pair, err := a.ca.Issue(id, nil, time.Now())
	require.NoError(a.t, err)
	bundle := a.ca.Certificate()
	for _, other := range trust {
		bundle = append(bundle, other.ca.Certificate()...)
	}
	creds, err := pki.Parse(bundle, pair, time.Now())
	require.NoError(a.t, err)
	return creds
}

// secure gives a node a certificate for what its configuration says.
func (a *authority) secure(c *Config) {
	c.TLS = a.credentials(pki.Identity{Cluster: c.Label, Node: c.Self.Node, Roles: c.Roles})
}
