package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

func issue(t *testing.T, ca *Authority, id Identity, now time.Time) (*x509.Certificate, Pair) {
	pair, err := ca.Issue(id, []string{"127.0.0.1", "localhost"}, now)
	require.NoError(t, err)
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert, pair
}

// TestIdentityRoundTrip: cluster, name and roles survive a certificate, however they are spelt (spec 5.2).
func TestIdentityRoundTrip(t *testing.T) {
	ca, _, err := NewAuthority("test", time.Now())
	require.NoError(t, err)
	for _, id := range []Identity{
		{Cluster: "drover", Node: "a", Roles: []string{"compute", "coordinator"}},
		{Cluster: "with space", Node: "n.1_-x", Roles: nil},
		{Cluster: "a/b", Node: "c/../d", Roles: []string{"r&role=coordinator", "x=y"}},
		{Cluster: "café", Node: "naïve?role=coordinator#x", Roles: []string{"%2f"}},
	} {
		cert, _ := issue(t, ca, id, time.Now())
		got, err := FromCertificate(cert)
		require.NoError(t, err, "%+v", id)
		assert.Equal(t, id, got)
	}
}

func TestIssueRefuses(t *testing.T) {
	ca, _, err := NewAuthority("test", time.Now())
	require.NoError(t, err)
	for _, tc := range []struct {
		id    Identity
		hosts []string
		want  string
	}{
		{Identity{Node: "a"}, nil, "the cluster is empty"},
		{Identity{Cluster: "c"}, nil, "the node name is empty"},
		{Identity{Cluster: "c", Node: "a\n"}, nil, "control characters"},
		{Identity{Cluster: "c", Node: sharding.NodeID(strings.Repeat("x", 256))}, nil, "256 bytes"},
		{Identity{Cluster: "c", Node: "a", Roles: []string{""}}, nil, "the role is empty"},
		{Identity{Cluster: "c", Node: "a"}, []string{"10.0.0.1:80"}, "neither a DNS name"},
		{Identity{Cluster: "c", Node: "a"}, []string{""}, "neither a DNS name"},
	} {
		_, err := ca.Issue(tc.id, tc.hosts, time.Now())
		assert.ErrorContains(t, err, tc.want)
	}
}

func TestFromCertificateRefuses(t *testing.T) {
	for _, tc := range []struct {
		uris []string
		want string
	}{
		{nil, "no drover:///CLUSTER/NODE identity"},
		{[]string{"spiffe://x/y"}, "no drover:///CLUSTER/NODE identity"},
		{[]string{"drover:///c/a", "drover:///c/b"}, "more than one"},
		{[]string{"drover://host/c/a"}, "a part too many"},
		{[]string{"drover:///c/a#f"}, "a part too many"},
		{[]string{"drover:///c"}, "two path elements"},
		{[]string{"drover:///c/a/b"}, "two path elements"},
		{[]string{"drover:c/a"}, "a part too many"},
		{[]string{"drover:////a"}, "the cluster is empty"},
		{[]string{"drover:///c/a?role=%zz"}, "badly escaped"},
	} {
		cert := &x509.Certificate{}
		for _, raw := range tc.uris {
			u, err := url.Parse(raw)
			require.NoError(t, err)
			cert.URIs = append(cert.URIs, u)
		}
		_, err := FromCertificate(cert)
		assert.ErrorContains(t, err, tc.want, "%v", tc.uris)
	}
}

