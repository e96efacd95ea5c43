// Package pki makes and reads the certificates of a cluster (spec 5.2): one authority, and one certificate a node.
//
// A node's certificate names the cluster, the node and its roles in one URI:
//
//	drover:///CLUSTER/NODE?role=coordinator&role=compute
//
// Both parts are path-escaped, roles are sorted. That URI alone is the identity: DNS and IP names are carried for other
// tools and are not read. The authority must be used for one purpose, nodes of Drover, because any certificate of it that
// carries such a URI is a node. The package opens no connection.
package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/droverhq/drover/sharding"
)

// Scheme is the scheme of identity URIs.
const Scheme = "drover"

// Bounds on what an identity may hold, in bytes and entries.
const (
	MaxName  = 255
	MaxRoles = 64
)

// Identity is what a certificate says about a node.
type Identity struct {
	Cluster string // the label of node.toml
	Node    sharding.NodeID
	Roles   []string // sorted, without duplicates
}

// Validate checks that every part is there, within its bound and printable.
func (id Identity) Validate() error {
	if err := checkName("cluster", id.Cluster); err != nil {
		return err
	}
	if err := checkName("node name", string(id.Node)); err != nil {
		return err
	}
	if len(id.Roles) > MaxRoles {
		return fmt.Errorf("%d roles: at most %d are allowed", len(id.Roles), MaxRoles)
	}
	for _, role := range id.Roles {
		if err := checkName("role", role); err != nil {
			return err
		}
	}
	return nil
}

// Certifies says whether a node of that configuration may use the certificate of this identity: no node claims to be what it has no certificate for.
func (id Identity) Certifies(cluster string, node sharding.NodeID, roles []string) error {
	hint := fmt.Sprintf("make one with \"drover tls cert --name %s\"", node)
	if id.Cluster != cluster {
		return fmt.Errorf("tls.cert is for cluster %q, this node is of %q: %s", id.Cluster, cluster, hint)
	}
	if id.Node != node {
		return fmt.Errorf("tls.cert is for node %q, this node is %q: %s", id.Node, node, hint)
	}
	for _, role := range roles {
		if !slices.Contains(id.Roles, role) {
			return fmt.Errorf("tls.cert of node %q lacks the role %q of its configuration: %s with all roles", id.Node, role, hint)
		}
	}
	return nil
}

func checkName(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("the %s is empty", what)
	case len(s) > MaxName:
		return fmt.Errorf("the %s is %d bytes long: at most %d are allowed", what, len(s), MaxName)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("the %s %q has control characters or is no UTF-8", what, s)
	}
	return nil
}

// URI gives the identity as it stands in a certificate.
func (id Identity) URI() *url.URL {
	query := url.Values{}
	for _, role := range normalRoles(id.Roles) {
		query.Add("role", role)
	}
	return &url.URL{
		Scheme:   Scheme,
		Path:     "/" + id.Cluster + "/" + string(id.Node),
		RawPath:  "/" + url.PathEscape(id.Cluster) + "/" + url.PathEscape(string(id.Node)),
		RawQuery: query.Encode(),
	}
}

func normalRoles(roles []string) []string {
	out := slices.Clone(roles)
	slices.Sort(out)
	return slices.Compact(out)
}

// errNoIdentity is for certificates of the authority that are not meant for nodes.
var errNoIdentity = errors.New(`the certificate has no drover:///CLUSTER/NODE identity: make one with "drover tls cert"`)

// FromCertificate reads the identity of a node. The certificate must have been verified already. More than one identity
// is refused: which of them counts would be a guess.
func FromCertificate(cert *x509.Certificate) (Identity, error) {
	var found *url.URL
	for _, u := range cert.URIs {
		if u.Scheme != Scheme {
			continue
		}
		if found != nil {
			return Identity{}, errors.New("the certificate has more than one drover identity")
		}
		found = u
	}
	if found == nil {
		return Identity{}, errNoIdentity
	}
	return parseURI(found)
}

func parseURI(u *url.URL) (Identity, error) {
	bad := func(why string) (Identity, error) {
		return Identity{}, fmt.Errorf("the certificate's identity %q %s: want drover:///CLUSTER/NODE?role=ROLE", u.String(), why)
	}
	if u.Host != "" || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return bad("has a part too many")
	}
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if len(parts) != 2 {
		return bad("does not have two path elements")
	}
	cluster, err1 := url.PathUnescape(parts[0])
	node, err2 := url.PathUnescape(parts[1])
	query, err3 := url.ParseQuery(u.RawQuery)
	if err := errors.Join(err1, err2, err3); err != nil {
		return bad("is badly escaped")
	}
	id := Identity{Cluster: cluster, Node: sharding.NodeID(node), Roles: normalRoles(query["role"])}
	if err := id.Validate(); err != nil {
		return Identity{}, fmt.Errorf("the certificate's identity: %w", err)
	}
	return id, nil
}

// subject is for people who look at a certificate with other tools; nothing reads it.
func subject(name string) pkix.Name {
	const longest = 64 // upper bound of a common name, RFC 5280
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "")
	}
	return pkix.Name{CommonName: name, Organization: []string{"Drover"}}
}
