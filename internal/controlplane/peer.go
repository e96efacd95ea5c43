package controlplane

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/droverhq/drover/sharding"
)

// raft seeks a server at its address and asks nobody who is there. A server with a wiped disk at the address of the one that it was would acknowledge and vote
// in that one's name, which had other entries and may have voted (spec 2.1). So each connection begins with the UUID of the server that it is meant for, 16
// bytes, and any other server closes it.

// addressed gives raft's transport the UUID along with the address.
type addressed struct{ *raft.NetworkTransport }

func at(id raft.ServerID, a raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + string(a))
}

// AppendEntriesPipeline implements raft.Transport, as do the following.
func (t addressed) AppendEntriesPipeline(id raft.ServerID, a raft.ServerAddress) (raft.AppendPipeline, error) {
	return t.NetworkTransport.AppendEntriesPipeline(id, at(id, a))
}

func (t addressed) AppendEntries(id raft.ServerID, a raft.ServerAddress, q *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	return t.NetworkTransport.AppendEntries(id, at(id, a), q, r)
}

func (t addressed) RequestVote(id raft.ServerID, a raft.ServerAddress, q *raft.RequestVoteRequest, r *raft.RequestVoteResponse) error {
	return t.NetworkTransport.RequestVote(id, at(id, a), q, r)
}

func (t addressed) RequestPreVote(id raft.ServerID, a raft.ServerAddress, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
	return t.NetworkTransport.RequestPreVote(id, at(id, a), q, r)
}

func (t addressed) InstallSnapshot(id raft.ServerID, a raft.ServerAddress, q *raft.InstallSnapshotRequest, r *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.NetworkTransport.InstallSnapshot(id, at(id, a), q, r, data)
}

func (t addressed) TimeoutNow(id raft.ServerID, a raft.ServerAddress, q *raft.TimeoutNowRequest, r *raft.TimeoutNowResponse) error {
	return t.NetworkTransport.TimeoutNow(id, at(id, a), q, r)
}

// streamLayer gives raft connections to the servers that it means, and from those that mean this one.
type streamLayer struct {
	StreamLayer
	self   sharding.Incarnation
	logger *slog.Logger
}

// Dial implements raft.StreamLayer.
func (s *streamLayer) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, address, ok := strings.Cut(string(target), "@")
	server, err := sharding.ParseIncarnation(id)
	if err != nil || !ok {
		return nil, fmt.Errorf("raft seeks %q: want UUID@host:port", target)
	}
	conn, err := s.DialRaft(address, timeout)
	if err != nil {
		return nil, err
	}
	err = conn.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = conn.Write(server[:])
	}
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Accept implements net.Listener.
func (s *streamLayer) Accept() (net.Conn, error) {
	conn, err := s.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	return &meantConn{Conn: conn, layer: s}, nil
}

// meantConn is a connection that says first whom it is meant for.
type meantConn struct {
	net.Conn
	layer *streamLayer
	once  sync.Once
	err   error
}

// Read implements net.Conn; raft reads with one goroutine.
func (c *meantConn) Read(b []byte) (int, error) {
	c.once.Do(func() {
		var server sharding.Incarnation
		if _, c.err = io.ReadFull(c.Conn, server[:]); c.err == nil && server != c.layer.self {
			c.layer.logger.Debug("a raft connection is meant for another server: it is closed", "peer", c.RemoteAddr(), "for", server)
			c.err = io.EOF
			_ = c.Close() // raft closes it too
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(b)
}
