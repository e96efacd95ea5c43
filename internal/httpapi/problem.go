package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover/sharding"
)

// Kind names an error for machines. It is the last part of a problem's type, and stable.
type Kind string

// The kinds.
const (
	KindBadRequest       Kind = "bad-request"        // the request itself: path, query, header, body
	KindBadEntityID      Kind = "bad-entity-id"      // empty, or longer than 1 024 bytes
	KindBadMessage       Kind = "bad-message"        // JSON, and no message of the entity
	KindUnauthorized     Kind = "unauthorized"       // no token, or an unknown one
	KindForbidden        Kind = "forbidden"          // the read token, for a change
	KindForeignOrigin    Kind = "foreign-origin"     // Host or Origin is not this node's
	KindNotFound         Kind = "not-found"          // no such path
	KindUnknownType      Kind = "unknown-type"       // no node hosts the type
	KindUnknownNode      Kind = "unknown-node"       //
	KindUnknownShard     Kind = "unknown-shard"      // its number is out of range
	KindUnknownModule    Kind = "unknown-module"     // no node has a module of that digest
	KindMethodNotAllowed Kind = "method-not-allowed" //
	KindConflict         Kind = "conflict"           // the state of the cluster forbids it now
	KindTooLarge         Kind = "too-large"          // body above http.max_body, or module above its limit
	KindEntityError      Kind = "entity-error"       // the entity answered with an error
	KindRefusedStrategy  Kind = "refused-strategy"   // with findings
	KindUnavailable      Kind = "unavailable"        // surely not done; try again
	KindLeft             Kind = "left"               // this node has left the cluster: its map is old
	KindUnknownOutcome   Kind = "unknown-outcome"    // timed out; it may have been done
	KindNotYet           Kind = "not-yet"            // a later version can
	KindInternal         Kind = "internal"           // a fault of this node, in its log
)

func (k Kind) String() string { return string(k) }

// typePrefix makes a problem type of a kind. An URN, because there is nothing to fetch: docs/http.md has the list.
const typePrefix = "urn:drover:problem:"

// Type is the problem's type, an URI.
func (k Kind) Type() string { return typePrefix + string(k) }

// kinds gives each kind its status and title, and the next step that is named where a problem names none of its own. What an entity answers is
// between it and whoever asked.
var kinds = map[Kind]struct {
	status int
	title  string
	hint   string
}{
	KindBadRequest:       {http.StatusBadRequest, "The request is not understood", "GET /openapi.json describes every request"},
	KindBadEntityID:      {http.StatusBadRequest, "The entity id is empty or too long", "an id has 1 to 1 024 bytes: use a hash of a longer one"},
	KindBadMessage:       {http.StatusBadRequest, "The entity does not know this message", "correct the message, or take another Idempotency-Key"},
	KindUnauthorized:     {http.StatusUnauthorized, "A token is needed", "send Authorization: Bearer …, with a token of http.tokens"},
	KindForbidden:        {http.StatusForbidden, "The token may only look", "use the admin token"},
	KindForeignOrigin:    {http.StatusForbidden, "The request comes from another site", "use http://127.0.0.1 or http://localhost, or set http.tokens.admin"},
	KindNotFound:         {http.StatusNotFound, "There is nothing here", "GET /openapi.json lists what there is"},
	KindUnknownType:      {http.StatusNotFound, "No node hosts this type", "use one that there is, or add a [[type]] to node.toml"},
	KindUnknownNode:      {http.StatusNotFound, "There is no such node", "drover cluster members and GET /cluster/members list the nodes"},
	KindUnknownShard:     {http.StatusNotFound, "There is no such shard", "drover cluster shards and GET /cluster/shards say how many there are; they are numbered from 0"},
	KindUnknownModule:    {http.StatusNotFound, "The cluster has no such module", "send the module itself"},
	KindMethodNotAllowed: {http.StatusMethodNotAllowed, "The method does not fit the path", "the header Allow lists those that do"},
	KindConflict:         {http.StatusConflict, "The state of the cluster does not allow it now", "look at the cluster and decide anew: drover cluster members, cluster shards, strategy list"},
	KindTooLarge:         {http.StatusRequestEntityTooLarge, "The body is too large", "send less: docs/http.md lists the limits"},
	KindEntityError:      {http.StatusUnprocessableEntity, "The entity answered with an error", ""},
	KindRefusedStrategy:  {http.StatusUnprocessableEntity, "The strategy is refused", "the old one goes on; drover strategy check says the same before it is sent"},
	KindUnavailable:      {http.StatusServiceUnavailable, "Not done; try again", "it was surely not done: send it again"},
	KindLeft:             {http.StatusServiceUnavailable, "This node has left the cluster", "ask another node"},
	KindUnknownOutcome:   {http.StatusGatewayTimeout, "No answer in time; it may have been done", "look first, or send it again with the same Idempotency-Key"},
	KindNotYet:           {http.StatusNotImplemented, "Not available yet", "leave it out: a later version can do it"},
	KindInternal:         {http.StatusInternalServerError, "A fault of this node", "its log has the cause"},
}

