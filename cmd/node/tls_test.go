package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
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
