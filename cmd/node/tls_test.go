package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/pki"
)

// TestCertificatesSayWhatTheFlagsSay: a node may do no more than its certificate says (spec 5.2), so that has to be what was asked for.
func TestCertificatesSayWhatTheFlagsSay(t *testing.T) {
	dir := t.TempDir()
	drover := func(line ...string) {
		var out, errs bytes.Buffer
		require.Equal(t, 0, run(line, strings.NewReader(""), &out, &errs), errs.String())
	}
	read := func(name string) *x509.Certificate {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		block, _ := pem.Decode(data)
		require.NotNil(t, block)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		return cert
	}
	drover("tls", "ca", "--out", dir, "--cluster", "shop")
	assert.Contains(t, read("ca.pem").Subject.String(), "shop")

	drover("tls", "cert", "--ca", dir, "--name", "a", "--cluster", "shop", "--roles", "compute,cache", "--hosts", "10.0.0.1,a.example.org")
	cert := read("a.pem")
	id, err := pki.FromCertificate(cert)
	require.NoError(t, err)
	assert.Equal(t, pki.Identity{Cluster: "shop", Node: "a", Roles: []string{"cache", "compute"}}, id)
	assert.Contains(t, cert.DNSNames, "a.example.org")
	require.Len(t, cert.IPAddresses, 1)
	assert.Equal(t, "10.0.0.1", cert.IPAddresses[0].String())

	drover("tls", "cert", "--ca", dir, "--name", "b")
	id, err = pki.FromCertificate(read("b.pem"))
	require.NoError(t, err)
	assert.Equal(t, pki.Identity{Cluster: "drover", Node: "b", Roles: []string{"compute", "coordinator"}}, id)
}

// What run refuses, config check refuses, and both with 2: a certificate of another node, cluster or authority, too few roles, a key that is not the
// certificate's, a file that is none (spec 5.1, 5.2).
func TestWrongCertificateIsAWrongConfiguration(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	drover := func(line ...string) (int, string) {
		var out, errs bytes.Buffer
		return run(line, strings.NewReader(""), &out, &errs), out.String() + errs.String()
	}
	for _, line := range [][]string{{"ca", "--out", dir}, {"ca", "--out", at("other")}, {"cert", "--ca", dir, "--name", "a"}, {"cert", "--ca", dir, "--name", "b"},
		{"cert", "--ca", dir, "--name", "a", "--roles", "compute", "--out", at("few")}} {
		code, text := drover(append([]string{"tls"}, line...)...)
		require.Zero(t, code, text)
	}
	require.NoError(t, os.WriteFile(at("text.pem"), []byte("no PEM"), 0o600))
	own := []string{"../../node.toml", "--set", "name=a", "--set", "data_dir=" + at("data"), "--set", "http.address=127.0.0.1:0", "--set", "gossip.bind=127.0.0.1:0",
		"--set", "transport.bind=127.0.0.1:0", "--set", "tls.ca=" + at("ca.pem"), "--set", "tls.cert=" + at("a.pem"), "--set", "tls.key=" + at("a-key.pem")}
	code, text := drover(append([]string{"config", "check"}, own...)...)
	require.Zero(t, code, text)
	for _, tc := range []struct{ set, says string }{
		{"name=zz", `tls.cert is for node "a", this node is "zz"`},
		{"cluster=shop", `tls.cert is for cluster "drover", this node is of "shop"`},
		{"tls.key=" + at("b-key.pem"), "tls.cert and tls.key: "},
		{"tls.cert=" + at("text.pem"), "tls.cert and tls.key: "},
		{"tls.ca=" + at("text.pem"), "tls.ca: "},
		{"tls.ca=" + at("other/ca.pem"), "tls.cert: "},
		{"tls.cert=" + at("few/a.pem") + " tls.key=" + at("few/a-key.pem"), `lacks the role "coordinator"`},
	} {
		line := slices.Clone(own)
		for set := range strings.FieldsSeq(tc.set) {
			line = append(line, "--set", set)
		}
		for _, command := range []string{"config check", "run"} {
			code, text := drover(append(strings.Fields(command), line...)...)
			assert.Equal(t, 2, code, "%s: %s", command, tc.set)
			assert.Contains(t, text, tc.says, "%s: %s", command, tc.set)
			assert.Contains(t, text, "\nhint: ", "%s: %s", command, tc.set)
		}
		code, text := drover(append([]string{"config", "check", "--json"}, line...)...)
		assert.Equal(t, 2, code)
		assert.Contains(t, text, `"key": "tls"`)
	}
}
