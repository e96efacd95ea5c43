package transport

import "context"

// carrier moves batches and calls over connections that are past their handshake. It is all that knows grpc, so that plain
// TCP could take its place.
type carrier interface {
	// accept serves a connection that a peer dialled, in the background.
	accept(c *conn)
	// open starts the one stream of a connection that this node dialled. It returns once the peer has taken the stream.
	open(ctx context.Context, c *conn) (outStream, error)
	// calls makes a client for calls over a connection that this node dialled.
	calls(c *conn) (callClient, error)
	// stop ends everything and waits for the streams and calls that are being served.
	stop()
}

// outStream sends batches, from one goroutine.
type outStream interface {
	// send takes a batch over, and blocks while the peer reads slowly.
	send(b *batch) error
	// finish says that no batch follows: the peer ends the stream once it has handed over all of them.
	finish() error
	// done is closed when the stream has ended, for whatever reason; err tells which then. nil: the peer ended it after finish.
	done() <-chan struct{}
	err() error
	// close ends the stream and its connection at once.
	close()
}

// inStream receives batches, from one goroutine.
type inStream interface {
	context() context.Context
	// receive gives the next batch, valid until release, or io.EOF after the peer's finish.
	receive() (data []byte, release func(), err error)
}

type callClient interface {
	call(ctx context.Context, method string, body []byte) ([]byte, error)
	close()
}

// server is what a carrier hands things to.
type server interface {
	serveStream(c *conn, ready func() error, s inStream) error
	serveCall(ctx context.Context, c *conn, method string, body []byte) ([]byte, error)
}
