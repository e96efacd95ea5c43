package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
	"github.com/droverhq/drover/sharding"
)

// TestNodeErrors: each way in which a node can fail has its answer, whatever the route (spec 2.3, 5.4).
func TestNodeErrors(t *testing.T) {
	for _, tc := range []struct {
		err    error
		kind   httpapi.Kind
		status int
		says   string
	}{
		{&sharding.EntityError{Text: "9 + 1 overflows"}, httpapi.KindEntityError, 422, "9 + 1 overflows"},
		{fmt.Errorf("ask: %w", &sharding.EntityError{Text: "no"}), httpapi.KindEntityError, 422, "no"},
		{fmt.Errorf("%w: counter", sharding.ErrNoType), httpapi.KindUnknownType, 404, "counter"},
		{fmt.Errorf("%w: field x", sharding.ErrBadMessage), httpapi.KindBadMessage, 400, "field x"},
		{fmt.Errorf("%w: the buffer is full", sharding.ErrUnavailable), httpapi.KindUnavailable, 503, "buffer is full"},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), httpapi.KindUnknownOutcome, 504, ""},
		{context.Canceled, httpapi.KindUnknownOutcome, 504, ""},
		{&httpapi.Problem{Kind: httpapi.KindUnknownNode, Detail: "no node x", Known: []string{"a"}}, httpapi.KindUnknownNode, 404, "no node x"},
		{&httpapi.Problem{Kind: httpapi.KindLeft, Detail: "left"}, httpapi.KindLeft, 503, "left"},
		{&httpapi.Problem{Kind: httpapi.KindNotYet, Detail: "shadow comes later"}, httpapi.KindNotYet, 501, "later"},
		{fmt.Errorf("swap: %w", &httpapi.Problem{Kind: httpapi.KindConflict, Detail: "another swap"}), httpapi.KindConflict, 409, "another swap"},
		{&httpapi.Problem{Kind: "made-up", Detail: "secret-4711"}, httpapi.KindInternal, 500, "did not foresee"},
		{errors.New("open /var/lib/secret-4711: input/output error"), httpapi.KindInternal, 500, "did not foresee"},
	} {
		for _, target := range []string{"POST /entities/counter/a", "POST /entities/counter/a?mode=tell", "GET /cluster/members", "GET /cluster/shards", "GET /cluster/strategies",
			"GET /cluster/shards/counter/1/explain", "POST /cluster/drain", "POST /cluster/leave", "POST /cluster/forget?node=b", "POST /cluster/pause",
			"POST /cluster/shards/counter/1/move?node=b", "POST /cluster/shards/counter/1/pin", "PUT /cluster/strategies/counter"} {
			method, path, _ := strings.Cut(target, " ")
			body := ""
			switch {
			case strings.HasPrefix(path, "/entities/"):
				body = "{}"
			case method == "PUT":
				body = "\x00asm"
			}
			w := send(open(t, &httpapitest.Node{Err: tc.err}), method, path, body)
			assert.Equal(t, tc.status, w.Code, "%s: %v", target, tc.err)
			p := problem(t, w)
			assert.Equal(t, tc.kind, kindOf(p), "%s: %v", target, tc.err)
			assert.NotContains(t, w.Body.String(), "4711", "an error that nobody foresaw says nothing (spec 5.2)")
			assert.Equal(t, tc.kind == httpapi.KindUnavailable, w.Header().Get("Retry-After") != "", target)
			assert.Contains(t, p.Detail, tc.says, target)
		}
	}
}

// TestEveryProblemNamesTheNextStep: of its own, or that of its kind (spec 5.3). Only an entity's own words stand alone.
func TestEveryProblemNamesTheNextStep(t *testing.T) {
	for _, k := range httpapi.Kinds() {
		p := problem(t, send(open(t, &httpapitest.Node{Err: &httpapi.Problem{Kind: k, Detail: "x"}}), "POST", "/cluster/pause", ""))
		assert.Equal(t, k == httpapi.KindEntityError, p.Hint == "", k)
		p = problem(t, send(open(t, &httpapitest.Node{Err: &httpapi.Problem{Kind: k, Detail: "x", Hint: "y"}}), "POST", "/cluster/pause", ""))
		assert.Equal(t, "y", p.Hint, k)
	}
}

