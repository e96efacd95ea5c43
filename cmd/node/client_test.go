package main

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
	"github.com/droverhq/drover/sharding"
)

// TestClientExitCodes: 2 for what the command line got wrong, 1 for what the cluster did not do (spec 5.3).
func TestClientExitCodes(t *testing.T) {
	t.Setenv("DROVER_ADDRESS", "")
	t.Setenv("DROVER_TOKEN", "")
	n := &httpapitest.Node{}
	server := httptest.NewServer(httpapi.New(config.Default().HTTP, n, "v1", slog.New(slog.DiscardHandler)))
	defer server.Close()
	broken := httptest.NewServer(httpapi.New(config.Default().HTTP, &httpapitest.Node{Err: sharding.ErrUnavailable}, "v1", slog.New(slog.DiscardHandler)))
	defer broken.Close()
	for _, tc := range []struct {
		line string
		code int
	}{
		{"cluster members --address " + server.URL, 0},
		{"cluster members --address " + strings.TrimPrefix(server.URL, "http://"), 0},
		{"cluster members --address " + broken.URL, 1},
		{"cluster members --address 127.0.0.1:1", 1},
		{"cluster members --address x://y", 2},
		{"cluster members --address http://user@127.0.0.1:1", 2},
		{"cluster members --token é --address " + server.URL, 2},
		{"cluster forget --address " + server.URL, 2},
		{"cluster forget a --address " + server.URL, 1},
		{"cluster nope", 2},
		{"cluster drain b --wait 1s --undo", 2},
		{"entity ask counter " + strings.Repeat("x", 1024) + " {} --address " + server.URL, 0},
		{"entity ask counter " + strings.Repeat("x", 1025) + " {}", 2},
		{"entity ask counter a {", 2},
		{"entity ask counter a -", 2},
		{"entity ask counter a {} --timeout 1h", 2},
		{"entity ask nope a {} --address " + server.URL, 1},
		{"entity tell counter a {} --address " + broken.URL, 1},
		{"strategy swap counter", 2},
		{"strategy swap counter builtin:nope", 2},
		{"strategy swap counter sha256:1", 2},
		{"strategy swap counter builtin:hash --strategy-config 1", 2},
		{"strategy swap counter builtin:hash --address " + broken.URL, 1},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(tc.line), strings.NewReader(`"`+strings.Repeat("x", 5<<20)+`"`), &out, &errs)
		assert.Equal(t, tc.code, code, "drover %s\n%s", tc.line, errs.String())
		assert.Equal(t, code == 0, errs.Len() == 0, "drover %s: stderr %q", tc.line, errs.String())
		assert.NotContains(t, errs.String(), "goroutine")
	}
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		n, most int
		want    string
	}{
		{0, 0, "0"}, {0, 5, "0"}, {5, 5, strings.Repeat("█", 40) + " 5"}, {1, 320, "▏ 1"}, {33, 34, strings.Repeat("█", 38) + "▊ 33"},
	} {
		assert.Equal(t, tc.want, bar(tc.n, tc.most))
	}
}

func TestUnits(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1k", 81_234: "81.2k", 1234: "1.2k", 999_999: "1000k", 500_000_000: "500M", 2_000_000_000: "2G"} {
		assert.Equal(t, want, units(&n))
	}
	assert.Equal(t, "-", units(nil))
}
