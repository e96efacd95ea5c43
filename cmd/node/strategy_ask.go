package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
)

// What run, profile and bench have in common: each asks a strategy something, and tells how that ended.

// callFlags say how a strategy is called.
type callFlags struct {
	engine string
	repeat int
	limits func() (host.Limits, error)
	budget time.Duration
}

// usageOf makes the errors of a command line that makes no sense.
func usageOf(cmd *cobra.Command) func(format string, args ...any) error {
	return func(format string, args ...any) error {
		return usageError(fmt.Errorf(format, args...), fmt.Sprintf("run '%s --help'", cmd.CommandPath()))
	}
}

// check gives the engine and the limits of a call.
func (f *callFlags) check(cmd *cobra.Command) (e host.Engine, l host.Limits, err error) {
	usage := usageOf(cmd)
	if l, err = f.limits(); err != nil {
		return e, l, err
	}
	l.Budget = f.budget
	if e, err = host.ParseEngine(f.engine); err != nil {
		return e, l, usage("--engine: %w", err)
	}
	switch {
	case f.repeat < 1:
		err = usage("--repeat %d: at least 1", f.repeat)
	case f.budget <= 0:
		err = usage("--budget %s: must be positive", f.budget)
	}
	return e, l, err
}

// judged is how a strategy ended; the first keys of what a command prints for machines (spec 1.6).
type judged struct {
	Verdict host.Verdict `json:"verdict"`
	Error   *string      `json:"error"`
	Rule    *string      `json:"rule"`
}

// head writes what comes first for people: the verdict, and whose it is.
func (j *judged) head(line func(key, format string, args ...any), name string, d host.Digest) {
	line("verdict", "%s", j.Verdict)
	if j.Error != nil {
		line("error", "%s", *j.Error)
	}
	line("strategy", "%s, %s", name, d)
}

// refused takes a refused module for a result. Any other error is none.
func (j *judged) refused(err error) bool {
	if !errors.Is(err, host.ErrRefused) {
		return false
	}
	text, rule := err.Error(), string(host.RuleOf(err))
	j.Verdict, j.Error, j.Rule = host.VerdictRefused, &text, &rule
	return true
}

// exit gives the exit code of the verdict.
func (j *judged) exit() error {
	switch j.Verdict {
	case host.VerdictOK:
		return nil
	case host.VerdictRefused:
		return exitWith(exitRefused)
	}
	return exitWith(exitVerdict)
}

// answer is what a command tells.
type answer interface {
	print(w io.Writer, name string) error // for people
	exit() error
}

// tell prints an answer, and ends with its exit code.
func tell(cmd *cobra.Command, asJSON bool, a answer, name string) error {
	err := error(nil)
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), a)
	} else {
		err = a.print(cmd.OutOrStdout(), name)
	}
	if err != nil {
		return err
	}
	return a.exit()
}
