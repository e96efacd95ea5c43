package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/records"
)

// recordChoice says which records replay and backtest read.
type recordChoice struct {
	path   string
	typ    string
	record string
	input  host.Digest // what record says
	last   int
	module host.Digest // those of one module; zero: of any
}

func (r *recordChoice) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.typ, "type", "", "records of this sharded `type` alone")
	flags.StringVar(&r.record, "record", "", "the record whose input has this `digest`, as 'drover shard explain' tells it")
	flags.IntVar(&r.last, "last", 0, "the latest `n` records alone")
}

// check takes the command line for what it says of records.
func (r *recordChoice) check(cmd *cobra.Command, path string) (err error) {
	r.path = path
	if r.record != "" {
		if r.input, err = host.ParseDigest(r.record); err != nil {
			return usageOf(cmd)("--record: %w", err)
		}
	}
	if r.last < 0 || r.last == 0 && cmd.Flags().Changed("last") {
		return usageOf(cmd)("--last %d: at least 1", r.last)
	}
	return nil
}

// wanted says whether a record is asked for, but for --last. One that cannot be read may be, unless that is one record alone.
func (r *recordChoice) wanted(e records.Entry) bool {
	if e.Err != nil {
		return r.record == ""
	}
	return (r.typ == "" || e.Record.Type == r.typ) && (r.module == (host.Digest{}) || e.Record.Digest == r.module) && (r.record == "" || e.Record.InputDigest == r.input)
}

// selection is what a first reading found: numbers, and how many there are. What a node adds later is not part of it.
type selection struct {
	from, to uint64
	count    int
	// unreadable counts those that cannot be read, asked for or not.
	unreadable int
}

func (r *recordChoice) selection() (selection, error) {
	var numbers []uint64
	unreadable := 0
	err := records.Read(r.path, func(e records.Entry) error {
		if e.Err != nil {
			unreadable++
		}
		if r.wanted(e) {
			numbers = append(numbers, e.Number)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, records.ErrNoRecords) {
		err = withHint(err, "name the data_dir of a node, as in its node.toml, or a file that 'drover strategy replay DATA_DIR --export FILE' wrote")
	}
	if err != nil || len(numbers) == 0 {
		return selection{unreadable: unreadable}, err
	}
	if r.last > 0 {
		numbers = numbers[max(0, len(numbers)-r.last):]
	}
	return selection{numbers[0], numbers[len(numbers)-1], len(numbers), unreadable}, nil
}

// each hands over what is asked for, oldest first.
func (r *recordChoice) each(f func(e records.Entry, n, all int) error) error {
	s, err := r.selection()
	if err != nil {
		return err
	}
	if s.count == 0 {
		what := "no record"
		if r.typ != "" {
			what += fmt.Sprintf(" of type %q", r.typ)
		}
		if r.record != "" {
			what += " of input " + r.input.String()
		}
		if r.module != (host.Digest{}) {
			what += " of module " + r.module.String()
		}
		if s.unreadable > 0 {
			what += fmt.Sprintf("; %s could not be read: see --list without --record", counted(s.unreadable, "record"))
		}
		return withHint(fmt.Errorf("%s: %s", r.path, what),
			"the node that leads makes the calls, and records them: try the data_dir of another node, or --list without --type, --record and module")
	}
	n := 0
	return records.Read(r.path, func(e records.Entry) error {
		if !r.wanted(e) || e.Number < s.from || e.Number > s.to {
			return nil
		}
		n++
		return f(e, n, s.count)
	})
}
