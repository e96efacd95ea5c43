package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 1.3, 1.4: a strategy is somebody's substitute from a revert until the next one is set, and no longer.
func TestSubstituteUntilTheNextSwap(t *testing.T) {
	s := &State{}
	ty := &typeState{name: "t"}
	ty.strategy.activate(specOf("good"))
	ty.strategy.worked = true
	s.types = append(s.types, ty)
	seen := func() StrategyView { v, _ := s.Strategy("t"); return v }
	assert.Zero(t, s.applySetStrategy(&protocol.SetStrategy{Type: "t", Spec: specOf("bad"), Expect: 1, Cause: protocol.CauseSwap}).Code)
	for range defaultMaxFailures {
		s.applyStrategyOutcome(&protocol.StrategyOutcome{Type: "t", Seq: 2, Failure: "trap: x"})
	}
	assert.Equal(t, specOf("good"), seen().Spec)
	assert.Equal(t, specOf("bad"), seen().Failed)
	assert.NotEmpty(t, seen().Failure)
	assert.Zero(t, s.applySetStrategy(&protocol.SetStrategy{Type: "t", Spec: specOf("better"), Expect: 3, Cause: protocol.CauseSwap}).Code)
	assert.Equal(t, specOf("better"), seen().Spec)
	assert.Zero(t, seen().Failed, "a fresh strategy is said to be a substitute")
	assert.Empty(t, seen().Failure)
}
