package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// Spec 1.6: the engine is the one asked for, which no answer shows, because both give the same.
func TestEngineIsTheOneAskedFor(t *testing.T) {
	for text, want := range map[string]host.Engine{"compiler": host.Compiler, "interpreter": host.Interpreter} {
		f := runFlags{op: "rebalance", input: "testdata/snapshot.json", callFlags: callFlags{engine: text, repeat: 1, limits: limitFlags(&cobra.Command{}), budget: host.DefaultBudget}}
		req, err := f.request(&cobra.Command{}, "builtin:hash")
		require.NoError(t, err)
		assert.Equal(t, want, req.engine)
	}
}

// Spec 1.6: "identical" is about verdict, fuel, answer and memory of every call.
func TestSameCall(t *testing.T) {
	fuel := func(n int64) *int64 { return &n }
	same := func() *host.Record {
		return &host.Record{Verdict: host.VerdictOK, Fuel: fuel(7), Output: []byte{1}, Pages: 2}
	}
	assert.True(t, sameCall(same(), same()))
	for name, change := range map[string]func(r *host.Record){
		"verdict": func(r *host.Record) { r.Verdict = host.VerdictTrap },
		"fuel":    func(r *host.Record) { r.Fuel = fuel(8) },
		"no fuel": func(r *host.Record) { r.Fuel = nil },
		"answer":  func(r *host.Record) { r.Output = []byte{2} },
		"memory":  func(r *host.Record) { r.Pages = 3 },
	} {
		other := same()
		change(other)
		assert.False(t, sameCall(same(), other), name)
		assert.False(t, sameCall(other, same()), name)
	}
}
