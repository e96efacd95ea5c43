package node

import (
	"encoding/base64"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
)

// Spec 5.1: a join address that cannot work is named with what is wrong about it: another port of a node, with or without a gossip key, or this node itself.
func TestWrongJoinAddress(t *testing.T) {
	key := config.Secret(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	for name, keys := range map[string][]config.Secret{"without a key": nil, "with a key": {key}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			ac := f.config("a")
			ac.Gossip.Keys = keys
			a := f.start(ac)
			f.settled()
			for what, address := range map[string]string{"a transport port": a.addr.Transport, "an HTTP port": a.addr.HTTP} {
				c := f.config("x")
				c.Gossip.Keys, c.Gossip.Join = keys, []string{address}
				x := f.start(c)
				require.Eventually(t, func() bool { return x.log.contains(address + " is no gossip port, it is " + what) }, patience, poll, "%s: %s", what, x.log.tail())
				assert.True(t, x.log.contains("gossip.bind"))
				require.NoError(t, f.stop(x))
			}
		})
	}
}

func TestJoiningOneself(t *testing.T) {
	f := newFleet(t)
	f.alone = true
	c := f.config("x")
	c.Gossip.Bind = freeAddress(t)
	c.Gossip.Join = []string{c.Gossip.Bind}
	x := f.start(c)
	require.Eventually(t, func() bool { return x.log.contains("names this node itself and nobody else") }, patience, poll)
	assert.Empty(t, x.dir.Cluster(), "a node with a join address founds no cluster alone (spec 2.1)")

	require.NoError(t, f.stop(x))

	// One list for all nodes, oneself among them, is as good as one without.
	f.alone = false
	a := f.start(f.config("a"))
	y := f.config("y")
	y.Gossip.Bind = freeAddress(t)
	y.Gossip.Join = []string{y.Gossip.Bind, a.addr.Gossip}
	f.start(y)
	f.settled()
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestNewWithoutConfig(t *testing.T) {
	_, err := New(nil, Options{})
	require.ErrorContains(t, err, "DefaultConfig")
	cfg := DefaultConfig()
	cfg.Name = "n"
	_, err = New(cfg, Options{})
	require.NoError(t, err)
}

// Spec 5.1: SIGTERM ends a node that is still joining, at once: also where what it joins takes its connection and never answers.
func TestEndWhileJoining(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	f := newFleet(t)
	c := f.config("x")
	c.Gossip.Join = []string{silent.Addr().String()}
	x := f.start(c)
	conn, err := silent.Accept() // it is at it
	require.NoError(t, err)
	defer conn.Close()
	began := time.Now()
	require.NoError(t, f.stop(x))
	assert.Less(t, time.Since(began), 5*time.Second)
}
