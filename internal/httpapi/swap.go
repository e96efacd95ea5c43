package httpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/sharding"
)

// maxModule bounds a module (spec 1.3), maxConfig its configuration, which is kept in the replicated log and goes into every question: no more than a
// node.toml may have. JSON may carry both, the module as base64.
const (
	maxModule   = 8 << 20
	maxConfig   = 1 << 20
	maxSwapJSON = maxModule/3*4 + maxConfig + 1<<10

	maxChangeJSON = 1 << 10
)

// SwapTimeout bounds a swap: the node that is asked and the leader compile the module, and each of them compiles one after another.
const SwapTimeout = 5 * time.Minute

var wasmMagic = []byte("\x00asm")

// SwapBody is the JSON body of PUT /cluster/strategies/{type}: one of Digest and Module, or neither to change configuration and limits
// alone. What is left out stays as it is.
type SwapBody struct {
	Digest string          `json:"digest,omitempty"` // sha256:… of a module that the cluster has
	Module []byte          `json:"module,omitempty"` // base64
	Config json.RawMessage `json:"config,omitempty"` // an object, handed to the strategy
	Limits *SwapLimits     `json:"limits,omitempty"`
}

// SwapLimits has the names, units and ranges of node.toml.
type SwapLimits struct {
	Fuel         *uint64 `json:"fuel,omitempty"`
	Budget       *string `json:"budget,omitempty"`
	Memory       *string `json:"memory,omitempty"`
	MaxFailures  *uint32 `json:"max_failures,omitempty"`
	MovesPerPass *uint32 `json:"moves_per_pass,omitempty"`
}

func (s *Server) swap(c *call) error {
	t, err := s.oneType(sharding.TypeName(c.params[0]))
	if err != nil {
		return err
	}
	r := SwapRequest{Type: t, Source: c.query.Get("source"), Shadow: c.query.Get("shadow") == "1"}
	if len(r.Source) > 255 {
		return &Problem{Kind: KindBadRequest, Detail: "parameter source is longer than 255 bytes"}
	}
	// A module is told by its first bytes where the content type does not: curl --data-binary says that everything is a form.
	body := bufio.NewReader(c.r.Body)
	head, err := body.Peek(len(wasmMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return &Problem{Kind: KindBadRequest, Detail: "the body did not arrive whole"}
	}
	c.r.Body = io.NopCloser(body)
	contentType, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if contentType == "application/wasm" || bytes.Equal(head, wasmMagic) {
		if r.Module, err = c.read(maxModule, "a module"); err == nil && len(r.Module) == 0 {
			err = &Problem{Kind: KindBadRequest, Detail: "the body is empty", Hint: "send the module: --data-binary @strategy.wasm"}
		}
	} else {
		err = s.readSwapBody(c, &r)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), SwapTimeout)
	defer cancel()
	v, err := s.node.Swap(ctx, r)
	if err != nil {
		return err
	}
	v.Warnings = orEmpty(v.Warnings)
	return c.json(http.StatusOK, v)
}

// ChangeBody is the optional JSON body of a promote and of a rollback.
type ChangeBody struct {
	// Digest makes sure of what is meant: the shadow to promote, or the active strategy to go back from.
	Digest string `json:"digest,omitempty"`
}

func (s *Server) promote(c *call) error { return s.change(c, s.node.Promote) }

func (s *Server) rollback(c *call) error { return s.change(c, s.node.Rollback) }

func (s *Server) change(c *call, do func(context.Context, sharding.TypeName, *[32]byte) (StrategyView, error)) error {
	t, err := s.oneType(sharding.TypeName(c.params[0]))
	if err != nil {
		return err
	}
	raw, err := c.read(maxChangeJSON, "a request about a strategy")
	if err != nil {
		return err
	}
	var digest *[32]byte
	if len(bytes.TrimSpace(raw)) > 0 {
		if digest, err = readChangeBody(raw); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), SwapTimeout)
	defer cancel()
	v, err := do(ctx, t, digest)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, v)
}

func readChangeBody(raw []byte) (*[32]byte, error) {
	if err := checkJSON(raw); err != nil {
		return nil, err
	}
	var b ChangeBody
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return nil, &Problem{Kind: KindBadRequest, Detail: strings.TrimPrefix(err.Error(), "json: "), Hint: `want {"digest":"sha256:…"}, or no body`}
	}
	if b.Digest == "" {
		return nil, nil
	}
	digest, err := ParseDigest(b.Digest)
	if err != nil {
		return nil, &Problem{Kind: KindBadRequest, Detail: "digest: " + err.Error()}
	}
	return &digest, nil
}

