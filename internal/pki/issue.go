package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Validity of what is made here. A node's certificate never outlives its authority.
const (
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	NodeValidity      = 365 * 24 * time.Hour
)

// clockSkew is how far a node's clock may be behind the one of the machine that made its certificate.
const clockSkew = 5 * time.Minute

// Pair is a certificate and its key, PEM encoded.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority signs certificates of nodes.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// NewAuthority makes an authority (ECDSA P-256, valid for AuthorityValidity from now).
func NewAuthority(label string, now time.Time) (*Authority, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               subject(label),
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(AuthorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, Pair{}, err
	}
	authority, err := ReadAuthority(pair)
	return authority, pair, err
}

// ReadAuthority reads what NewAuthority made.
func ReadAuthority(pair Pair) (*Authority, error) {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	if !both.Leaf.IsCA {
		return nil, errors.New("read the authority: this certificate is not one of an authority")
	}
	key, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("read the authority: its key cannot sign")
	}
	return &Authority{cert: both.Leaf, key: key, pem: pair.Cert}, nil
}

// Certificate gives the authority's own certificate, PEM encoded: what [tls] ca names.
func (a *Authority) Certificate() []byte { return slices.Clone(a.pem) }

// Issue makes the certificate of a node (ECDSA P-256, for client and server, valid for NodeValidity from now). Hosts are
// DNS names and IP addresses, for tools other than Drover; there may be none.
func (a *Authority) Issue(id Identity, hosts []string, now time.Time) (Pair, error) {
	if err := id.Validate(); err != nil {
		return Pair{}, err
	}
	if now.After(a.cert.NotAfter) {
		return Pair{}, fmt.Errorf("the authority expired on %s: make a new one with \"drover tls ca\"", a.cert.NotAfter.Format(time.DateOnly))
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               subject(string(id.Node)),
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(NodeValidity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{id.URI()},
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:@", r) }) {
			return Pair{}, fmt.Errorf("host %q is neither a DNS name nor an IP address (give it without a port)", host)
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	return sign(template, a.cert, key, a.key)
}

func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, by crypto.Signer) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}

// serial makes a random positive number of 127 bits, as RFC 5280 asks (at most 20 octets, unique for an authority).
func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b[:])
}

// Credentials are what a node needs to speak mutual TLS: its own certificate and the authorities that it believes.
type Credentials struct {
	Identity    Identity
	Certificate tls.Certificate
	Authorities *x509.CertPool
}

// Parse reads the PEM contents of [tls] ca, cert and key, and checks that they fit: the certificate is one of a node,
// is signed by one of the authorities, and is valid at now. Several authorities may stand in ca, so that they rotate.
func Parse(ca []byte, own Pair, now time.Time) (*Credentials, error) {
	pool := x509.NewCertPool()
	if !bytes.Contains(ca, []byte("-----BEGIN CERTIFICATE-----")) || !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("tls.ca: no PEM certificate in it")
	}
	both, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
	}
	c := &Credentials{Certificate: both, Authorities: pool}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if c.Identity, err = c.Verify(c.chain(), usage, now); err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
	}
	return c, nil
}

func (c *Credentials) chain() []*x509.Certificate {
	chain := []*x509.Certificate{c.Certificate.Leaf}
	for _, der := range c.Certificate.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, cert)
		}
	}
	return chain
}

// Verify checks the chain that a peer showed, leaf first, for a usage, and reads the peer's identity.
func (c *Credentials) Verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, errors.New("there is no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.Authorities, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return Identity{}, err
	}
	return FromCertificate(chain[0])
}
