package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
)

// Spec 1.3 and 1.4: where no strategy ever worked the built-in hash is what remains, without a module. There is none to copy then, and a
// server that lacks none may vote.
func TestNoModuleIsNeededAfterARollbackToNothing(t *testing.T) {
	f := newFleet(t)
	c := f.config("a")
	c.Types[0].Strategy, c.Types[0].MaxFailures = smallModule(t, "unreachable"), 1
	a := f.start(c)
	f.settled()
	a.add(t, accountOn(3), 1)
	require.Eventually(t, func() bool {
		v, err := api{a.Node}.Strategies(t.Context())
		return err == nil && len(v.Strategies) == 1 && v.Strategies[0].State == httpapi.StrategyReverted
	}, patience, poll)
	assert.Empty(t, a.activeDigests())
	ready, err := a.serveReady(make([]byte, 8))
	require.NoError(t, err)
	assert.Equal(t, []byte{1}, ready)
}
