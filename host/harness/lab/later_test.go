package lab

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
)

// An input of a later contract is read as today's, and differs from it in each map that may grow.
func TestLaterInput(t *testing.T) {
	c := NewCluster(30, 300).Even().Pin("n003", 7).Busy(9, "n001").Rate(5).Config("key", []any{1, "x"})
	snap, err := c.Snapshot()
	require.NoError(t, err)
	now := pluginapi.AppendInput(nil, pluginapi.OpAllocate, snap, []uint32{1, 2})
	later, err := laterInput(now)
	require.NoError(t, err)
	assert.Equal(t, 30+2, bytes.Count(later, []byte("not-known")), "the input, its nodes and its limits")
	assert.Less(t, bytes.Index(later, []byte("waiting")), 1, "empty lists are left out")
	assert.Less(t, bytes.Index(later, []byte("shards")), bytes.Index(later, []byte("nodes")), "keys are in another order")
	want, err := pluginapi.DecodeInput(now)
	require.NoError(t, err)
	got, err := pluginapi.DecodeInput(later)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = laterInput([]byte{0x80})
	assert.ErrorContains(t, err, "input: ")
}
