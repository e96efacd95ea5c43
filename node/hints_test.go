package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

// What a page or a hint tells a user is so (spec 5.3). What a counter takes is said to whoever got it wrong, and to nobody who talks to another kind (spec 5.3).
func TestHintOfACounterAlone(t *testing.T) {
	f := newFleet(t)
	c := f.config("a")
	count := config.DefaultType()
	count.Name, count.Entity, count.Shards = "visits", "counter", 3
	c.Types = append(c.Types, count)
	a := f.start(c)
	f.settled()
	ask := func(typ sharding.TypeName) error {
		_, err := api{a.Node}.Ask(t.Context(), httpapi.Message{Type: typ, Entity: "x", Payload: []byte("\x01" + `{"centz":5}`)})
		require.ErrorContains(t, err, "centz")
		return err
	}
	var p *httpapi.Problem
	require.ErrorAs(t, ask("visits"), &p)
	assert.Equal(t, httpapi.KindBadMessage, p.Kind)
	assert.Contains(t, p.Hint, `{"add":n}`)
	assert.ErrorIs(t, ask("ledger"), sharding.ErrBadMessage)

	// docs/http.md names each condition of /readyz.
	page, err := os.ReadFile(filepath.Join("..", "docs", "http.md"))
	require.NoError(t, err)
	for _, condition := range (api{a.Node}).Ready().Conditions {
		assert.Contains(t, string(page), "`"+condition.Name+"`")
	}
}