// TestNoLeader is an answer, not a fault.
// A refusal is not larger than it has to be, however large what is refused: only an entity's own words are sent whole.
func TestProblemsDoNotRepeatWholeBodies(t *testing.T) {
	large := strings.Repeat("é", 100_000)
	for _, tc := range []struct{ method, target, body string }{
		{"POST", "/entities/counter/a", `{"` + large + `":1}`},
		{"POST", "/entities/counter/a", `{"add":` + strings.Repeat("9", 200_000) + `}`},
		{"PUT", "/cluster/strategies/counter", `{"` + large + `":1}`},
		{"PUT", "/cluster/strategies/counter", `{"digest":"` + large + `"}`},
		{"PUT", "/cluster/strategies/counter", `{"limits":{"budget":"` + large + `"}}`},
	} {
		w := send(open(t, &httpapitest.Node{}), tc.method, tc.target, tc.body)
		assert.Equal(t, 400, w.Code, tc.target)
		assert.Less(t, w.Body.Len(), 8192, tc.target)
		assert.True(t, utf8.ValidString(problem(t, w).Detail), tc.target)
	}
	text := strings.Repeat("x", 10_000)
	w := send(open(t, &httpapitest.Node{Err: &sharding.EntityError{Text: text}}), "POST", "/entities/counter/a", `{"get":true}`)
	assert.Equal(t, text, problem(t, w).Detail)
}

func TestNoLeader(t *testing.T) {
	w := send(open(t, &httpapitest.Node{NoLeader: true}), "GET", "/cluster/leader", "")
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	assert.Equal(t, httpapi.KindUnavailable, kindOf(problem(t, w)))
}

func TestRetryAfterRoundsUp(t *testing.T) {
	w := send(open(t, &httpapitest.Node{Err: &httpapi.Problem{Kind: httpapi.KindUnavailable, Detail: "x", RetryAfter: 1500 * time.Millisecond}}), "POST", "/cluster/pause", "")
	assert.Equal(t, "2", w.Header().Get("Retry-After"))
}

// TestAskTimeout: an ask ends at its own time or at 30 s, as an unknown outcome (spec 2.3, 5.4).
func TestAskTimeout(t *testing.T) {
	for target, want := range map[string]time.Duration{"": 30 * time.Second, "?timeout=250ms": 250 * time.Millisecond, "?timeout=5m": 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := &httpapitest.Node{OnAsk: func(ctx context.Context, _ httpapi.Message) ([]byte, error) {
				<-ctx.Done()
				return nil, fmt.Errorf("ask: %w", ctx.Err())
			}}
			began := time.Now()
			w := send(open(t, n), "POST", "/entities/counter/a"+target, "{}")
			assert.Equal(t, want, time.Since(began))
			assert.Equal(t, 504, w.Code)
			p := problem(t, w)
			assert.Equal(t, httpapi.KindUnknownOutcome, kindOf(p))
			assert.Contains(t, p.Hint, "Idempotency-Key")
		})
	}
}

// stuck is a node that answers nothing.
type stuck struct{ *httpapitest.Node }

func (stuck) Members(ctx context.Context) (httpapi.MembersView, error) {
	<-ctx.Done()
	return httpapi.MembersView{}, ctx.Err()
}

// TestEveryRequestEnds: requests other than asks end after 30 s, or with their client.
func TestEveryRequestEnds(t *testing.T) {
	for gone, want := range map[time.Duration]time.Duration{time.Hour: 30 * time.Second, time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := httpapi.New(config.Default().HTTP, stuck{&httpapitest.Node{}}, "v1", slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), gone)
			defer cancel()
			w, began := httptest.NewRecorder(), time.Now()
			s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/cluster/members", nil))
			assert.Equal(t, want, time.Since(began))
			assert.Equal(t, httpapi.KindUnknownOutcome, kindOf(problem(t, w)))
		})
	}
}

// TestWrongReplies of a node are its fault, not the client's.
func TestWrongReplies(t *testing.T) {
	for _, reply := range []string{"", "\x01", "\x00abc", "\x07{}"} {
		n := &httpapitest.Node{OnAsk: func(context.Context, httpapi.Message) ([]byte, error) { return []byte(reply), nil }}
		w := send(open(t, n), "POST", "/entities/counter/a", "{}")
		assert.Equal(t, 500, w.Code, "%q", reply)
	}
}

