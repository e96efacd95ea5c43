package node

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
)

// A key of [type.config] that the strategy does not know is most likely misspelt: the start says so, and goes on.
func TestMisspeltStrategyConfig(t *testing.T) {
	var out bytes.Buffer
	n := &Node{log: slog.New(slog.NewTextHandler(&out, nil))}
	typ := config.Type{Name: "counter", Strategy: "builtin:leastshard", Config: map[string]any{"threshold": int64(2)}}
	spec, err := n.strategySpec(t.Context(), typ)
	require.NoError(t, err)
	require.NotZero(t, spec.Digest)
	require.Empty(t, out.String())

	typ.Config["treshold"] = int64(2)
	_, err = n.strategySpec(t.Context(), typ)
	require.NoError(t, err)
	require.Regexp(t, `level=WARN .*treshold.* type=counter strategy=builtin:leastshard rule=config-unknown-key`, out.String())
}

// Spec 1.1: what reaches the strategy is core deterministic, with floats of 64 bits.
func TestEncodeConfig(t *testing.T) {
	b, err := encodeConfig(map[string]any{"b": 0.5, "a": int64(1)})
	require.NoError(t, err)
	require.Equal(t, []byte{0xa2, 0x61, 'a', 1, 0x61, 'b', 0xfb, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0}, b)
	b, err = encodeConfig(nil)
	require.NoError(t, err)
	require.Nil(t, b)
}