// Problem is an error for the client: an application/problem+json body (RFC 9457). A Node returns it to choose the answer.
type Problem struct {
	Kind   Kind
	Detail string // one sentence that names the thing; shown to the client, so nothing secret
	Hint   string // the next step to take; empty: that of the kind
	// Findings say why a module is refused.
	Findings []Finding
	// Known lists what there is, where the detail names what is not.
	Known []string
	// RetryAfter is sent where set; KindUnavailable has 1 s without it.
	RetryAfter time.Duration

	allow string // header of KindMethodNotAllowed
}

// Finding is one reason why a module is refused, or what is odd about one that is not, in the words of "drover strategy check".
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	Fix      string `json:"fix"`
	Offset   *int   `json:"offset"`
}

// Error gives kind and detail.
func (p *Problem) Error() string { return string(p.Kind) + ": " + p.Detail }

// Body is a problem as it is sent.
type Body struct {
	Type     string    `json:"type"`
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Detail   string    `json:"detail,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	Known    []string  `json:"known,omitempty"`
}

// problemOf turns any error into what the client is told. Only a *Problem chooses its own words; an error that nobody foresaw says nothing.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		if _, known := kinds[p.Kind]; known {
			return p
		}
	}
	if e, ok := errors.AsType[*sharding.EntityError](err); ok {
		return &Problem{Kind: KindEntityError, Detail: e.Text}
	}
	switch {
	case errors.Is(err, sharding.ErrNoType):
		return &Problem{Kind: KindUnknownType, Detail: err.Error()}
	case errors.Is(err, sharding.ErrEntityID):
		return &Problem{Kind: KindBadEntityID, Detail: err.Error()}
	case errors.Is(err, sharding.ErrBadMessage):
		return &Problem{Kind: KindBadMessage, Detail: err.Error()}
	case errors.Is(err, sharding.ErrUnavailable):
		return &Problem{Kind: KindUnavailable, Detail: err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Problem{Kind: KindUnknownOutcome, Detail: "no answer came within the request's time: it may have been done"}
	}
	return &Problem{Kind: KindInternal, Detail: "the node met an error that it did not foresee"}
}

// maxDetail is how many bytes of a detail are sent: it may repeat what the client sent, which may have megabytes.
const maxDetail = 2048

// detail gives the detail as it is sent. What an entity answered is left whole: it is no repetition.
func (p *Problem) detail() string {
	if len(p.Detail) <= maxDetail || p.Kind == KindEntityError {
		return p.Detail
	}
	return strings.ToValidUTF8(p.Detail[:maxDetail], "") + "…"
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	k := kinds[p.Kind]
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	after := p.RetryAfter
	if after == 0 && p.Kind == KindUnavailable {
		after = time.Second
	}
	if after > 0 {
		h.Set("Retry-After", strconv.FormatInt(max(1, int64((after+time.Second-1)/time.Second)), 10))
	}
	if p.Kind == KindUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="drover"`)
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	b, err := json.Marshal(Body{Type: p.Kind.Type(), Title: k.title, Status: k.status, Detail: p.detail(), Hint: cmp.Or(p.Hint, k.hint), Findings: p.Findings, Known: p.Known})
	if err != nil { // text, numbers and slices of them: cannot be
		b = []byte(`{}`)
	}
	w.WriteHeader(k.status)
	w.Write(append(b, '\n')) // the client may be gone
}
