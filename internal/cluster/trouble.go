package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// others leaves out of join addresses those that are this node's own: joining oneself succeeds, and finds nobody.
func (c *Cluster) others(ctx context.Context, addresses []string) (out []string) {
	ours, port, err := net.SplitHostPort(c.Addr())
	if err != nil {
		return addresses
	}
	own := map[string]bool{ours: true}
	if bind, _, err := net.SplitHostPort(c.cfg.Bind); err == nil && (bind == "" || net.ParseIP(bind).IsUnspecified()) {
		if all, err := net.InterfaceAddrs(); err == nil {
			for _, a := range all {
				if n, ok := a.(*net.IPNet); ok {
					own[n.IP.String()] = true
				}
			}
		}
	}
	for _, a := range addresses {
		host, p, err := net.SplitHostPort(a)
		if err != nil || p != port {
			out = append(out, a)
			continue
		}
		ips := []string{host}
		if net.ParseIP(host) == nil {
			look, cancel := context.WithTimeout(ctx, probeFor)
			if found, err := net.DefaultResolver.LookupHost(look, host); err == nil {
				ips = found
			}
			cancel()
		}
		self := false
		for _, ip := range ips {
			self = self || own[ip]
		}
		if !self {
			out = append(out, a)
		}
	}
	return out
}

// PortError says that something else than gossip answers at a join address.
type PortError struct {
	Address string
	Found   string
}

// Error names the address and the next step.
func (e *PortError) Error() string {
	return fmt.Sprintf("%s is no gossip port, it is %s: gossip.join wants what the other node has as gossip.bind", e.Address, e.Found)
}

// trouble recognises what a failed join means; its causes come as memberlist's text. Nil: nothing that is known.
func trouble(ctx context.Context, addresses []string, err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	for _, sign := range []struct{ says, detail string }{
		{"encryption is not configured", "it encrypts, we do not"},
		{"is not encrypted", "we encrypt, it does not"},
		{"no installed keys could decrypt", "no key of ours opens its answer"},
		{"invalid msgtype", ""},
		{"eof", ""},
		{"reset by peer", ""},
	} {
		if !strings.Contains(text, sign.says) {
			continue
		}
		for _, a := range addresses { // an answer that is none of gossip's may look like one in another key
			if found := speaks(ctx, a); found != "" {
				return &PortError{Address: a, Found: found}
			}
		}
		if sign.detail != "" {
			return &KeyError{Address: strings.Join(addresses, ", "), Detail: sign.detail}
		}
	}
	return nil
}

// probeFor bounds what a port is asked.
const probeFor = time.Second

// speaks says what is at an address, if it is one of the other ports of a node: HTTP answers a request, the transport names its protocol in its refusal.
func speaks(ctx context.Context, address string) string {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if conn.SetDeadline(deadline) != nil {
		return ""
	}
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.0\r\n\r\n")); err != nil {
		return ""
	}
	head := make([]byte, len("HTTP/"))
	n, err := io.ReadAtLeast(conn, head, 1)
	if err != nil {
		return ""
	}
	switch {
	case strings.HasPrefix("HTTP/", string(head[:n])):
		return "an HTTP port ([http] address)"
	case head[0] == transportRefusal:
		return "a transport port ([transport] bind)"
	case head[0] == tlsAlert:
		return "a TLS port (such as [transport] bind with [tls])"
	}
	return ""
}

// First bytes of what the other ports answer to a request that is not theirs.
const (
	transportRefusal = 5
	tlsAlert         = 0x15
)
