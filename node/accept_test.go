package node

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

// certify gives a node a certificate of the authority in dir, which is made on first use.
func certify(t *testing.T, c *Config, dir string) {
	t.Helper()
	if _, err := pki.CreateAuthority(dir, c.Cluster, time.Now()); err != nil {
		require.ErrorIs(t, err, fs.ErrExist)
	}
	files, err := pki.CreateNode(dir, dir, pki.Identity{Cluster: c.Cluster, Node: sharding.NodeID(c.Name), Roles: c.Roles}, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	c.TLS = config.TLS{CA: filepath.Join(dir, pki.AuthorityCert), Cert: files.Cert, Key: files.Key}
}

// Spec 5.1: who is of another cluster or another authority, or speaks TLS where the others do not, ends its start with one clear error; it does not go on
// knocking. The others take no harm, and say it once.
func TestMisfitEndsTheStart(t *testing.T) {
	change := map[string]struct {
		ours, its func(*Config)
		want      []string
	}{
		"label": {nil, func(c *Config) { c.Cluster = "elsewhere" }, []string{`"elsewhere"`, `"drover"`}},
		"tls":   {nil, func(c *Config) { certify(t, c, t.TempDir()) }, []string{"TLS", "on all nodes"}},
		"plain": {func(c *Config) { certify(t, c, t.TempDir()) }, nil, []string{"TLS", "on all nodes"}},
		"ca":    {func(c *Config) { certify(t, c, t.TempDir()) }, func(c *Config) { certify(t, c, t.TempDir()) }, []string{"certificate"}},
	}
	for name, c := range change {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			configured := func(name string, change func(*Config)) *Config {
				cfg := f.config(name)
				if change != nil {
					change(cfg)
				}
				return cfg
			}
			a := f.start(configured("a", c.ours))
			f.settled()
			m, err := f.tryStart(configured("x", c.its))
			if err == nil {
				select {
				case <-m.done:
				case <-time.After(patience):
					t.Fatalf("it goes on knocking:\n%s", m.log.tail())
				}
				f.mu.Lock()
				delete(f.nodes, "x")
				f.mu.Unlock()
				err = m.err
			}
			for _, w := range append(c.want, `node "a"`, a.addr.Transport, "gossip.join") {
				require.ErrorContains(t, err, w)
			}
			assert.True(t, IsConfig(err))
			var misfit *NotAcceptedError
			require.ErrorAs(t, err, &misfit)
			assert.NotEmpty(t, misfit.Hint())
			assert.True(t, (api{a.Node}).Ready().Ready)
			a.log.mu.Lock()
			refused := bytes.Count(a.log.b.Bytes(), []byte("was refused"))
			a.log.mu.Unlock()
			assert.LessOrEqual(t, refused, 3, "each refusal is told once a minute, for each direction and reason")
			assert.Positive(t, refused)
			voters, err := a.plane.VoterIDs()
			require.NoError(t, err)
			assert.Len(t, voters, 1)
		})
	}
}
