package transport

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/pki"
)

// TestExpiryIsAnnounced: an operator is told before the certificate ends, once a day, and again when it has.
func TestExpiryIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &syncBuffer{}
		leaf := &x509.Certificate{NotAfter: time.Now().Add(expirySoon + 36*time.Hour)}
		ctx, cancel := context.WithCancelCause(t.Context())
		tr := &Transport{cfg: Config{TLS: &pki.Credentials{Certificate: tls.Certificate{Leaf: leaf}}}, log: slog.New(slog.NewTextHandler(log, nil)), ctx: ctx}
		go tr.watchExpiry()
		after := func(d time.Duration, soon, over int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			assert.Equal(t, soon, log.count("expires soon"))
			assert.Equal(t, over, log.count("has expired"))
		}
		after(25*time.Hour, 0, 0)
		after(24*time.Hour, 1, 0)
		after(24*time.Hour, 2, 0)
		after(28*24*time.Hour, 30, 0)
		after(24*time.Hour, 30, 1)
		assert.Positive(t, log.count("drover tls cert"))
		cancel(nil)
	})
}

// TestCertificatesRefused: a certificate counts only if it is of the authority, of a node of this cluster, for this use and valid now; on either side of a
// connection (spec 5.2). What such a node sends is not looked at.
func TestCertificatesRefused(t *testing.T) {
	now := time.Now()
	ca, signing, err := pki.NewAuthority("test", now)
	require.NoError(t, err)
	other, _, err := pki.NewAuthority("test", now) // of the same name
	require.NoError(t, err)
	authority, err := tls.X509KeyPair(signing.Cert, signing.Key)
	require.NoError(t, err)
	id := pki.Identity{Cluster: "test", Node: "x", Roles: []string{"compute", "coordinator"}}
	issued := func(by *pki.Authority, at time.Time) tls.Certificate {
		pair, err := by.Issue(id, nil, at)
		require.NoError(t, err)
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		require.NoError(t, err)
		return c
	}
	// made is a certificate that this authority has signed for another purpose, or that nobody has.
	made := func(by *tls.Certificate, change func(*x509.Certificate)) tls.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{id.URI()}}
		change(c)
		parent, signer := c, crypto.PrivateKey(key)
		if by != nil {
			parent, signer = by.Leaf, by.PrivateKey
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	}
	same := func(*x509.Certificate) {}
	node := issued(ca, now)
	below := made(&node, same)
	below.Certificate = append(below.Certificate, node.Certificate...)
	believed := x509.NewCertPool()
	require.True(t, believed.AppendCertsFromPEM(ca.Certificate()))
	good := &pki.Credentials{Identity: pki.Identity{Cluster: "test", Node: "b", Roles: []string{"compute", "coordinator"}}, Authorities: believed}
	pair, err := ca.Issue(good.Identity, nil, now)
	require.NoError(t, err)
	good.Certificate, err = tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)

	for _, tc := range []struct {
		name             string
		cert             tls.Certificate
		dialler, listens bool   // refused as one
		why              string // in the words of the node that refuses it
	}{
		{"in order", node, false, false, ""},
		{"made by hand, in order", made(&authority, same), false, false, ""},
		{"expired", issued(ca, now.Add(-pki.NodeValidity-time.Hour)), true, true, "expired"},
		{"not valid yet", issued(ca, now.Add(time.Hour)), true, true, "not yet valid"},
		{"another authority of the same name", issued(other, now), true, true, "unknown authority"},
		{"signed by itself", made(nil, same), true, true, "unknown authority"},
		{"signed by a node", below, true, true, "certificate"},
		{"the authority's own", authority, true, true, "certificate"},
		{"for another purpose", made(&authority, func(c *x509.Certificate) { c.URIs = nil }), true, true, "drover:///CLUSTER/NODE"},
		{"two identities", made(&authority, func(c *x509.Certificate) { c.URIs = append(c.URIs, id.URI()) }), true, true, "more than one"},
		{"for servers alone", made(&authority, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }), true, false, "incompatible key usage"},
		{"for clients alone", made(&authority, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }), false, true, "incompatible key usage"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := start(t, "b", func(c *Config) { c.TLS = good })
			x := start(t, "x", func(c *Config) {
				c.TLS = &pki.Credentials{Identity: id, Certificate: tc.cert, Authorities: believed}
			})
			meet(b, x)
			err := connect(t, x, b, Data, b.member)
			if tc.dialler {
				assert.Equal(t, ReasonTLS, reasonOf(t, err), "%v", err)
				b.refusedAs(t, ReasonTLS)
				require.NoError(t, x.Send(b.member, Data, []byte("x")))
				x.rec.untilOut(t, b.member, Data, "down")
			} else {
				assert.NoError(t, err)
			}
			assert.Empty(t, b.rec.in)
			err = connect(t, b, x, Data, x.member)
			if tc.listens {
				assert.Equal(t, ReasonTLS, reasonOf(t, err), "%v", err)
				assert.ErrorContains(t, err, tc.why)
			} else {
				assert.NoError(t, err)
			}
		})
	}

	b := start(t, "b", func(c *Config) { c.TLS = good })
	for name, c := range map[string]*tls.Config{
		"no certificate": {},
		"an older TLS":   {MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{node}},
	} {
		c.InsecureSkipVerify = true
		conn := tls.Client(dialTCP(t, b), c)
		err := conn.HandshakeContext(t.Context())
		if err == nil { // with TLS 1.3 a client learns of it by the first answer
			_, err = conn.Read(make([]byte, 1))
		}
		assert.ErrorContains(t, err, "remote error: tls", name)
	}
	require.Eventually(t, func() bool { return b.Stats().Refused[ReasonTLS] == 2 }, patience, time.Millisecond)
}
