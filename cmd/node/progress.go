package main

import (
	"fmt"
	"io"
	"os"
)

// progress is a line on a terminal that is written over and over; elsewhere it is nothing.
type progress struct {
	w     io.Writer // nil: no terminal
	drawn bool
}

func progressOf(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok {
		return &progress{}
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{w: f}
}

// at shows n of all.
func (p *progress) at(n, all int, what string) {
	if p.w == nil {
		return
	}
	p.drawn = true
	fmt.Fprintf(p.w, "\r\x1b[K%s of %d %s", bar(n, all), all, what)
}

// end clears the line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
