package httpapi

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

func (s *Server) healthz(c *call) error {
	c.bytes(http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
	return nil
}

func (s *Server) readyz(c *call) error {
	v := s.node.Ready()
	if v.Conditions == nil {
		v.Conditions = []Condition{}
	}
	if !v.Ready {
		return c.json(http.StatusServiceUnavailable, v)
	}
	return c.json(http.StatusOK, v)
}

func (s *Server) metrics(c *call) error {
	promhttp.HandlerFor(prometheus.Gatherers{s.node.Metrics(), s.registry}, promhttp.HandlerOpts{}).ServeHTTP(c.w, c.r)
	return nil
}

func (s *Server) openapi(c *call) error {
	c.bytes(http.StatusOK, "application/json", s.description)
	return nil
}

func (s *Server) members(c *call) error {
	v, err := s.node.Members(c.r.Context())
	if err != nil {
		return err
	}
	v.Members = orEmpty(v.Members)
	for i := range v.Members {
		v.Members[i].Roles = orEmpty(v.Members[i].Roles)
	}
	return c.json(http.StatusOK, v)
}

func (s *Server) leader(c *call) error {
	v, ok := s.node.Leader()
	if !ok {
		return &Problem{Kind: KindUnavailable, Detail: "there is no leader now", Hint: "an election takes seconds; where it lasts, most of the voters are away"}
	}
	return c.json(http.StatusOK, v)
}

func (s *Server) shards(c *call) error {
	t, err := s.oneType(sharding.TypeName(c.query.Get("type")))
	if err != nil {
		return err
	}
	v, err := s.node.Shards(c.r.Context(), t)
	if err != nil {
		return err
	}
	v.Shards, v.Regions = orEmpty(v.Shards), orEmpty(v.Regions)
	return c.json(http.StatusOK, v)
}

func (s *Server) explain(c *call) error {
	t, n, err := s.shardOf(c.params)
	if err != nil {
		return err
	}
	v, err := s.node.Explain(c.r.Context(), t, n)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, v)
}

func (s *Server) moveShard(c *call) error {
	t, n, err := s.shardOf(c.params)
	if err != nil {
		return err
	}
	to := sharding.NodeID(c.query.Get("node"))
	if v, err := s.node.Explain(c.r.Context(), t, n); err == nil && v.Node == to && v.State == protocol.Homed.String() {
		return c.json(http.StatusOK, v) // there is nothing to do
	}
	return c.done(http.StatusAccepted, s.node.MoveShard(c.r.Context(), t, n, to))
}

func (s *Server) pinShard(c *call) error {
	t, n, err := s.shardOf(c.params)
	if err != nil {
		return err
	}
	return c.done(http.StatusNoContent, s.node.PinShard(c.r.Context(), t, n, sharding.NodeID(c.query.Get("node"))))
}

func (s *Server) strategies(c *call) error {
	v, err := s.node.Strategies(c.r.Context())
	if err != nil {
		return err
	}
	v.Strategies = orEmpty(v.Strategies)
	return c.json(http.StatusOK, v)
}

func (s *Server) deadLetters(c *call) error {
	v := s.node.DeadLetters()
	v.Letters = orEmpty(v.Letters)
	return c.json(http.StatusOK, v)
}

func (s *Server) drain(c *call) error {
	on := c.query.Get("on") != "false"
	return c.done(http.StatusAccepted, s.node.Drain(c.r.Context(), sharding.NodeID(c.query.Get("node")), on))
}

func (s *Server) leave(c *call) error {
	return c.done(http.StatusAccepted, s.node.Leave(c.r.Context()))
}

func (s *Server) forget(c *call) error {
	return c.done(http.StatusNoContent, s.node.Forget(c.r.Context(), sharding.NodeID(c.query.Get("node"))))
}

func (s *Server) pause(c *call) error {
	return c.done(http.StatusNoContent, s.node.Pause(c.r.Context(), true))
}

func (s *Server) resume(c *call) error {
	return c.done(http.StatusNoContent, s.node.Pause(c.r.Context(), false))
}

// done answers a request that has no result.
func (c *call) done(status int, err error) error {
	if err != nil {
		return err
	}
	return c.empty(status)
}

// oneType checks a type's name; the empty one means the only type there is.
func (s *Server) oneType(t sharding.TypeName) (sharding.TypeName, error) {
	types := s.node.Types()
	if t == "" && len(types) == 1 {
		return types[0], nil
	}
	if t == "" && len(types) > 1 {
		return "", &Problem{Kind: KindBadRequest, Detail: "there is more than one type", Hint: "name one: ?type=" + string(types[0]), Known: names(types)}
	}
	for _, known := range types {
		if known == t {
			return t, nil
		}
	}
	return "", &Problem{Kind: KindUnknownType, Detail: "no node hosts a type " + quote(string(t)), Hint: typesHint(types), Known: names(types)}
}

func typesHint(types []sharding.TypeName) string {
	if len(types) == 0 {
		return "add a [[type]] to node.toml and start the node again"
	}
	return "use one that there is, or add a [[type]] to node.toml"
}

func (s *Server) shardOf(ps params) (sharding.TypeName, sharding.ShardID, error) {
	t, err := s.oneType(sharding.TypeName(ps[0]))
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(ps[1], 10, 32)
	if err != nil {
		return "", 0, &Problem{Kind: KindBadRequest, Detail: quote(ps[1]) + " is no shard: want its number, from 0"}
	}
	return t, sharding.ShardID(n), nil
}

func names(types []sharding.TypeName) []string {
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = string(t)
	}
	return out
}

// orEmpty makes JSON say [] and not null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
