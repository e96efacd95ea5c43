package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// access says who may use a route.
type access uint8

const (
	public access = iota // everybody: probes have no token
	read                 // either token
	admin                // the admin token
)

func (a access) String() string {
	switch a {
	case public:
		return "public"
	case read:
		return "read"
	case admin:
		return "admin"
	}
	return "unknown"
}

// route is one row of the API. The router, the authorization and /openapi.json all follow it.
type route struct {
	method  string
	pattern string // segments; {x} takes any one segment, unescaped
	access  access
	summary string
	query   []param
	headers []param
	body    []media // what the request may carry; nil: nothing
	// mayLackBody: it need not carry one of them.
	mayLackBody bool
	status      int    // of success
	reply       any    // a value of the reply's type; nil: no body; string: text
	also        []int  // other statuses with the same body
	inPlace     any    // the reply of 200 where there is nothing to do and status is another
	problems    []Kind // besides those that every route has
	ownTime     bool   // the handler bounds its time; others have defaultTimeout
	handle      func(*Server, *call) error
}

// param is a query parameter or a header.
type param struct {
	name, doc string
	required  bool
	oneOf     []string
}

// media is one form of a request body.
type media struct {
	contentType string
	of          any // nil: any JSON, or bytes
	doc         string
}

var (
	typeParam    = param{name: "type", doc: "sharded type; may be left out where there is one"}
	timeoutParam = param{name: "timeout", doc: "how long to wait for the answer, such as 500ms or 2m; default 30s, 1ms to 5m"}
	keyHeader    = param{name: "Idempotency-Key", doc: "1 to 255 characters of printable ASCII. The same key names the same command: a retry of one that an entity has done is answered with the first answer and not done again, while the entity is in memory and among its latest 64 commands"}
	anyJSON      = []media{{"application/json", nil, "one JSON value, whatever the content type says"}}
	operating    = []Kind{KindUnknownNode, KindConflict, KindUnavailable, KindUnknownOutcome, KindNotYet}
	changing     = []Kind{KindUnknownType, KindUnknownModule, KindRefusedStrategy, KindConflict, KindUnavailable, KindUnknownOutcome}
)

