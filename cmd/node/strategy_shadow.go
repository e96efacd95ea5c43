package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

func newStrategyShadowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow TYPE [FILE|builtin:NAME|sha256:HEX]",
		Short: "Run a strategy beside the active one, without effect, and compare them",
		Long: `With a strategy: run it beside the active one of the type. It is asked all that the active one is asked, and nothing comes of its answers.
Configuration and limits that are not given are those of the active one; without a strategy, but with a configuration or limits, the active module runs
with these.

Without: show how the two compare: what they would move where they last differed, fuel and time. The coordinator counts, from the first question that
it has put to both: another coordinator, or another active strategy, begins anew. --watch shows it again whenever it has changed, until it is interrupted
or the shadow ends. --off ends the shadow; drover strategy promote activates it.`,
		Example: "  drover strategy shadow counter mine.wasm\n  drover strategy shadow counter --watch\n  drover strategy promote counter",
		Args:    wants("TYPE", "[STRATEGY]"),
	}
	completeArgs(cmd, 1, completeTypes, completeBuiltins)
	change := addChangeFlags(cmd)
	off := cmd.Flags().Bool("off", false, "end the shadow")
	watch := cmd.Flags().Bool("watch", false, "show the comparison again whenever it has changed")
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		typ, w := args[0], cmd.OutOrStdout()
		body, source, err := change.body(args[1:])
		begins := source != "" || change.given
		switch {
		case err != nil:
			return err
		case *off && (begins || *watch) || *watch && begins:
			return usageError(errors.New("--off ends a shadow and --watch looks at one: neither goes with the other, nor with what begins one"), "drover strategy shadow "+typ+" --watch")
		case *off:
			v, err := c.EndShadow(cmd.Context(), typ)
			if err != nil {
				return err
			}
			if *asJSON {
				return writeJSON(w, v)
			}
			_, err = fmt.Fprintf(w, "%s has no shadow any more; it runs %s\n", client.Printable(string(v.Type)), whatOf(v))
			return err
		case begins:
			v, err := c.Swap(cmd.Context(), typ, sourceParam(source), true, body)
			if err != nil {
				return err
			}
			warn(cmd, v.Warnings)
			if *asJSON {
				return writeJSON(w, v)
			}
			return shadowBegun(w, v.StrategyView)
		case *watch:
			return watchShadow(cmd.Context(), w, c, sharding.TypeName(typ), *asJSON)
		}
		v, err := strategyOf(cmd.Context(), c, sharding.TypeName(typ))
		if err != nil {
			return err
		}
		if v.Shadow == nil {
			return noShadow(v)
		}
		if *asJSON {
			return writeJSON(w, v)
		}
		_, err = io.WriteString(w, comparison(v))
		return err
	})
}

func newStrategyPromoteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "promote TYPE",
		Short: "Activate the shadow of a type",
		Long: `Activate the shadow of a type, with the configuration and the limits that it has as a shadow. With --digest nothing happens if the shadow is another one by
now. drover strategy rollback goes back.`,
		Example: "  drover strategy promote counter --wait 1m",
		Args:    wants("TYPE"),
	}
	digest := cmd.Flags().String("digest", "", "promote only the shadow with this `sha256:HEX`")
	return changeCommand(cmd, digest, func(ctx context.Context, c *client.Client, typ string) (httpapi.StrategyView, error) {
		return c.Promote(ctx, typ, *digest)
	},
		func(v httpapi.StrategyView) string {
			return "go back: drover strategy rollback " + client.Printable(string(v.Type))
		})
}

func newStrategyRollbackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback TYPE",
		Short: "Go back to the strategy of a type that worked before",
		Long: `Go back to the strategy of a type that worked before, with the configuration and the limits that it had. The next rollback goes further back. With --from
nothing happens if another strategy is active by now, so that a repeated command does not go back twice.`,
		Example: "  drover strategy rollback counter",
		Args:    wants("TYPE"),
	}
	from := cmd.Flags().String("from", "", "go back only from the strategy with this `sha256:HEX`")
	return changeCommand(cmd, from, func(ctx context.Context, c *client.Client, typ string) (httpapi.StrategyView, error) {
		return c.Rollback(ctx, typ, *from)
	},
		func(v httpapi.StrategyView) string {
			if v.Previous == nil {
				return ""
			}
			return "another rollback goes back to " + previousText(v.Previous)
		})
}

