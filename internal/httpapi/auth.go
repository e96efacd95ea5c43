package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/droverhq/drover/internal/config"
)

// guard decides who may do what (spec 5.2).
type guard struct {
	admin, read       [sha256.Size]byte // digests, so that a comparison tells nothing of a token's length either
	hasAdmin, hasRead bool
	loopback          bool   // the listener is on loopback only
	host              string // of http.address
}

func newGuard(c config.HTTP) guard {
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		host = c.Address
	}
	return guard{
		admin: sha256.Sum256([]byte(c.AdminToken.Reveal())), hasAdmin: c.AdminToken != "",
		read: sha256.Sum256([]byte(c.ReadToken.Reveal())), hasRead: c.ReadToken != "",
		loopback: isLoopback(host), host: host,
	}
}

// check returns the problem of a request that may not use a route.
func (g guard) check(r *http.Request, need access) *Problem {
	if !g.hasAdmin && !g.hasRead {
		return g.checkSite(r)
	}
	if need == public {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return &Problem{Kind: KindUnauthorized, Detail: "the request carries no bearer token", Hint: "send Authorization: Bearer …, or give the command line --token or DROVER_TOKEN"}
	}
	// Both are always compared, in constant time.
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	isAdmin := subtle.ConstantTimeCompare(given[:], g.admin[:]) == 1
	isRead := subtle.ConstantTimeCompare(given[:], g.read[:]) == 1
	switch {
	case isAdmin && g.hasAdmin:
		return nil
	case !(isRead && g.hasRead):
		return &Problem{Kind: KindUnauthorized, Detail: "the token is not known", Hint: "use the token of http.tokens in this node's configuration"}
	case need == admin:
		return &Problem{Kind: KindForbidden, Detail: "the read token may change nothing"}
	}
	return nil
}

// checkSite keeps other sites' pages out where no token does. A page of another site can make a browser on this machine send
// requests here (Origin tells), or let its own name resolve to loopback and so read the answers too (Host tells: DNS rebinding).
func (g guard) checkSite(r *http.Request) *Problem {
	if g.loopback {
		if host := hostOf(r.Host); !isLoopback(host) && !strings.EqualFold(host, g.host) {
			return &Problem{Kind: KindForeignOrigin, Detail: "without a token this node answers to loopback addresses alone, not to " + quote(r.Host)}
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return &Problem{Kind: KindForeignOrigin, Detail: "the request comes from a page of " + quote(origin) + ", another site",
				Hint: "without a token only this node's own pages may send requests: set http.tokens.admin"}
		}
	}
	return nil
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