// routes is the API. It is not changed after start.
var routes = []route{
	{method: http.MethodGet, pattern: "/healthz", access: public, summary: "The process is up", status: 200, reply: "ok", handle: (*Server).healthz},
	{method: http.MethodGet, pattern: "/readyz", access: public, summary: "The node serves its role; 503 until then, with each condition",
		status: 200, reply: ReadyView{}, also: []int{503}, handle: (*Server).readyz},
	{method: http.MethodGet, pattern: "/metrics", access: read, summary: "Prometheus metrics of this node", status: 200, reply: "text", handle: (*Server).metrics},
	{method: http.MethodGet, pattern: "/openapi.json", access: public, summary: "This description", status: 200, reply: map[string]any{}, handle: (*Server).openapi},

	{method: http.MethodGet, pattern: "/cluster/members", access: read, summary: "The nodes of the cluster", status: 200, reply: MembersView{},
		problems: []Kind{KindUnavailable, KindLeft}, handle: (*Server).members},
	{method: http.MethodGet, pattern: "/cluster/leader", access: read, summary: "The node that coordinates", status: 200, reply: LeaderView{},
		problems: []Kind{KindUnavailable}, handle: (*Server).leader},
	{method: http.MethodGet, pattern: "/cluster/shards", access: read, summary: "The shards of a type that have a home, cluster-wide", query: []param{typeParam},
		status: 200, reply: ShardsView{}, problems: []Kind{KindUnknownType, KindUnavailable, KindLeft}, handle: (*Server).shards},
	{method: http.MethodGet, pattern: "/cluster/shards/{type}/{shard}/explain", access: read, summary: "Why a shard is where it is",
		status: 200, reply: ExplainView{}, problems: []Kind{KindUnknownType, KindUnknownShard, KindUnavailable, KindLeft, KindNotYet}, handle: (*Server).explain},
	{method: http.MethodPost, pattern: "/cluster/shards/{type}/{shard}/move", access: admin, summary: "Hand a shard to a node, whatever the strategy thinks; 200 and why it is there where it is there already",
		query: []param{{name: "node", doc: "where to", required: true}}, status: 202, inPlace: ExplainView{},
		problems: append([]Kind{KindUnknownType, KindUnknownShard}, operating...), handle: (*Server).moveShard},
	{method: http.MethodPost, pattern: "/cluster/shards/{type}/{shard}/pin", access: admin, summary: "Keep a shard on a node; without a node, lift the pin",
		query: []param{{name: "node", doc: "where the shard stays; left out: the pin is lifted"}}, status: 204, problems: append([]Kind{KindUnknownType, KindUnknownShard}, operating...), handle: (*Server).pinShard},
	{method: http.MethodGet, pattern: "/cluster/strategies", access: read, summary: "The strategies, their fuel, time and failures", status: 200, reply: StrategiesView{},
		problems: []Kind{KindUnavailable, KindLeft}, handle: (*Server).strategies},
	{method: http.MethodPut, pattern: "/cluster/strategies/{type}", access: admin, summary: "Replace the strategy of a type while it runs; a step that fails leaves the old one",
		query: []param{
			{name: "shadow", doc: "1: run it beside the active one, without effect ; configuration and limits that are not given are those of the active one", oneOf: []string{"0", "1"}},
			{name: "source", doc: "where the module is from, for people: builtin:NAME or a file name"},
		},
		body: []media{
			{"application/wasm", nil, "the module, at most 8 MiB; configuration and limits stay"},
			{"application/json", SwapBody{}, "what to change; what is left out stays"},
		},
		status: 200, reply: SwapView{},
		problems: []Kind{KindTooLarge, KindUnknownType, KindUnknownModule, KindRefusedStrategy, KindConflict, KindUnavailable, KindUnknownOutcome}, ownTime: true, handle: (*Server).swap},
	{method: http.MethodPost, pattern: "/cluster/strategies/{type}/promote", access: admin, summary: "Activate the shadow of a type",
		body: []media{{"application/json", ChangeBody{}, "digest, where given, is that of the shadow: another one is not promoted"}}, mayLackBody: true,
		status: 200, reply: StrategyView{}, problems: changing, ownTime: true, handle: (*Server).promote},
	{method: http.MethodPost, pattern: "/cluster/strategies/{type}/rollback", access: admin, summary: "Go back to the strategy that worked before",
		body: []media{{"application/json", ChangeBody{}, "digest, where given, is that of the active strategy: from another one it does not go back"}}, mayLackBody: true,
		status: 200, reply: StrategyView{}, problems: changing, ownTime: true, handle: (*Server).rollback},
	{method: http.MethodDelete, pattern: "/cluster/strategies/{type}/shadow", access: admin, summary: "End the shadow of a type",
		status: 200, reply: StrategyView{}, problems: []Kind{KindUnknownType, KindConflict, KindUnavailable, KindUnknownOutcome}, handle: (*Server).endShadow},
	{method: http.MethodGet, pattern: "/cluster/dead-letters", access: read, summary: "Messages that reached no entity, of this node", status: 200, reply: DeadLettersView{}, handle: (*Server).deadLetters},
	{method: http.MethodPost, pattern: "/cluster/drain", access: admin, summary: "Hand the shards of a node to the others; it gets no new ones",
		query: []param{{name: "node", doc: "default: this node"}, {name: "on", doc: "false ends the drain", oneOf: []string{"true", "false"}}}, status: 202, problems: operating, handle: (*Server).drain},
	{method: http.MethodPost, pattern: "/cluster/leave", access: admin, summary: "Drain this node, take it out of the cluster and end it", status: 202, problems: operating, handle: (*Server).leave},
	{method: http.MethodPost, pattern: "/cluster/forget", access: admin, summary: "Take a dead node out of the cluster",
		query: []param{{name: "node", doc: "the dead node", required: true}}, status: 204, problems: operating, handle: (*Server).forget},
	{method: http.MethodPost, pattern: "/cluster/pause", access: admin, summary: "Stop all rebalancing", status: 204, problems: operating, handle: (*Server).pause},
	{method: http.MethodPost, pattern: "/cluster/resume", access: admin, summary: "Let rebalancing go on", status: 204, problems: operating, handle: (*Server).resume},

	{method: http.MethodPost, pattern: "/entities/{type}/{id}", access: admin,
		summary: "Send a message to an entity and wait for its answer; with mode=tell, send it and forget it (202). The id is one escaped segment: %2F is a slash in an id",
		query:   []param{{name: "mode", doc: "default ask", oneOf: []string{"ask", "tell"}}, timeoutParam}, headers: []param{keyHeader},
		body: anyJSON, status: 200, reply: nil, also: []int{202}, ownTime: true,
		problems: []Kind{KindBadEntityID, KindBadMessage, KindTooLarge, KindUnknownType, KindEntityError, KindUnavailable, KindUnknownOutcome}, handle: (*Server).entity},
}

