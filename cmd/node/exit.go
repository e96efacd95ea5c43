package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes that every command shares. Commands for machines may define more (spec 1.6: 3 refused, 4 other verdicts).
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// exitError carries the exit code of the process and the next step to take. Without err nothing is printed: the
// command has said what it had to say on stdout.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is for a wrong command line or configuration: exit code 2. The hint may be empty.
func usageError(err error, hint string) error {
	return &exitError{code: exitUsage, err: err, hint: hint}
}

// withHint adds the next step to an error and keeps its exit code.
func withHint(err error, hint string) error {
	code := exitFailure
	if inner, ok := errors.AsType[*exitError](err); ok {
		code = inner.code
	}
	return &exitError{code: code, err: err, hint: hint}
}

// exitWith ends with a code and prints nothing.
func exitWith(code int) error { return &exitError{code: code} }

// asUsage turns an error of the command-line parser into a usage error of the command it concerns.
func asUsage(err error, cmd *cobra.Command) error {
	if _, ok := errors.AsType[*exitError](err); ok { // an argument rule that names the next step
		return err
	}
	// cobra adds suggestions on lines of their own; the first line is the message.
	message, _, _ := strings.Cut(err.Error(), "\n")
	return usageError(errors.New(message), fmt.Sprintf("run '%s --help'", cmd.CommandPath()))
}

// report prints an error and returns the exit code for it.
func report(w io.Writer, err error) int {
	code, hint, silent := exitFailure, "", false
	if e, ok := errors.AsType[*exitError](err); ok {
		code, hint, silent = e.code, e.hint, e.err == nil
	}
	if silent {
		return code
	}
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for _, line := range lines {
		fmt.Fprintf(w, "drover: %s\n", line)
	}
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return code
}
