package failurepolicy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding/failurepolicy"
)

const (
	worked = failurepolicy.Worked
	failed = failurepolicy.Failed
	budget = failurepolicy.OverBudget
)

// run applies outcomes in turn and returns the last step.
func run(s failurepolicy.State[string], max int, outcomes ...failurepolicy.Outcome) (failurepolicy.State[string], failurepolicy.Step) {
	step := failurepolicy.Stay
	for _, o := range outcomes {
		s, step = s.After(o, max)
	}
	return s, step
}

// Spec 1.3: after max_failures in a row the host goes back to the last strategy that worked.
func TestRevertAfterFailuresInARow(t *testing.T) {
	s, _ := run(failurepolicy.New("old"), 3, worked)
	s = s.Swap("new")
	s, step := run(s, 3, failed, failed)
	require.Equal(t, failurepolicy.Stay, step)
	require.Equal(t, "new", s.Active)
	s, step = run(s, 3, failed)
	require.Equal(t, failurepolicy.Revert, step)
	require.Equal(t, "old", s.Active)
	require.Equal(t, "new", s.Rejected)
	require.True(t, s.HasRejected)
	require.Zero(t, s.InARow)
}

func TestSuccessEndsTheRow(t *testing.T) {
	s, _ := run(failurepolicy.New("old"), 3, worked)
	s, step := run(s.Swap("new"), 3, failed, failed, worked, failed, failed)
	require.Equal(t, failurepolicy.Stay, step)
	require.Equal(t, "new", s.Active)
}

// A strategy that worked for a while and then fails goes too: "loops as soon as it sees three nodes".
func TestProvenStrategyIsTakenOffToo(t *testing.T) {
	s, _ := run(failurepolicy.New("old"), 3, worked)
	s, step := run(s.Swap("new"), 3, worked, failed, failed, failed)
	require.Equal(t, failurepolicy.Revert, step)
	require.Equal(t, "old", s.Active)
}

// Spec 1.3: clock verdicts are counted apart and never roll a strategy back.
func TestBudgetNeverReverts(t *testing.T) {
	s, _ := run(failurepolicy.New("old"), 3, worked)
	s, step := run(s.Swap("new"), 3, budget, budget, budget, budget, failed, budget, failed)
	require.Equal(t, failurepolicy.Stay, step)
	require.Equal(t, "new", s.Active)
	require.EqualValues(t, 5, s.OverBudget)
	require.EqualValues(t, 2, s.Failures)
	require.Equal(t, 2, s.InARow, "a clock verdict neither counts nor ends the row")
}

func TestNeverGoesBackToOneThatNeverWorked(t *testing.T) {
	s, _ := run(failurepolicy.New("a"), 3, worked)
	s = s.Swap("b").Swap("c")
	s, step := run(s, 3, failed, failed, failed)
	require.Equal(t, failurepolicy.Revert, step)
	require.Equal(t, "a", s.Active, "b never worked")
}

func TestStuckWithoutAnother(t *testing.T) {
	s, step := run(failurepolicy.New("only"), 2, failed, failed)
	require.Equal(t, failurepolicy.Stuck, step)
	require.Equal(t, "only", s.Active)
	_, ok := s.Rollback()
	require.False(t, ok)
}

func TestSwapToTheActiveOneChangesNothing(t *testing.T) {
	s, _ := run(failurepolicy.New("a"), 3, worked, failed)
	require.Equal(t, s, s.Swap("a"))
}

func TestSwapBackByHandIsProven(t *testing.T) {
	s, _ := run(failurepolicy.New("a"), 3, worked)
	s = s.Swap("b").Swap("a")
	require.True(t, s.Proven)
	require.False(t, s.HasPrevious, "a is not its own way back")
}

func TestDefaultMaxFailures(t *testing.T) {
	s, _ := run(failurepolicy.New("old"), 0, worked)
	_, step := run(s.Swap("new"), 0, failed, failed)
	require.Equal(t, failurepolicy.Stay, step)
	_, step = run(s.Swap("new"), 0, failed, failed, failed)
	require.Equal(t, failurepolicy.Revert, step)
}
