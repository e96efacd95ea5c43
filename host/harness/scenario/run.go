package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover/host/harness/lab"
)

// Result is a scenario that was played, up to the step that was not as expected.
type Result struct {
	File     string       `json:"file"`
	Line     int          `json:"line"`
	Name     string       `json:"name"`
	OK       bool         `json:"ok"`
	Steps    []StepResult `json:"steps"`
	Failures []*Failure   `json:"failures"`
}

// StepResult is a step that was made.
type StepResult struct {
	Line   int         `json:"line"`
	Op     Op          `json:"op"`
	Run    *lab.Run    `json:"-"` // of Play
	Answer *lab.Answer `json:"-"` // of Rebalance and Allocate

	Before, After *lab.Cluster `json:"-"`
}

// Failure is an expectation that does not hold, or a call that failed where nothing is said of that.
type Failure struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Step   int    `json:"step"` // from 1
	Op     Op     `json:"op"`
	Expect string `json:"expect"` // the key; "" where the call failed
	What   string `json:"what"`
	Right  string `json:"right"`
	Text   string `json:"text"` // the whole, for people

	Fault *lab.Fault `json:"-"`
}

// Error says which expectation does not hold and where it stands; then the fault.
func (f *Failure) Error() string { return f.Text }

// Run makes the steps with a strategy. A step that is not as expected is the last, and all its failures are told. The error
// is the host's own trouble, or about something that only shows in playing, such as a node that leaves before it has come.
func (s *Scenario) Run(ctx context.Context, strategy *lab.Strategy) (*Result, error) {
	r := &Result{File: s.File, Line: s.Line, Name: s.Name, Steps: []StepResult{}, Failures: []*Failure{}}
	cluster := s.Cluster.Clone()
	for i := range s.Steps {
		step := &s.Steps[i]
		o, err := step.make(ctx, strategy, cluster)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: scenario %q: %s: %w", s.File, step.Line, s.Name, step.Op, err)
		}
		r.Steps = append(r.Steps, StepResult{Line: step.Line, Op: step.Op, Run: o.run, Answer: o.answer, Before: o.before, After: o.after})
		faults, err := step.judge(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: scenario %q: %s: %w", s.File, step.Line, s.Name, step.Op, err)
		}
		for _, f := range faults {
			f.File, f.Step, f.Op = s.File, i+1, step.Op
			f.Text = f.text(s)
			r.Failures = append(r.Failures, f)
		}
		if len(faults) > 0 {
			return r, nil
		}
		cluster = o.after
	}
	r.OK = true
	return r, nil
}

// make asks, or plays.
func (step *Step) make(ctx context.Context, strategy *lab.Strategy, c *lab.Cluster) (*outcome, error) {
	o := &outcome{strategy: strategy, step: step, before: c}
	var err error
	if step.Op == Play {
		if o.run, err = lab.Simulate(ctx, strategy, c, step.Play); err == nil {
			o.after = o.run.End
		}
		return o, err
	}
	o.before = c.Clone().Happen(step.Events...)
	if step.Op == Allocate {
		if o.asked = step.Ask; o.asked == nil {
			o.asked = o.before.Homeless()
		}
		o.answer, err = strategy.Allocate(ctx, o.before, o.asked)
	} else {
		o.answer, err = strategy.Rebalance(ctx, o.before)
	}
	if err == nil {
		o.after = o.before.After(o.answer)
		_, err = o.after.Snapshot()
	}
	return o, err
}

// judge returns what is not as expected. A call that fails is a failure too, unless the step says how it ends.
func (step *Step) judge(ctx context.Context, o *outcome) ([]*Failure, error) {
	var failures []*Failure
	told := func(keys ...string) bool {
		return slices.ContainsFunc(step.Expects, func(e Expectation) bool { return slices.Contains(keys, e.Key) })
	}
	add := func(e Expectation, err error) error {
		fault := lab.IsFault(err)
		if err == nil || fault == nil {
			return err
		}
		failures = append(failures, &Failure{Line: e.Line, Column: e.Col, Expect: e.Key, What: fault.What, Right: fault.Right, Fault: fault})
		return nil
	}
	var failed error
	switch {
	case o.run != nil && !told("failures_at_most"):
		failed = o.strategy.Failure(o.run)
	case o.answer != nil && !told("verdict", "error"):
		failed = o.strategy.Accept(o.before, o.asked, o.answer)
	}
	if failed != nil {
		err := add(Expectation{Line: step.Line, Col: 1}, failed)
		return failures, err
	}
	for _, e := range step.Expects {
		if err := add(e, e.judge(ctx, o)); err != nil {
			return nil, err
		}
	}
	return failures, nil
}

// text is the whole of a failure.
func (f *Failure) text(s *Scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: scenario %q", f.File, f.Line, f.Column, s.Name)
	if len(s.Steps) > 1 {
		fmt.Fprintf(&b, ", step %d", f.Step)
	}
	fmt.Fprintf(&b, ": %s", f.Op)
	if f.Expect != "" {
		fmt.Fprintf(&b, ", %s", f.Expect)
	}
	b.WriteByte('\n')
	if s.First != 0 {
		fmt.Fprintf(&b, "(shards below are numbered from 0, as in a snapshot: 0 is %d of the file)\n", s.First)
	}
	b.WriteString(f.Fault.Error())
	return b.String()
}