// changeCommand finishes a command that activates a strategy which the cluster has.
func changeCommand(cmd *cobra.Command, digest *string, do func(context.Context, *client.Client, string) (httpapi.StrategyView, error), next func(httpapi.StrategyView) string) *cobra.Command {
	completeArgs(cmd, -1, completeTypes)
	wait := waitFlag(cmd)
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		if err := checkWait(cmd, *wait); err != nil {
			return err
		}
		if *digest != "" {
			if _, err := httpapi.ParseDigest(*digest); err != nil {
				return usageError(err, "drover strategy list --json shows whole digests")
			}
		}
		v, err := do(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if *wait > 0 {
			if v, err = waitWorked(cmd.Context(), c, v, *wait); err != nil {
				return err
			}
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), swapped(v))
		if text := next(v); err == nil && text != "" {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		return err
	})
}

// strategyOf gives a type's entry.
func strategyOf(ctx context.Context, c *client.Client, t sharding.TypeName) (httpapi.StrategyView, error) {
	list, err := c.Strategies(ctx)
	if err != nil {
		return httpapi.StrategyView{}, err
	}
	var known []string
	for _, s := range list.Strategies {
		if s.Type == t {
			return s, nil
		}
		known = append(known, string(s.Type))
	}
	return httpapi.StrategyView{}, withHint(fmt.Errorf("the cluster has no type %s", client.Printable(fmt.Sprintf("%q", string(t)))), client.Printable("it has: "+orDash(strings.Join(known, ", "))))
}

func noShadow(v httpapi.StrategyView) error {
	return withHint(fmt.Errorf("%s has no shadow", client.Printable(string(v.Type))), fmt.Sprintf("begin one: drover strategy shadow %s FILE", client.Printable(string(v.Type))))
}

// shadowBegun says what a shadow is beside, and how to go on.
func shadowBegun(w io.Writer, v httpapi.StrategyView) error {
	typ := client.Printable(string(v.Type))
	if v.Shadow == nil { // ended meanwhile
		return noShadow(v)
	}
	_, err := fmt.Fprintf(w, "%s runs beside %s of %s, without effect\nlook: drover strategy shadow %s; then: drover strategy promote %s, or drover strategy shadow %s --off\n",
		whatOfShadow(v.Shadow), whatOf(v), typ, typ, typ, typ)
	return err
}

// watchPoll is how often a watched comparison is looked at.
const watchPoll = time.Second

// watchShadow shows the comparison whenever it has changed, until it is interrupted or there is no shadow any more.
func watchShadow(ctx context.Context, w io.Writer, c *client.Client, t sharding.TypeName, asJSON bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	clear := ""
	if progressOf(w).w != nil {
		clear = "\x1b[H\x1b[2J"
	}
	for shown := ""; ; {
		v, err := strategyOf(ctx, c, t)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted: all was shown
		case err != nil:
			return err
		case v.Shadow == nil && shown == "":
			return noShadow(v)
		case v.Shadow == nil:
			if !asJSON {
				_, err = fmt.Fprintf(w, "%s has no shadow any more; it runs %s\n", client.Printable(string(v.Type)), whatOf(v))
			}
			return err
		}
		text := comparison(v)
		if asJSON {
			line, err := json.Marshal(v)
			if err != nil {
				return err
			}
			text = string(line) + "\n"
		}
		if text != shown {
			if _, err := io.WriteString(w, clear+text); err != nil {
				return err
			}
			shown = text
			if clear == "" && !asJSON {
				_, err = io.WriteString(w, "\n")
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPoll):
		}
	}
}

func whatOfShadow(s *httpapi.ShadowView) string {
	return client.Printable(fmt.Sprintf("%s (%s)", orDash(cmp.Or(s.Name, short(s.Source))), short(s.Digest)))
}

func previousText(p *httpapi.PreviousView) string {
	return client.Printable(fmt.Sprintf("%s (%s)", orDash(short(p.Source)), short(p.Digest)))
}

