package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/node"
	"github.com/droverhq/drover/sharding"
)

// fees answers from another goroutine, as a network would.
type fees struct{ err error }

func (f fees) Fee(done func(int64, error)) { go done(3, f.err) }

// The example of docs/embedding.md runs, from a node.toml and through the public packages alone.
func TestEmbedding(t *testing.T) {
	module, err := filepath.Abs("../host/testdata/attack/well-behaved.wasm")
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		rates RateService
		want  int64
		says  string
	}{
		{"at once", nil, 300, ""},
		{"later", fees{}, 297, ""},
		{"later with an error", fees{errors.New("no rates today")}, 0, "no rates today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "node.toml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "name = \"a\"\ndata_dir = %q\n[gossip]\nbind = \"127.0.0.1:0\"\n[transport]\nbind = \"127.0.0.1:0\"\n"+
				"[http]\naddress = \"127.0.0.1:0\"\n[[type]]\nname = \"account\"\nentity = \"account\"\nstrategy = %q\n", filepath.Join(dir, "data"), module), 0o600))
			kind := AccountKind(c.rates)
			cfg, err := node.LoadConfig(file, []string{"raft.heartbeat_timeout=300ms", "sharding.settle=100ms"}, kind)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := make(chan struct{})
			n, err := node.New(cfg, node.Options{Logger: slog.New(slog.DiscardHandler), FastGossip: true, Started: func(node.Addresses) { close(started) }}, kind)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			select {
			case <-started:
			case err := <-ended:
				t.Fatal(err)
			}
			require.NoError(t, Accounts(n).Tell(Deposit{Account: "ada", Cents: 500}))
			ask, done := context.WithTimeout(ctx, 60*time.Second)
			defer done()
			b, err := Accounts(n).Entity("ada").Ask(ask, Deposit{Cents: -200})
			if c.says == "" {
				require.NoError(t, err)
				assert.Equal(t, c.want, b.Cents)
				_, err = Accounts(n).Ask(ask, Deposit{Account: "ada", Cents: -1000})
				assert.ErrorContains(t, err, "account ada has 300 cents")
			} else {
				var said *sharding.EntityError
				require.ErrorAs(t, err, &said)
				assert.Equal(t, c.says, said.Text)
			}
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

// What docs/embedding.md shows is the example, word for word, so that it compiles and runs.
func TestEmbeddingDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/embedding.md")
	require.NoError(t, err)
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := 0
	for i, part := range strings.Split(string(doc), "```") {
		block, isGo := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		blocks++
		assert.Contains(t, string(code), block, "docs/embedding.md shows code that is not in node/example_test.go")
	}
	assert.GreaterOrEqual(t, blocks, 4)
}
