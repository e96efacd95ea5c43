package cluster

import (
	"context"
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// network is memberlist's own transport, whose connections end when the cluster is closed: memberlist tries addresses one after the other, waits ten
// seconds for each that does not answer, and knows no end of it.
type network struct {
	*memberlist.NetTransport
	ctx context.Context
}

// bind listens for gossip, by TCP and UDP, on the address that host and port name.
func bind(ctx context.Context, host string, port int, logger *log.Logger) (*network, error) {
	address, err := net.DefaultResolver.LookupIPAddr(ctx, host) // memberlist takes a name for all addresses there are
	if err != nil {
		return nil, err
	}
	const tries = 10 // a free port for TCP may be taken for UDP
	for try := 1; ; try++ {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{address[0].String()}, BindPort: port, Logger: logger})
		if err == nil {
			return &network{t, ctx}, nil
		}
		if port != 0 || try == tries {
			return nil, err
		}
	}
}

func bindError(bind string, err error) error {
	if strings.Contains(err.Error(), "address already in use") {
		return fmt.Errorf("gossip.bind = %q: the port is in use: stop the other process or choose another port", bind)
	}
	return fmt.Errorf("gossip.bind = %q: %w", bind, err)
}

// DialTimeout implements memberlist.Transport.
func (n *network) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(n.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &endingConn{conn, context.AfterFunc(n.ctx, func() { conn.Close() })}, nil
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (n *network) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return n.DialTimeout(a.Addr, timeout)
}

// endingConn is closed with the cluster.
type endingConn struct {
	net.Conn
	stop func() bool
}

// Close implements net.Conn.
func (c *endingConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