// verdictOfShadow says in a few words how a shadow compares.
func verdictOfShadow(s *httpapi.ShadowView) string {
	switch {
	case s.State != httpapi.ShadowRunning:
		return client.Printable(s.State.String())
	case s.Calls == 0:
		return "not asked yet"
	case s.Compared == 0:
		return "nothing to compare yet"
	case s.Agreed == 0 || s.Differed == 0:
		return fmt.Sprintf("%d of %d answers differ", s.Differed, s.Compared)
	}
	return fmt.Sprintf("%d of %d answers differ, the last %d agree", s.Differed, s.Compared, s.Agreed)
}

// comparison shows how a shadow compares, for people.
func comparison(v httpapi.StrategyView) string {
	var b strings.Builder
	s := v.Shadow
	fmt.Fprintf(&b, "%s: %s beside %s, %s\n", client.Printable(string(v.Type)), whatOfShadow(s), whatOf(v), verdictOfShadow(s))
	if s.Since == nil {
		fmt.Fprintf(&b, "the shadow since %s; the coordinator has put no question to both yet: it does at the next rebalance interval in which a shard has a home\n", clock(s.Set))
	} else {
		fmt.Fprintf(&b, "the shadow since %s, compared by the present coordinator since %s\n", clock(s.Set), clock(*s.Since))
	}
	last := func(n *uint64, p99 *uint64, text func(*uint64) string) string { return text(n) + " / " + text(p99) }
	// The writer is memory, and cannot fail.
	_ = table(&b, func(row func(...string)) {
		row("", "ACTIVE", "SHADOW")
		row("moves asked for", fmt.Sprint(s.Moves.Active), fmt.Sprint(s.Moves.Shadow))
		row("fuel, last / p99", last(v.Fuel.Last, v.Fuel.P99, units), last(s.Fuel.Last, s.Fuel.P99, units))
		row("time, last / p99", last(v.Time.Last, v.Time.P99, micros), last(s.Time.Last, s.Time.P99, micros))
		row("calls", fmt.Sprint(v.Calls), fmt.Sprint(s.Calls))
		row("failures", fmt.Sprint(v.Failures), fmt.Sprint(s.Failures))
		row("not asked", "", fmt.Sprint(s.Skipped))
	})
	if f := s.LastFailure; f != nil {
		fmt.Fprintf(&b, "the shadow's last failure: %s\n", failureText(*f))
	}
	if d := s.Last; d != nil {
		differenceText(&b, d)
	}
	return b.String()
}

// clock shortens a time for people; one that it cannot read stays as it is.
func clock(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return client.Printable(text)
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// mostRows is how many shards of a difference are shown on a terminal.
const mostRows = 40

// differenceText shows side by side what both would do.
func differenceText(b *strings.Builder, d *httpapi.DifferenceView) {
	unmoved, nowhere := "stays", "anywhere"
	if d.Op == "allocate" {
		unmoved, nowhere = "-", "none"
		fmt.Fprintf(b, "where they last differed, asked for homes at %s, %d homes:\n", clock(d.At), d.Counts.Active)
	} else {
		fmt.Fprintf(b, "where they last differed, asked for moves at %s, %d of the active one and %d of the shadow:\n", clock(d.At), d.Counts.Active, d.Counts.Shadow)
	}
	type row struct {
		from sharding.NodeID
		to   [2]string
	}
	rows := map[sharding.ShardID]*row{}
	var order []sharding.ShardID
	for i, moves := range [2][]httpapi.MoveView{d.Active, d.Shadow} {
		for _, m := range moves {
			r := rows[m.Shard]
			if r == nil {
				r = &row{from: m.From, to: [2]string{unmoved, unmoved}}
				rows[m.Shard] = r
				order = append(order, m.Shard)
			}
			r.to[i] = cmp.Or(string(m.To), nowhere)
		}
	}
	slices.Sort(order)
	_ = table(b, func(write func(...string)) {
		write("SHARD", "FROM", "ACTIVE", "SHADOW")
		for _, s := range order[:min(len(order), mostRows)] {
			r := rows[s]
			write(fmt.Sprint(s), orDash(string(r.from)), r.to[0], r.to[1])
		}
	})
	if more := len(order) - mostRows; more > 0 {
		fmt.Fprintf(b, "and %d more shards; --json has up to 1 000 moves of each\n", more)
	}
}
