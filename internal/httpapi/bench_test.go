package httpapi_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

// BenchmarkAsk is what the handlers add to an ask: the node answers at once.
func BenchmarkAsk(b *testing.B) {
	n := &answers{&httpapitest.Node{}}
	s := httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "http://127.0.0.1:8080/entities/counter/user-42", strings.NewReader(`{"add":1}`))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}

// answers is a node that only answers.
type answers struct{ *httpapitest.Node }

func (answers) Ask(context.Context, httpapi.Message) ([]byte, error) {
	return []byte("\x01{\"value\":1}"), nil
}
