package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/droverhq/drover/internal/config"
)

// Times of a connection. The answer may be as late as the longest ask.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = time.Minute
	writeTimeout  = maxTimeout + time.Minute
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// Server serves the API of one node. It is an http.Handler too.
type Server struct {
	node        Node
	log         *slog.Logger
	guard       guard
	maxBody     int64
	description []byte // openapi.json
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	http        *http.Server
	end         context.CancelFunc // ends the contexts of all requests
	retiring    atomic.Bool
}

// New makes a server; it does not listen yet. The version is that of the software.
func New(c config.HTTP, node Node, version string, log *slog.Logger) *Server {
	base, end := context.WithCancel(context.Background())
	s := &Server{
		node: node, log: log, guard: newGuard(c), maxBody: int64(c.MaxBody), description: describe(version), end: end,
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "drover_http_requests_total", Help: "HTTP requests by route and status."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "drover_http_request_seconds", Help: "Time from the head of a request to the end of its answer, by route.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}}, []string{"route"}),
	}
	s.registry.MustRegister(s.requests, s.seconds)
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug), // broken connections and the like: the clients' affair
		DisableGeneralOptionsHandler: true,
	}
	return s
}

// ListenError says that http.address cannot be listened on.
type ListenError struct {
	Address string
	Err     error
}

// Error names the key, its value and what is wrong.
func (e *ListenError) Error() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("http.address = %q: the port is in use by another process", e.Address)
	}
	return fmt.Sprintf("http.address = %q: %v", e.Address, e.Err)
}

func (e *ListenError) Unwrap() error { return e.Err }

// Hint gives the next step.
func (e *ListenError) Hint() string {
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		return "end the other process, or choose another port: --set http.address=127.0.0.1:8081"
	case errors.Is(e.Err, syscall.EACCES):
		return "ports below 1024 need a privilege: choose a higher one"
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		return "name an address of this machine"
	}
	return "see http.address in docs/config.md"
}

// Listen opens the listener. The error is a *ListenError.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &ListenError{Address: address, Err: err}
	}
	return l, nil
}

// Serve answers until Shutdown, which makes it return nil at once; what is in flight then still ends.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

// Retire asks clients to go elsewhere while everything is still served: each answer closes its connection. A connection that Shutdown finds idle is
// closed under a request that may be on its way, whose client then cannot know whether it was done.
func (s *Server) Retire() { s.retiring.Store(true) }

// Shutdown takes no more requests and waits for those in flight. When ctx ends first, theirs are ended and the connections closed.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.end()
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("HTTP requests were still in flight: %w", err), s.http.Close())
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rec := &recorder{ResponseWriter: w}
	label := "none"
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.log.Error("an HTTP handler panicked", "route", label, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if rec.status == 0 {
				(&Problem{Kind: KindInternal, Detail: "the node met an error that it did not foresee"}).write(rec)
			}
		}
		s.requests.WithLabelValues(label, strconv.Itoa(rec.status)).Inc()
		s.seconds.WithLabelValues(label).Observe(time.Since(began).Seconds())
	}()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if s.retiring.Load() {
		w.Header().Set("Connection", "close")
	}

	route, ps, err := match(r.Method, writtenPath(r.URL))
	need := read // what is not there is no secret, and yet nobody's to probe
	if err == nil {
		label, need = route.method+" "+route.pattern, route.access
	}
	if p := s.guard.check(r, need); p != nil {
		p.write(rec)
		return
	}
	c := &call{w: rec, r: r, params: ps}
	if err == nil {
		c.query, err = route.checkQuery(r.URL.RawQuery)
	}
	if err == nil && route.body == nil {
		err = c.noBody()
	}
	if err == nil && !route.ownTime {
		ctx, cancel := context.WithTimeout(r.Context(), defaultTimeout)
		defer cancel()
		c.r = r.WithContext(ctx)
	}
	if err == nil {
		err = route.handle(s, c)
	}
	if err == nil {
		return
	}
	p := problemOf(err)
	if p.Kind == KindInternal {
		s.log.Error("an HTTP request failed", "route", label, "error", err)
	}
	if rec.status == 0 {
		p.write(rec)
	}
}

// writtenPath is the path as the client wrote it. EscapedPath alone would not do: where a path holds bytes that should have been escaped, it
// escapes the unescaped path anew, and a %2F becomes a slash.
func writtenPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// recorder notes the status of the answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
