package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// call is one request at its route.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	params params
	query  url.Values
}

// json answers with a value.
func (c *call) json(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer of %s: %w", c.r.URL.Path, err)
	}
	c.bytes(status, "application/json", append(b, '\n'))
	return nil
}

// bytes answers with a whole body. A client that is gone does not get it, and that is no error of ours.
func (c *call) bytes(status int, contentType string, b []byte) {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	c.w.Write(b)
}

// empty answers without a body.
func (c *call) empty(status int) error {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	return nil
}

// read takes the body, at most limit bytes.
func (c *call) read(limit int64, key string) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &Problem{Kind: KindTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes, the limit of %s", limit, key)}
	}
	if err != nil {
		return nil, &Problem{Kind: KindBadRequest, Detail: "the body did not arrive whole"}
	}
	return b, nil
}

// noBody refuses what nobody would read: who sends it means something by it.
func (c *call) noBody() error {
	var one [1]byte
	if n, _ := io.ReadFull(c.r.Body, one[:]); n == 0 {
		return nil
	}
	return &Problem{Kind: KindBadRequest, Detail: "this request takes no body", Hint: "parameters stand in the query, behind a question mark: GET /openapi.json lists them"}
}

// checkJSON says where a body stops being one JSON value.
func checkJSON(b []byte) error {
	if len(strings.TrimSpace(string(b[:min(len(b), 64)]))) == 0 && len(strings.TrimSpace(string(b))) == 0 {
		return &Problem{Kind: KindBadRequest, Detail: "the body is empty", Hint: "send the message as one JSON value: curl -d '{…}'"}
	}
	if !utf8.Valid(b) {
		return &Problem{Kind: KindBadRequest, Detail: "the body is no JSON: it is not UTF-8"}
	}
	var v json.RawMessage
	if err := json.Unmarshal(b, &v); err != nil {
		at := ""
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = fmt.Sprintf(" (byte %d)", e.Offset)
		}
		return &Problem{Kind: KindBadRequest, Detail: "the body is no JSON: " + err.Error() + at, Hint: "names and texts in JSON stand in double quotes"}
	}
	return nil
}

// quote shows text of a client: short, and without control characters.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