// TestParseJudgesOwnCertificate: a node learns at its start that its certificate cannot work.
func TestParseJudgesOwnCertificate(t *testing.T) {
	now := time.Now()
	id := Identity{Cluster: "c", Node: "a", Roles: []string{"compute"}}
	ca, authority, err := NewAuthority("one", now)
	require.NoError(t, err)
	other, _, err := NewAuthority("two", now)
	require.NoError(t, err)
	_, own := issue(t, ca, id, now)
	_, foreign := issue(t, other, id, now)
	_, old := issue(t, ca, id, now.Add(-NodeValidity-time.Hour))

	creds, err := Parse(ca.Certificate(), own, now)
	require.NoError(t, err)
	assert.Equal(t, id, creds.Identity)
	both := append(other.Certificate(), ca.Certificate()...)
	_, err = Parse(both, foreign, now)
	assert.NoError(t, err, "authorities rotate: several may be believed")

	for name, tc := range map[string]struct {
		ca   []byte
		own  Pair
		want string
	}{
		"other authority": {ca.Certificate(), foreign, "unknown authority"},
		"expired":         {ca.Certificate(), old, "expired"},
		"no authority":    {[]byte("x"), own, "tls.ca"},
		"authority's own": {ca.Certificate(), authority, "tls.cert"},
		"keys mixed up":   {ca.Certificate(), Pair{Cert: own.Cert, Key: foreign.Key}, "tls.cert and tls.key"},
		"no certificate":  {ca.Certificate(), Pair{}, "tls.cert and tls.key"},
	} {
		_, err := Parse(tc.ca, tc.own, now)
		assert.ErrorContains(t, err, tc.want, name)
	}
	// A certificate never outlives its authority.
	late, _ := issue(t, ca, id, now.Add(AuthorityValidity-time.Hour))
	assert.Equal(t, now.Add(AuthorityValidity).Unix(), late.NotAfter.Unix())
	_, err = ca.Issue(id, nil, now.Add(AuthorityValidity+time.Hour))
	assert.ErrorContains(t, err, "the authority expired")
}

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	_, err := CreateAuthority(dir, "test", time.Now())
	require.NoError(t, err)
	id := Identity{Cluster: "test", Node: "a", Roles: []string{"compute"}}
	files, err := CreateNode(dir, dir, id, nil, time.Now())
	require.NoError(t, err)
	for _, key := range []string{filepath.Join(dir, AuthorityKey), files.Key} {
		info, err := os.Stat(key)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode())
	}
	creds, err := Load(filepath.Join(dir, AuthorityCert), files.Cert, files.Key, time.Now())
	require.NoError(t, err)
	assert.Equal(t, id, creds.Identity)

	// Nothing is overwritten, and a half that is there leaves no other half behind.
	_, err = CreateAuthority(dir, "test", time.Now())
	assert.ErrorIs(t, err, fs.ErrExist)
	require.NoError(t, os.Remove(files.Key))
	_, err = CreateNode(dir, dir, id, nil, time.Now())
	assert.ErrorIs(t, err, fs.ErrExist)
	_, err = os.Stat(files.Key)
	assert.True(t, errors.Is(err, fs.ErrNotExist))

	_, err = Load(filepath.Join(dir, AuthorityCert), files.Cert, files.Key, time.Now())
	assert.ErrorContains(t, err, "a-key.pem")
	for _, name := range []string{"../x", "", ".", "..", "ca", "a/b", ".hidden"} {
		_, err = CreateNode(dir, dir, Identity{Cluster: "test", Node: sharding.NodeID(name)}, nil, time.Now())
		assert.Error(t, err, "%q", name)
	}
}

// FuzzIdentity: no URI makes the reader panic, and an identity that it gives is one that can be issued, and reads back as itself.
func FuzzIdentity(f *testing.F) {
	for _, s := range []string{"drover:///drover/a?role=compute&role=coordinator", "drover:///a%2Fb/c%2F..%2Fd?role=%25", "drover:////a", "drover:c/a", "drover://h/c/a#f", "drover:///./..?role=", "spiffe://x/y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		id, err := FromCertificate(&x509.Certificate{URIs: []*url.URL{u}})
		if err != nil {
			return
		}
		require.NoError(t, id.Validate())
		again, err := url.Parse(id.URI().String()) // as a certificate carries it
		require.NoError(t, err)
		same, err := FromCertificate(&x509.Certificate{URIs: []*url.URL{again}})
		require.NoError(t, err)
		assert.Equal(t, id, same)
	})
}
