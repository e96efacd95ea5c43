// Package client talks to a node's HTTP API, for the command line. It owns addresses, tokens and the decoding of problems; what the
// answers mean is internal/httpapi's.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/droverhq/drover/internal/httpapi"
)

// DefaultAddress is where the shipped node.toml listens.
const DefaultAddress = "http://127.0.0.1:8080"

// maxAnswer bounds what is read of an answer: a million shards.
const maxAnswer = 512 << 20

// Client sends requests to one node.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// New makes a client. The address is host:port or an http or https URL; the token may be empty.
func New(address, token string) (*Client, error) {
	text := address
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	if strings.Contains(address, "@") { // no host has one: it ends a user and a password, which are not for showing
		return nil, errors.New("the address has a user or password in it: a node knows tokens alone")
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address %q is neither host:port nor an http URL", address)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token holds spaces, line ends or other characters that no token has")
	}
	return &Client{base: strings.TrimRight(u.String(), "/"), token: token, http: &http.Client{
		// A redirect is never an answer of a node, and would take the token along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Address gives the base URL.
func (c *Client) Address() string { return c.base }

// Error is a problem that the node answered with.
type Error struct{ httpapi.Body }

// Error gives what is the matter here (the detail), then what kind of problem that is (the title), then one line a finding.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(Printable(cmp.Or(e.Detail, e.Title)))
	if len(e.Known) > 0 {
		b.WriteString("; there is " + Printable(strings.Join(e.Known, ", ")))
	}
	if e.Detail != "" {
		b.WriteString(" (" + Printable(e.Title) + ")")
	}
	for _, f := range e.Findings {
		b.WriteString("\n  " + Printable(f.Severity+": "+f.Rule+": "+f.Message))
		if f.Fix != "" {
			b.WriteString("\n    fix: " + Printable(f.Fix))
		}
	}
	return b.String()
}

// Kind is the problem's kind.
func (e *Error) Kind() httpapi.Kind {
	return httpapi.Kind(strings.TrimPrefix(e.Type, httpapi.Kind("").Type()))
}

// Hint gives the next step; it may be empty.
func (e *Error) Hint() string { return Printable(e.Body.Hint) }

// UnreachableError says that no node answered.
type UnreachableError struct {
	Address string
	Err     error
}

// Error names the address.
func (e *UnreachableError) Error() string {
	if errors.Is(e.Err, syscall.ECONNREFUSED) {
		return "no node listens at " + e.Address
	}
	cause := e.Err
	if u, ok := errors.AsType[*url.Error](cause); ok {
		cause = u.Err
	}
	return fmt.Sprintf("no answer from %s: %v", e.Address, cause)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint gives the next step.
func (e *UnreachableError) Hint() string {
	if _, ok := errors.AsType[*net.DNSError](e.Err); ok {
		return "check the name in --address or DROVER_ADDRESS"
	}
	if errors.Is(e.Err, context.DeadlineExceeded) {
		return "the node may be busy or stopped; what was asked for may have been done"
	}
	return "start a node with 'drover run', or name another one with --address or DROVER_ADDRESS"
}

// request is one request. The path is escaped.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
	header       http.Header
	timeout      time.Duration
}

// do sends a request and gives the body of a 2xx answer. Errors: *Error, *UnreachableError.
func (c *Client) do(ctx context.Context, r request) ([]byte, error) {
	if r.timeout == 0 {
		r.timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &UnreachableError{Address: c.base, Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &UnreachableError{Address: c.base, Err: err}
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return body, nil
	}
	contentType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p Error
	if contentType == "application/problem+json" && json.Unmarshal(body, &p.Body) == nil && p.Title != "" {
		return nil, &p
	}
	return nil, c.foreign(fmt.Sprintf("%s, %s", resp.Status, contentType))
}

func (c *Client) foreign(what string) error {
	return fmt.Errorf("%s does not answer like a node of Drover (%s)", c.base, Printable(what))
}

// get decodes the answer of a GET.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (v T, err error) {
	body, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return v, err
	}
	return decode[T](c, body)
}

func decode[T any](c *Client, body []byte) (v T, err error) {
	if err := json.Unmarshal(body, &v); err != nil {
		return v, c.foreign(err.Error())
	}
	return v, nil
}

// Printable keeps control characters of others out of a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\ufffd'
	}, s)
}
