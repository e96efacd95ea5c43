package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	grpcService = "drover.Transport"
	framesPath  = "/" + grpcService + "/Frames"
	callPath    = "/" + grpcService + "/Call"

	streamWindow  = 1 << 20
	ioBuffer      = 64 << 10
	callsAtOnce   = 64               // on one connection; see callsOfNode
	maxHeaders    = 16 << 10         // bytes of a request's; grpc allows a thousand times as many
	pingAfter     = 10 * time.Second // of silence; grpc allows no less
	pingTimeout   = 5 * time.Second
	callsOverhead = 64 << 10 // of a call beyond its body
)

// grpcCarrier carries by google.golang.org/grpc: bidirectional streams for frames (one direction of each is used, because each
// direction has a connection of its own) and unary calls.
type grpcCarrier struct {
	server server
	grpc   *grpc.Server
	lis    *connListener
	served chan struct{}
}

func newGRPCCarrier(s server, addr net.Addr, timeout time.Duration) *grpcCarrier {
	g := &grpcCarrier{server: s, lis: newConnListener(addr), served: make(chan struct{})}
	g.grpc = grpc.NewServer(
		grpc.Creds(handedOver{}),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(MaxCall+callsOverhead),
		grpc.MaxSendMsgSize(MaxCall+callsOverhead),
		grpc.MaxConcurrentStreams(callsAtOnce),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(streamWindow),
		grpc.ReadBufferSize(ioBuffer),
		grpc.WriteBufferSize(ioBuffer),
		grpc.ConnectionTimeout(timeout),
		grpc.WaitForHandlers(true),
		experimental.BufferPool(receivePool{}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
	)
	g.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpcService,
		Streams:     []grpc.StreamDesc{{StreamName: "Frames", Handler: g.frames, ServerStreams: true, ClientStreams: true}},
		Methods:     []grpc.MethodDesc{{MethodName: "Call", Handler: g.call}},
	}, nil)
	go func() {
		defer close(g.served)
		_ = g.grpc.Serve(g.lis) // ends by stop alone: the listener has no other error
	}()
	return g
}

func (g *grpcCarrier) accept(c *conn) { g.lis.push(c) }

func (g *grpcCarrier) stop() {
	g.grpc.Stop()
	<-g.served
	for { // connections that were never accepted
		select {
		case c := <-g.lis.ch:
			c.Close()
		default:
			return
		}
	}
}

// handedOver are credentials for connections whose handshake is done.
type handedOver struct{}

type connInfo struct {
	credentials.CommonAuthInfo
	conn *conn
}

func (connInfo) AuthType() string { return "drover" }

func (handedOver) handshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*conn)
	if !ok {
		return nil, nil, errors.New("this connection has had no handshake")
	}
	info := connInfo{conn: c}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return c, info, nil
}

func (h handedOver) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return h.handshake(raw)
}
func (h handedOver) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return h.handshake(raw)
}
func (handedOver) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "drover"}
}
func (h handedOver) Clone() credentials.TransportCredentials { return h }
func (handedOver) OverrideServerName(string) error           { return nil }

func connOf(ctx context.Context) (*conn, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(connInfo); ok {
			return info.conn, nil
		}
	}
	return nil, status.Error(codes.Unauthenticated, "this connection has had no handshake")
}

// rawCodec moves bytes as they are. It sends *batch and mem.BufferSlice, and receives into *received.
type rawCodec struct{}

type received struct{ data mem.BufferSlice }

// batchBuffers takes batches back once grpc has written them, which is after SendMsg has returned.
type batchBuffers struct{}

func (batchBuffers) Get(int) *[]byte { return newBatch(0).data }
func (batchBuffers) Put(b *[]byte)   { freeBatchData(b) }

// receivePool lends the buffers that messages arrive in. grpc's own pool clears each buffer that it lends, a tenth of the
// receiver's time in BenchmarkTell.
type receivePool struct{}

// receiveSizes fit an HTTP/2 frame and a whole batch with grpc's framing; what is larger is rare, and left to the collector.
var receiveSizes = [...]int{4 << 10, 16 << 10, 80 << 10}

var receivePools [len(receiveSizes)]sync.Pool

func (receivePool) Get(n int) *[]byte {
	for i, size := range receiveSizes {
		if n > size {
			continue
		}
		if b, ok := receivePools[i].Get().(*[]byte); ok {
			*b = (*b)[:n]
			return b
		}
		b := make([]byte, n, size)
		return &b
	}
	b := make([]byte, n)
	return &b
}

func (receivePool) Put(b *[]byte) {
	for i, size := range receiveSizes {
		if cap(*b) == size {
			receivePools[i].Put(b)
			return // another may have it by now
		}
	}
}

func (rawCodec) Name() string { return "drover" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *batch:
		return mem.BufferSlice{mem.NewBuffer(v.data, batchBuffers{})}, nil
	case mem.BufferSlice:
		return v, nil
	default:
		return nil, fmt.Errorf("cannot send a %T", v)
	}
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*received)
	if !ok {
		return fmt.Errorf("cannot receive into a %T", v)
	}
	data.Ref() // the caller frees it
	r.data = data
	return nil
}

// client makes a grpc client over one connection. It never connects anew: that is for the link.
func (g *grpcCarrier) client(c *conn) (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///"+grpcService,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection has ended")
			}
			return c, nil
		}),
		grpc.WithTransportCredentials(handedOver{}),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(streamWindow),
		grpc.WithReadBufferSize(ioBuffer),
		grpc.WithWriteBufferSize(ioBuffer),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{}),
			grpc.MaxCallRecvMsgSize(MaxCall+callsOverhead),
			grpc.MaxCallSendMsgSize(MaxCall+callsOverhead),
		),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
	)
}

