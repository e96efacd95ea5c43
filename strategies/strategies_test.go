package strategies_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
	"github.com/droverhq/drover/strategies/answers"
)

// The table of right answers (spec 1.2), natively.
func TestAnswers(t *testing.T) {
	cases, err := answers.All()
	require.NoError(t, err)
	byStrategy := map[string]int{}
	for _, c := range cases {
		t.Run(c.Strategy+"/"+c.Name, func(t *testing.T) {
			s, ok := strategies.Native(c.Strategy)
			require.True(t, ok, "no strategy %q", c.Strategy)
			assert.NoError(t, c.Check(s))
			// The same through the contract's bytes, as a guest sees it.
			in, err := pluginapi.DecodeInput(pluginapi.AppendInput(nil, c.Op, &c.Snapshot, c.Shards))
			require.NoError(t, err)
			decoded := c
			decoded.Snapshot, decoded.Shards = in.Snapshot, in.Shards
			assert.NoError(t, decoded.Check(s))
		})
		byStrategy[c.Strategy]++
	}
	for _, name := range strategies.Names() {
		assert.GreaterOrEqual(t, byStrategy[name], 10, "cases of %s", name)
	}
}

// wrong answers as a strategy does, and a little differently.
type wrong struct{ pluginapi.Strategy }

func (w wrong) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	h, err := w.Strategy.Allocate(s, shards)
	if len(h.Nodes) == 0 {
		return pluginapi.Homes{Nodes: []int{0}}, err
	}
	last := &h.Nodes[len(h.Nodes)-1]
	*last = (*last+2)%(len(s.Nodes)+1) - 1
	return h, err
}

func (w wrong) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	p, err := w.Strategy.Rebalance(s)
	if len(p.Moves) == 0 {
		p.Moves = []pluginapi.Move{{Shard: 0, Target: 0}}
	} else {
		p.Moves = p.Moves[:len(p.Moves)-1]
	}
	return p, err
}

// A wrong answer must not pass, nor a decision where an error is right.
func TestAnswersTellRightFromWrong(t *testing.T) {
	cases, err := answers.All()
	require.NoError(t, err)
	for _, c := range cases {
		s, _ := strategies.Native(c.Strategy)
		if c.Error != "" {
			s, _ = strategies.Native("hash")
			assert.ErrorContains(t, c.Check(s), "want an error", c.Name)
			continue
		}
		assert.Error(t, c.Check(wrong{s}), c.Name)
	}
}

func TestSumsAreThoseOfTheModules(t *testing.T) {
	sums, err := os.ReadFile("SHA256SUMS")
	require.NoError(t, err)
	var want bytes.Buffer
	for _, name := range strategies.Names() {
		module, digest, ok := strategies.Builtin(name)
		require.True(t, ok)
		assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(module)), digest)
		assert.Equal(t, "\x00asm\x01\x00\x00\x00", string(module[:min(8, len(module))]), "%s is a wasm module", name)
		fmt.Fprintf(&want, "%s  %s/%s.wasm\n", digest, name, name)
	}
	assert.Equal(t, want.String(), string(sums))
}

func TestNames(t *testing.T) {
	assert.Equal(t, []string{"hash", "leastshard", "rendezvous"}, strategies.Names())
	assert.Contains(t, strategies.Names(), strategies.Default)
	for _, name := range strategies.Names() {
		s, ok := strategies.Native(name)
		require.True(t, ok)
		d := s.(pluginapi.Describer).Describe()
		assert.Equal(t, name, d.Name)
		b, err := pluginapi.AppendDescription(nil, &d)
		require.NoError(t, err)
		back, err := pluginapi.DecodeDescription(b)
		require.NoError(t, err)
		assert.Len(t, back.Config, len(d.Config))
	}
	_, ok := strategies.Native("no-such")
	assert.False(t, ok)
	_, _, ok = strategies.Builtin("no-such")
	assert.False(t, ok)
}
