package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
)

// NotAcceptedError says that the nodes which this one was told to join refuse its connections, or it theirs: their TLS, keys or cluster differ. Gossip may
// still work between such nodes, and nothing else does.
type NotAcceptedError struct {
	Node    sharding.NodeID // one of those that refuse
	Address string          // of its transport
	Err     error           // a transport.HandshakeError
}

// Error names the node and the reason.
func (e *NotAcceptedError) Error() string {
	why := e.Err.Error()
	if h, ok := errors.AsType[*transport.HandshakeError](e.Err); ok {
		why = fmt.Sprintf("%v (%s)", h.Err, h.Reason)
		if h.Remote {
			why = "in its words " + why
		}
	}
	return fmt.Sprintf("this node cannot join: it and node %q at %s, found through gossip.join, do not accept each other's connections: %s", e.Node, e.Address, why)
}

func (e *NotAcceptedError) Unwrap() error { return e.Err }

// Hint gives the next step.
func (e *NotAcceptedError) Hint() string {
	h, ok := errors.AsType[*transport.HandshakeError](e.Err)
	if !ok {
		return ""
	}
	switch h.Reason {
	case transport.ReasonMode:
		return "configure [tls] and gossip.keys alike on all nodes of a cluster"
	case transport.ReasonTLS:
		return "make the certificate with the cluster's authority: drover tls cert"
	case transport.ReasonKey:
		return "set the same gossip.keys on all nodes"
	}
	return "correct gossip.join or cluster; to move this node into that cluster start it with an empty data_dir"
}

const (
	acceptEvery    = 500 * time.Millisecond
	acceptPatience = 10 * time.Second // for nodes that do not answer, once another has refused
)

// checkAccepted finds out whether the nodes that a join has found accept this one, until one does or the coordinator has registered this node. If all of
// them refuse it for what is configured, waiting mends nothing: the start ends with it (spec 5.1).
func (n *Node) checkAccepted(ctx context.Context) error {
	tick := time.NewTicker(acceptEvery)
	defer tick.Stop()
	var since time.Time
	for {
		if ok, _ := n.data.Registered(); ok {
			return nil
		}
		var refused *NotAcceptedError
		silent := 0
		for _, m := range n.memberList() {
			if m.Name == n.self.Node || m.Status != cluster.Up || m.Transport == "" {
				continue
			}
			try, cancel := context.WithTimeout(ctx, acceptPatience/2)
			err := n.transport.Check(try, transport.Target{Member: m.Identity(), Addr: m.Transport})
			cancel()
			h, isRefusal := errors.AsType[*transport.HandshakeError](err)
			switch {
			case err == nil:
				return nil
			case isRefusal && h.Misfit():
				refused = &NotAcceptedError{Node: m.Name, Address: m.Transport, Err: err}
			default:
				silent++
			}
		}
		if refused == nil {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		if refused != nil && (silent == 0 || time.Since(since) > acceptPatience) {
			return refused
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
