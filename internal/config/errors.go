package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong with a configuration. Where it came from is a position in the file, an environment
// variable or a flag; all are empty for a value nobody set.
type Error struct {
	File      string // as given to Load
	Line, Col int    // from 1; columns count characters; 0 when the value did not come from a file
	Source    string // "DROVER_…" or "--set"
	Key       string // dotted; empty for a syntax error
	Message   string // what is wrong and what is wanted; never a secret
	NotYet    bool   // the value is legal and this version cannot do it yet

	cause error
}

func (e *Error) Unwrap() error { return e.cause }

func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Col)
	case e.Source != "":
		b.WriteString(e.Source)
		if e.Source == sourceSet {
			b.WriteString(" ")
		} else {
			b.WriteString(": ")
		}
	case e.File != "":
		b.WriteString(e.File + ": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors is everything that is wrong, in the order of the file, then the environment, then flags.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As reach each.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// orNil sorts the errors and turns an empty list into no error.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	rank := func(x *Error) int {
		switch {
		case x.Source == sourceSet:
			return 2
		case x.Source != "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(rank(a)-rank(b), a.Line-b.Line, a.Col-b.Col, strings.Compare(a.Source, b.Source), strings.Compare(a.Key, b.Key))
	})
	return e
}