func (s *Server) endShadow(c *call) error {
	t, err := s.oneType(sharding.TypeName(c.params[0]))
	if err != nil {
		return err
	}
	v, err := s.node.EndShadow(c.r.Context(), t)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, v)
}

func (s *Server) readSwapBody(c *call, r *SwapRequest) error {
	raw, err := c.read(maxSwapJSON, "a strategy")
	if err != nil {
		return err
	}
	if err := checkJSON(raw); err != nil {
		return err
	}
	var b SwapBody
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		if _, ok := errors.AsType[base64.CorruptInputError](err); ok {
			return &Problem{Kind: KindBadRequest, Detail: "module is not base64"}
		}
		detail := strings.TrimPrefix(err.Error(), "json: ")
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its text names Go types
			detail = fmt.Sprintf("%s does not fit: it holds a %s", cmp.Or(e.Field, "the body"), e.Value)
		}
		return &Problem{Kind: KindBadRequest, Detail: detail,
			Hint: `want {"digest":"sha256:…","config":{…},"limits":{"fuel","budget","memory","max_failures","moves_per_pass"}}`}
	}
	switch {
	case b.Digest != "" && len(b.Module) > 0:
		return &Problem{Kind: KindBadRequest, Detail: "both digest and module are given", Hint: "send one of them"}
	case b.Digest == "" && len(b.Module) == 0 && b.Config == nil && b.Limits == nil:
		return &Problem{Kind: KindBadRequest, Detail: "there is nothing to change", Hint: "send digest, module, config or limits"}
	case len(b.Module) > maxModule:
		return &Problem{Kind: KindTooLarge, Detail: fmt.Sprintf("the module has %d bytes, at most %d are taken", len(b.Module), maxModule)}
	}
	r.Module = b.Module
	if b.Digest != "" {
		d, err := ParseDigest(b.Digest)
		if err != nil {
			return &Problem{Kind: KindBadRequest, Detail: "digest: " + err.Error()}
		}
		r.Digest = &d
	}
	if config := bytes.TrimSpace(b.Config); len(config) > 0 && !bytes.Equal(config, []byte("null")) {
		if config[0] != '{' {
			return &Problem{Kind: KindBadRequest, Detail: "config is no JSON object", Hint: `want {"key":value}, as in [type.config] of node.toml`}
		}
		if len(config) > maxConfig {
			return &Problem{Kind: KindTooLarge, Detail: fmt.Sprintf("config has %d bytes, at most %d are taken", len(config), maxConfig)}
		}
		r.Config = config
	}
	r.Limits, err = b.Limits.parse()
	return err
}

// ParseDigest reads sha256:HEX.
func ParseDigest(s string) (d [32]byte, err error) {
	digits, ok := strings.CutPrefix(s, "sha256:")
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != len(d) {
		return d, fmt.Errorf("%s is no digest (want sha256: and 64 hexadecimal digits)", quote(s))
	}
	hex.Decode(d[:], []byte(digits))
	return d, nil
}

func (l *SwapLimits) parse() (*Limits, error) {
	if l == nil {
		return nil, nil
	}
	out := &Limits{Fuel: l.Fuel, MaxFailures: l.MaxFailures, MovesPerPass: l.MovesPerPass}
	wrong := func(key string, value any, want string) error {
		return &Problem{Kind: KindBadRequest, Detail: fmt.Sprintf("limits.%s is %v: want %s", key, value, want)}
	}
	if f := l.Fuel; f != nil && (*f < 10_000 || *f > 1_000_000_000_000) {
		return nil, wrong("fuel", *f, "10 000 to 1 000 000 000 000 units")
	}
	if l.Budget != nil {
		d, err := time.ParseDuration(*l.Budget)
		if err != nil || d < time.Millisecond || d > time.Minute {
			return nil, wrong("budget", quote(*l.Budget), "1ms to 1m")
		}
		ms := d.Milliseconds()
		out.BudgetMillis = &ms
	}
	if l.Memory != nil {
		b, err := config.ParseBytes(*l.Memory)
		if err != nil || b < 64*config.KiB || b > 64*config.MiB || b%(64*config.KiB) != 0 {
			return nil, wrong("memory", quote(*l.Memory), "64KiB to 64MiB, a multiple of 64KiB")
		}
		n := uint64(b)
		out.Memory = &n
	}
	if n := l.MaxFailures; n != nil && (*n < 1 || *n > 1000) {
		return nil, wrong("max_failures", *n, "1 to 1000")
	}
	if n := l.MovesPerPass; n != nil && (*n < 1 || *n > 1_000_000) {
		return nil, wrong("moves_per_pass", *n, "1 to 1 000 000")
	}
	return out, nil
}