// patterns are the segments of each route's pattern, so that they are taken apart once.
var patterns = func() [][]string {
	out := make([][]string, len(routes))
	for i := range routes {
		out[i] = strings.Split(routes[i].pattern[1:], "/")
	}
	return out
}()

// params are the values of a pattern's {x}, unescaped, in order.
type params []string

// match finds the route of a method and an escaped path. Paths are never cleaned: "..", "." and empty segments are segments like any
// other, and %2F is a character of one.
func match(method, escaped string) (*route, params, error) {
	segments, err := split(escaped)
	if err != nil {
		return nil, nil, err
	}
	var allow []string
	for i := range routes {
		r := &routes[i]
		ps, ok := bind(patterns[i], segments)
		if !ok {
			continue
		}
		if r.method == method || r.method == http.MethodGet && method == http.MethodHead {
			return r, ps, nil
		}
		allow = append(allow, r.method)
		if r.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	if len(allow) > 0 {
		list := strings.Join(allow, ", ")
		return nil, nil, &Problem{Kind: KindMethodNotAllowed, Detail: "this path takes " + list + ", not " + quote(method), allow: list}
	}
	if segments[0] == "entities" {
		return nil, nil, &Problem{Kind: KindBadEntityID, Detail: "the path is not /entities/{type}/{id}",
			Hint: "the id is one segment: write a slash in it as %2F, an empty one does not exist"}
	}
	return nil, nil, &Problem{Kind: KindNotFound, Detail: "there is no " + quote(escaped)}
}

// split takes an escaped path apart. There is at least one segment.
func split(escaped string) ([]string, error) {
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return nil, &Problem{Kind: KindNotFound, Detail: "there is no " + quote(escaped)}
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		u, err := url.PathUnescape(s)
		if err != nil {
			return nil, &Problem{Kind: KindBadRequest, Detail: "the path has a bad escape: " + err.Error(), Hint: "write a percent sign as %25"}
		}
		segments[i] = u
	}
	return segments, nil
}

// bind gives the values of a pattern's {x} where the segments fit it.
func bind(pattern, segments []string) (params, bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	var ps params
	for i, part := range pattern {
		switch {
		case part != "" && part[0] == '{':
			ps = append(ps, segments[i])
		case part != segments[i]:
			return nil, false
		}
	}
	return ps, true
}

// checkQuery refuses what the route does not know: a misspelt parameter would silently do something else.
func (r *route) checkQuery(raw string) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &Problem{Kind: KindBadRequest, Detail: "the query does not parse: " + err.Error()}
	}
	known := make([]string, 0, len(r.query))
	for _, p := range r.query {
		known = append(known, p.name)
		v, given := q[p.name]
		switch {
		case len(v) > 1:
			return nil, &Problem{Kind: KindBadRequest, Detail: "parameter " + p.name + " is there more than once"}
		case p.required && (!given || v[0] == ""):
			return nil, &Problem{Kind: KindBadRequest, Detail: "parameter " + p.name + " is missing: " + p.doc, Hint: "add ?" + p.name + "=…"}
		case given && p.oneOf != nil && !slices.Contains(p.oneOf, v[0]):
			return nil, &Problem{Kind: KindBadRequest, Detail: "parameter " + p.name + " is " + quote(v[0]) + ": want " + strings.Join(p.oneOf, " or ")}
		}
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, &Problem{Kind: KindBadRequest, Detail: "parameter " + quote(name) + " is not known here", Known: known}
		}
	}
	return q, nil
}