type grpcOut struct {
	client *grpc.ClientConn
	stream grpc.ClientStream
	conn   *conn
	cancel context.CancelFunc
	ended  chan struct{}
	reason error // set before ended is closed
}

func (g *grpcCarrier) open(ctx context.Context, c *conn) (outStream, error) {
	client, err := g.client(c)
	if err != nil {
		return nil, err
	}
	streamCtx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel) // ctx bounds the opening alone
	fail := func(err error) (outStream, error) {
		stop()
		cancel()
		client.Close()
		c.Close()
		return nil, err
	}
	stream, err := client.NewStream(streamCtx, &grpc.StreamDesc{StreamName: "Frames", ServerStreams: true, ClientStreams: true}, framesPath)
	if err != nil {
		return fail(fmt.Errorf("open a stream: %w", err))
	}
	head, err := stream.Header()
	if err == nil && head == nil { // the peer has ended it already
		err = stream.RecvMsg(new(received))
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		return fail(fmt.Errorf("open a stream: %w", err))
	}
	o := &grpcOut{client: client, stream: stream, conn: c, cancel: cancel, ended: make(chan struct{})}
	go o.watch()
	return o, nil
}

// watch waits for the end of the stream: the peer sends nothing on it but its end.
func (o *grpcOut) watch() {
	defer close(o.ended)
	var r received
	err := o.stream.RecvMsg(&r)
	if err == nil {
		r.data.Free()
		err = errors.New("the peer sent on the wrong direction of a stream")
		o.conn.abort(err)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	o.reason = o.conn.why(err)
}

func (o *grpcOut) send(b *batch) error   { return o.stream.SendMsg(b) }
func (o *grpcOut) finish() error         { return o.stream.CloseSend() }
func (o *grpcOut) done() <-chan struct{} { return o.ended }
func (o *grpcOut) err() error            { return o.reason }

func (o *grpcOut) close() {
	o.cancel()
	o.client.Close()
	o.conn.Close()
	<-o.ended
}

type grpcIn struct {
	stream grpc.ServerStream
}

func (g *grpcCarrier) frames(_ any, stream grpc.ServerStream) error {
	c, err := connOf(stream.Context())
	if err != nil {
		return err
	}
	if !c.class.isStream() || c.claimed.Swap(true) {
		return status.Error(codes.FailedPrecondition, "a connection of class control or data carries one stream")
	}
	ready := func() error { return stream.SendHeader(metadata.MD{}) }
	return g.server.serveStream(c, ready, &grpcIn{stream: stream})
}

func (i *grpcIn) context() context.Context { return i.stream.Context() }

func (i *grpcIn) receive() ([]byte, func(), error) {
	var r received
	if err := i.stream.RecvMsg(&r); err != nil {
		return nil, nil, err
	}
	if len(r.data) == 1 {
		return r.data[0].ReadOnlyData(), r.data.Free, nil
	}
	whole := r.data.MaterializeToBuffer(receivePool{})
	r.data.Free()
	return whole.ReadOnlyData(), whole.Free, nil
}

// A request is the method's length (1 byte), the method and the body. An answer is an outcome (1 byte) and a body, or a text.
const (
	outcomeOK    = 0
	outcomeError = 1
)

func (g *grpcCarrier) call(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	c, err := connOf(ctx)
	if err != nil {
		return nil, err
	}
	if c.class != Call {
		return nil, status.Error(codes.FailedPrecondition, "this connection is not of class call")
	}
	select { // before the body is read
	case c.use.calls <- struct{}{}:
		defer func() { <-c.use.calls }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	var r received
	if err := decode(&r); err != nil {
		return nil, err
	}
	request := r.data.Materialize()
	r.data.Free()
	if len(request) == 0 || len(request) < 1+int(request[0]) {
		return nil, status.Error(codes.InvalidArgument, "malformed call")
	}
	body := request[1+int(request[0]):]
	answer, err := g.server.serveCall(ctx, c, string(request[1:1+int(request[0])]), body)
	if ended := ctx.Err(); err != nil && ended != nil { // an end, and no answer of the handler
		return nil, status.FromContextError(ended).Err()
	}
	if err == nil && len(answer) > MaxCall {
		err = fmt.Errorf("the answer has %d bytes, at most %d are allowed", len(answer), MaxCall)
	}
	if err != nil {
		return mem.BufferSlice{mem.SliceBuffer{outcomeError}, mem.SliceBuffer(err.Error())}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer{outcomeOK}, mem.SliceBuffer(answer)}, nil
}

type grpcCalls struct {
	client *grpc.ClientConn
	conn   *conn
}

func (g *grpcCarrier) calls(c *conn) (callClient, error) {
	client, err := g.client(c)
	if err != nil {
		return nil, err
	}
	return &grpcCalls{client: client, conn: c}, nil
}

func (g *grpcCalls) call(ctx context.Context, method string, body []byte) ([]byte, error) {
	head := append([]byte{byte(len(method))}, method...)
	var r received
	if err := g.client.Invoke(ctx, callPath, mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(body)}, &r); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if status.Code(err) == codes.DeadlineExceeded { // the peer's clock was a little faster
			return nil, context.DeadlineExceeded
		}
		return nil, g.conn.why(err)
	}
	defer r.data.Free()
	answer := r.data.Materialize()
	switch {
	case len(answer) == 0 || answer[0] > outcomeError:
		return nil, errors.New("malformed answer to a call")
	case answer[0] == outcomeError:
		return nil, &RemoteError{Member: g.conn.peer.Member, Message: string(answer[1:])}
	}
	return answer[1:], nil
}

func (g *grpcCalls) close() {
	g.client.Close()
	g.conn.Close()
}
