package builtin

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// Spec 5.1: {"add":n}, {"get":true} → {"value":int64}; overflow is an error.
func TestCounter(t *testing.T) {
	c := newCounter(nil)
	ask := func(m CounterMessage) (int64, error) { r, err := c.Receive(nil, m); return r.Value, err }
	add := func(n int64) CounterMessage { return CounterMessage{Add: &n} }
	for _, step := range []struct {
		m    CounterMessage
		want int64
	}{{CounterMessage{Get: true}, 0}, {add(2), 2}, {add(0), 2}, {add(-5), -3}, {add(math.MaxInt64), math.MaxInt64 - 3}, {add(3), math.MaxInt64}} {
		v, err := ask(step.m)
		require.NoError(t, err)
		assert.Equal(t, step.want, v)
	}
	_, err := ask(add(1))
	require.ErrorIs(t, err, errOverflow)
	v, err := ask(CounterMessage{Get: true})
	require.NoError(t, err)
	assert.Equal(t, int64(math.MaxInt64), v, "it keeps its value")
	_, err = ask(add(math.MinInt64))
	require.NoError(t, err)
	_, err = ask(add(math.MinInt64))
	require.ErrorIs(t, err, errOverflow)
	for what, bad := range map[string]CounterMessage{"neither add nor get": {}, "add and get are both": {Add: new(int64), Get: true}} {
		_, err := ask(bad)
		require.ErrorIs(t, err, sharding.ErrBadMessage)
		assert.ErrorContains(t, err, what)
		assert.NotContains(t, err.Error(), "\n")
	}
}