// TestPanicStaysInside: the client gets a problem, the log the stack.
func TestPanicStaysInside(t *testing.T) {
	var log bytes.Buffer
	n := &httpapitest.Node{OnAsk: func(context.Context, httpapi.Message) ([]byte, error) { panic("secret-4711") }}
	s := httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.NewTextHandler(&log, nil)))
	w := send(s, "POST", "/entities/counter/a", "{}")
	assert.Equal(t, 500, w.Code)
	assert.Equal(t, httpapi.KindInternal, kindOf(problem(t, w)))
	assert.NotContains(t, w.Body.String(), "4711")
	assert.NotContains(t, w.Body.String(), ".go:")
	assert.Contains(t, log.String(), "secret-4711")
	assert.Contains(t, log.String(), "stack=")
	assert.Equal(t, 200, send(s, "GET", "/healthz", "").Code)
}

// TestProblemsAreDocumented holds docs/http.md against the kinds: each has a row with its status, and there is no other.
func TestProblemsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `urn:drover:problem:([a-z-]+)` \\| (\\d+) \\| .+ \\|$").FindAllStringSubmatch(string(doc), -1) {
		documented = append(documented, m[1]+" "+m[2])
	}
	var want []string
	for _, k := range httpapi.Kinds() {
		want = append(want, fmt.Sprintf("%s %d", k, k.Status()))
	}
	slices.Sort(documented)
	assert.Equal(t, want, documented)
	for _, r := range httpapi.Routes() {
		assert.Contains(t, string(doc), "| `"+r+"` |", "add the route to the table in docs/http.md")
	}
}

// A type that is known, of which no host is left, is not said to be among those that there are; what a counter takes is no word of HTTP, which knows no
// entity (spec 5.3).
func TestHintsFitTheType(t *testing.T) {
	n := &httpapitest.Node{Known: []sharding.TypeName{"account", "counter"}, Err: fmt.Errorf("%w: account", sharding.ErrNoType)}
	for _, target := range []string{"/entities/account/a", "/entities/account/a?mode=tell"} {
		p := problem(t, send(open(t, n), "POST", target, "{}"))
		assert.Equal(t, `no node that is in the cluster now hosts type "account": those that did are gone`, p.Detail)
		assert.Empty(t, p.Known)
	}
	p := problem(t, send(open(t, n), "POST", "/entities/acount/a", "{}"))
	assert.Equal(t, []string{"account", "counter"}, p.Known)
	n.Err = sharding.ErrBadMessage
	assert.NotContains(t, problem(t, send(open(t, n), "POST", "/entities/account/a", "{}")).Hint, "counter")
	assert.NotContains(t, problem(t, send(open(t, n), "POST", "/entities/account/a", "")).Hint, "get")
}

// A body that nobody reads is refused, before anything is done (spec 5.3).
func TestBodyThatNobodyReads(t *testing.T) {
	n := &httpapitest.Node{}
	for _, target := range []string{"/cluster/drain", "/cluster/pause", "/cluster/leave", "/cluster/shards/counter/1/pin?node=b"} {
		w := send(open(t, n), "POST", target, `{"node":"b"}`)
		assert.Equal(t, 400, w.Code, target)
		assert.Equal(t, "this request takes no body", problem(t, w).Detail, target)
		assert.Empty(t, n.Calls(), target)
	}
	assert.Equal(t, 202, send(open(t, n), "POST", "/cluster/drain?node=b", "").Code)
}

// Who moves a shard to where it is learns that, and nothing is asked of the coordinator; a move that is under way is none of those.
func TestMoveToWhereItIs(t *testing.T) {
	n := &httpapitest.Node{}
	w := send(open(t, n), "POST", "/cluster/shards/counter/1/move?node=a", "")
	assert.Equal(t, 200, w.Code)
	assert.Contains(t, w.Body.String(), `"state":"homed"`)
	assert.Empty(t, n.Calls())
	assert.Equal(t, 202, send(open(t, n), "POST", "/cluster/shards/counter/1/move?node=b", "").Code)
	assert.Equal(t, []string{"move counter 1 b"}, n.Calls())
}
