package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

const (
	defaultTimeout = 30 * time.Second
	minTimeout     = time.Millisecond
	maxTimeout     = 5 * time.Minute
	maxKey         = 255
)

// entity asks or tells an entity.
func (s *Server) entity(c *call) error {
	m := Message{Type: sharding.TypeName(c.params[0]), Entity: c.params[1]}
	if m.Type == "" {
		return &Problem{Kind: KindBadRequest, Detail: "the type is empty", Hint: "the path is /entities/{type}/{id}"}
	}
	if err := sharding.CheckEntityID(m.Entity); err != nil {
		p := &Problem{Kind: KindBadEntityID, Detail: err.Error(), Hint: "use a shorter id, such as a hash of the long one"}
		if m.Entity == "" {
			p.Hint = "name one: the path is /entities/{type}/{id}"
		}
		return p
	}
	timeout, err := timeoutOf(c.query.Get("timeout"))
	if err != nil {
		return err
	}
	if m.Command, err = commandOf(c.r.Header); err != nil {
		return err
	}
	body, err := c.read(s.maxBody, "http.max_body")
	if err != nil {
		return err
	}
	if err := checkJSON(body); err != nil {
		return err
	}
	m.Payload = append([]byte{byte(sharding.FormatJSON)}, body...)

	if c.query.Get("mode") == "tell" {
		return c.done(http.StatusAccepted, s.withTypes(m.Type, s.node.Tell(m)))
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), timeout)
	defer cancel()
	reply, err := s.node.Ask(ctx, m)
	if errors.Is(err, context.DeadlineExceeded) {
		return &Problem{Kind: KindUnknownOutcome, Detail: fmt.Sprintf("%s answered not within %s; the message may have been handled", quote(m.Entity), timeout)}
	}
	if err != nil {
		return s.withTypes(m.Type, err)
	}
	if len(reply) < 2 || sharding.Format(reply[0]) != sharding.FormatJSON {
		return fmt.Errorf("the reply of type %s is not in JSON, the format of the question", m.Type)
	}
	c.bytes(http.StatusOK, "application/json", append(reply[1:len(reply):len(reply)], '\n'))
	return nil
}

// withTypes adds the types that there are where the one asked for is not.
func (s *Server) withTypes(t sharding.TypeName, err error) error {
	if !errors.Is(err, sharding.ErrNoType) {
		return err
	}
	types := s.node.Types()
	if slices.Contains(types, t) {
		return &Problem{Kind: KindUnknownType, Detail: "no node that is in the cluster now hosts type " + quote(string(t)) + ": those that did are gone",
			Hint: "start a node whose node.toml has the type, and its role: drover cluster members and GET /cluster/members list the nodes"}
	}
	return &Problem{Kind: KindUnknownType, Detail: "no node hosts a type " + quote(string(t)), Hint: typesHint(types), Known: names(types)}
}

func timeoutOf(s string) (time.Duration, error) {
	if s == "" {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < minTimeout || d > maxTimeout {
		return 0, &Problem{Kind: KindBadRequest, Detail: "parameter timeout is " + quote(s) + ": want 1ms to 5m", Hint: "write a number and a unit, such as 500ms"}
	}
	return d, nil
}

// commandOf makes the command id of an Idempotency-Key: one key is one client with one command, so that retries through any node are known.
func commandOf(h http.Header) (protocol.Command, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return protocol.Command{}, nil
	}
	key := values[0]
	if len(values) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return protocol.Command{}, &Problem{Kind: KindBadRequest, Detail: "Idempotency-Key is not usable: want it once, with 1 to 255 characters of printable ASCII", Hint: "a UUID does"}
	}
	sum := sha256.Sum256([]byte(key))
	return protocol.Command{Client: sharding.Incarnation(sum[:16]), Seq: 1}, nil
}
