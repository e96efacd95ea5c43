package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

// Members lists the nodes.
func (c *Client) Members(ctx context.Context) (httpapi.MembersView, error) {
	return get[httpapi.MembersView](ctx, c, "/cluster/members", nil)
}

// Leader gives the node that coordinates.
func (c *Client) Leader(ctx context.Context) (httpapi.LeaderView, error) {
	return get[httpapi.LeaderView](ctx, c, "/cluster/leader", nil)
}

// Shards shows the shards of a type; an empty one means the only one there is.
func (c *Client) Shards(ctx context.Context, typ string) (httpapi.ShardsView, error) {
	query := url.Values{}
	if typ != "" {
		query.Set("type", typ)
	}
	return get[httpapi.ShardsView](ctx, c, "/cluster/shards", query)
}

// Explain says why a shard is where it is.
func (c *Client) Explain(ctx context.Context, typ string, shard sharding.ShardID) (httpapi.ExplainView, error) {
	return get[httpapi.ExplainView](ctx, c, shardPath(typ, shard, "explain"), nil)
}

// MoveShard hands a shard to a node; false: it is there already.
func (c *Client) MoveShard(ctx context.Context, typ string, shard sharding.ShardID, node string) (moves bool, err error) {
	body, err := c.do(ctx, request{method: http.MethodPost, path: shardPath(typ, shard, "move"), query: url.Values{"node": {node}}})
	return len(body) == 0, err // a move that is recorded has no answer but its status
}

// PinShard keeps a shard on a node; the empty node lifts the pin.
func (c *Client) PinShard(ctx context.Context, typ string, shard sharding.ShardID, node string) error {
	query := url.Values{}
	if node != "" {
		query.Set("node", node)
	}
	return c.post(ctx, shardPath(typ, shard, "pin"), query)
}

func shardPath(typ string, shard sharding.ShardID, what string) string {
	return fmt.Sprintf("/cluster/shards/%s/%d/%s", segment(typ), shard, what)
}

// Strategies lists the strategies.
func (c *Client) Strategies(ctx context.Context) (httpapi.StrategiesView, error) {
	return get[httpapi.StrategiesView](ctx, c, "/cluster/strategies", nil)
}

// Promote activates the shadow of a type; where digest is not empty, only that one.
func (c *Client) Promote(ctx context.Context, typ, digest string) (httpapi.StrategyView, error) {
	return c.change(ctx, typ, "promote", digest)
}

// Rollback goes back to the strategy that worked before; where from is not empty, only from that one.
func (c *Client) Rollback(ctx context.Context, typ, from string) (httpapi.StrategyView, error) {
	return c.change(ctx, typ, "rollback", from)
}

func (c *Client) change(ctx context.Context, typ, what, digest string) (httpapi.StrategyView, error) {
	r := request{method: http.MethodPost, path: "/cluster/strategies/" + segment(typ) + "/" + what, timeout: httpapi.SwapTimeout + 10*time.Second}
	if digest != "" {
		var err error
		if r.body, err = json.Marshal(httpapi.ChangeBody{Digest: digest}); err != nil {
			return httpapi.StrategyView{}, err
		}
		r.contentType = "application/json"
	}
	body, err := c.do(ctx, r)
	if err != nil {
		return httpapi.StrategyView{}, err
	}
	return decode[httpapi.StrategyView](c, body)
}

// EndShadow ends the shadow of a type.
func (c *Client) EndShadow(ctx context.Context, typ string) (httpapi.StrategyView, error) {
	body, err := c.do(ctx, request{method: http.MethodDelete, path: "/cluster/strategies/" + segment(typ) + "/shadow"})
	if err != nil {
		return httpapi.StrategyView{}, err
	}
	return decode[httpapi.StrategyView](c, body)
}

// Swap replaces a type's strategy; source is for people.
func (c *Client) Swap(ctx context.Context, typ, source string, shadow bool, b httpapi.SwapBody) (httpapi.SwapView, error) {
	r := request{method: http.MethodPut, path: "/cluster/strategies/" + segment(typ), query: url.Values{}, contentType: "application/json", timeout: httpapi.SwapTimeout + 10*time.Second}
	if source != "" {
		r.query.Set("source", source)
	}
	if shadow {
		r.query.Set("shadow", "1")
	}
	if b.Module != nil && b.Config == nil && b.Limits == nil {
		r.body, r.contentType = b.Module, "application/wasm"
	} else {
		var err error
		if r.body, err = json.Marshal(b); err != nil {
			return httpapi.SwapView{}, err
		}
	}
	body, err := c.do(ctx, r)
	if err != nil {
		return httpapi.SwapView{}, err
	}
	return decode[httpapi.SwapView](c, body)
}

// Drain begins (on) or ends a drain; the empty node is the one that answers.
func (c *Client) Drain(ctx context.Context, node string, on bool) error {
	query := url.Values{}
	if node != "" {
		query.Set("node", node)
	}
	if !on {
		query.Set("on", "false")
	}
	return c.post(ctx, "/cluster/drain", query)
}

// Leave takes the node that answers out of the cluster.
func (c *Client) Leave(ctx context.Context) error { return c.post(ctx, "/cluster/leave", nil) }

// Forget takes a dead node out of the cluster.
func (c *Client) Forget(ctx context.Context, node string) error {
	return c.post(ctx, "/cluster/forget", url.Values{"node": {node}})
}

// Pause stops all rebalancing, or lets it go on.
func (c *Client) Pause(ctx context.Context, on bool) error {
	if on {
		return c.post(ctx, "/cluster/pause", nil)
	}
	return c.post(ctx, "/cluster/resume", nil)
}

// Ask sends a message to an entity and gives its answer. Key may be empty.
func (c *Client) Ask(ctx context.Context, typ, id string, message []byte, key string, timeout time.Duration) (json.RawMessage, error) {
	// The node answers with a problem when its time is up; only a node that does not is given up here.
	r := c.message(typ, id, message, key)
	r.query, r.timeout = url.Values{"timeout": {timeout.String()}}, timeout+10*time.Second
	body, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return decode[json.RawMessage](c, body)
}

// Tell sends a message to an entity.
func (c *Client) Tell(ctx context.Context, typ, id string, message []byte, key string) error {
	r := c.message(typ, id, message, key)
	r.query = url.Values{"mode": {"tell"}}
	_, err := c.do(ctx, r)
	return err
}

func (c *Client) message(typ, id string, message []byte, key string) request {
	r := request{method: http.MethodPost, path: "/entities/" + segment(typ) + "/" + segment(id), body: message, contentType: "application/json"}
	if key != "" {
		r.header = http.Header{"Idempotency-Key": {key}}
	}
	return r
}

func (c *Client) post(ctx context.Context, path string, query url.Values) error {
	_, err := c.do(ctx, request{method: http.MethodPost, path: path, query: query})
	return err
}

// segment escapes a text into one segment of a path. Dots alone are escaped too: what lies between may clean paths.
func segment(s string) string {
	if strings.Trim(s, ".") == "" {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
