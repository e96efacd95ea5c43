package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/httpapi"
)

// digestPrefix marks a module that the cluster has already.
const digestPrefix = "sha256:"

func newStrategyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the strategies of a cluster, their fuel and failures",
	}
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		v, err := c.Strategies(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		return listStrategies(cmd.OutOrStdout(), v.Strategies)
	})
}

func listStrategies(w io.Writer, list []httpapi.StrategyView) error {
	err := table(w, func(row func(...string)) {
		row("TYPE", "STRATEGY", "STATE", "CALLS", "FAILURES", "FUEL LAST", "P99", "LIMIT", "TIME LAST", "P99", "DIGEST", "SOURCE")
		for _, s := range list {
			row(string(s.Type), nameOf(s), s.State.String(), fmt.Sprint(s.Calls), fmt.Sprint(s.Failures),
				units(s.Fuel.Last), units(s.Fuel.P99), units(&s.Fuel.Limit), micros(s.Time.Last), micros(s.Time.P99), short(s.Digest), orDash(short(s.Source)))
		}
	})
	for _, s := range list {
		if f := s.LastFailure; f != nil && err == nil {
			of := cmp.Or(f.Source, f.Digest)
			_, err = fmt.Fprintf(w, "%s: the last failure, of %s: %s\n", client.Printable(string(s.Type)), client.Printable(orDash(short(of))), failureText(*f))
		}
		if s.Shadow != nil && err == nil {
			_, err = fmt.Fprintf(w, "%s: the shadow %s: %s; drover strategy shadow %s\n", client.Printable(string(s.Type)), whatOfShadow(s.Shadow), verdictOfShadow(s.Shadow), client.Printable(string(s.Type)))
		}
		if p := s.Previous; p != nil && err == nil {
			_, err = fmt.Fprintf(w, "%s: a rollback goes back to %s\n", client.Printable(string(s.Type)), previousText(p))
		}
	}
	return err
}

// units shortens a number of fuel units to some three digits.
func units(n *uint64) string {
	if n == nil {
		return "-"
	}
	for _, u := range []struct {
		size uint64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if *n >= u.size {
			v := float64(*n) / float64(u.size)
			digits := 0
			if v < 99.95 {
				digits = 1
			}
			return strings.TrimSuffix(strconv.FormatFloat(v, 'f', digits, 64), ".0") + u.name
		}
	}
	return strconv.FormatUint(*n, 10)
}

func micros(n *uint64) string {
	if n == nil {
		return "-"
	}
	return (time.Duration(*n) * time.Microsecond).String()
}

// short keeps as much of a digest as people compare, and any other text as it is.
func short(text string) string {
	if n := len(digestPrefix) + 12; len(text) > n && strings.HasPrefix(text, digestPrefix) {
		return text[:n] + "…"
	}
	return text
}

func newStrategySwapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "swap TYPE [FILE|builtin:NAME|sha256:HEX]",
		Short: "Replace the strategy of a type while it runs",
		Long: `Replace the strategy of a type while it runs: by a file, by one that this program carries, or by one that the cluster has.
Configuration and limits stay unless they are given; without a strategy only they change. A strategy that is refused
leaves the old one running.

A swap is recorded before the module is ready on the coordinator. --wait returns once it has given its first decision, or once the time is up and it
is active but nobody has asked it yet, as where no shard has a home or rebalancing is paused. It fails with exit code 1 where a call fails, the
strategy before it comes back, or the module is not ready in time.`,
		Example: "  drover strategy swap counter builtin:rendezvous\n  drover strategy swap counter mine.wasm --strategy-config '{\"threshold\":2}' --budget 50ms",
		Args:    wants("TYPE", "[STRATEGY]"),
	}
	completeArgs(cmd, 1, completeTypes, completeBuiltins)
	change := addChangeFlags(cmd)
	wait := waitFlag(cmd)
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		if err := checkWait(cmd, *wait); err != nil {
			return err
		}
		body, source, err := change.body(args[1:])
		if err != nil {
			return err
		}
		if source == "" && !change.given {
			return usageError(fmt.Errorf("neither a strategy nor anything to change about %s's is given", args[0]), "drover strategy swap "+args[0]+" builtin:rendezvous")
		}
		v, err := c.Swap(cmd.Context(), args[0], sourceParam(source), false, body)
		if err != nil {
			return err
		}
		warn(cmd, v.Warnings)
		if *wait > 0 {
			if v.StrategyView, err = waitWorked(cmd.Context(), c, v.StrategyView, *wait); err != nil {
				return err
			}
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), swapped(v.StrategyView))
		return err
	})
}

// changeFlags are what can be changed about a strategy.
type changeFlags struct {
	cmd         *cobra.Command
	config      *string
	fuel        *uint64
	budget      *string
	memory      *string
	maxFailures *uint32
	moves       *uint32
	given       bool // any of them; body sees it
}

func addChangeFlags(cmd *cobra.Command) *changeFlags {
	f := cmd.Flags()
	return &changeFlags{
		cmd:         cmd,
		config:      f.String("strategy-config", "", "configuration as a `JSON` object, as in [type.config]"),
		fuel:        f.Uint64("fuel", 0, "most work of one call, in units"),
		budget:      f.String("budget", "", "most `time` of one call, such as 100ms"),
		memory:      f.String("memory", "", "most memory, a `size` such as 16MiB"),
		maxFailures: f.Uint32("max-failures", 0, "failures in a row after which the last one that worked comes back"),
		moves:       f.Uint32("moves-per-pass", 0, "most shards on the move at once"),
	}
}

// body makes the request's, with the strategy that the first argument names, if there is one, and gives that strategy's source, which is of no use to the
// node where it is a digest: see sourceParam.
func (c *changeFlags) body(args []string) (body httpapi.SwapBody, source string, err error) {
	var limits httpapi.SwapLimits
	for name, set := range map[string]func(){
		"fuel": func() { limits.Fuel = c.fuel }, "budget": func() { limits.Budget = c.budget }, "memory": func() { limits.Memory = c.memory },
		"max-failures": func() { limits.MaxFailures = c.maxFailures }, "moves-per-pass": func() { limits.MovesPerPass = c.moves },
	} {
		if c.cmd.Flags().Changed(name) {
			set()
			body.Limits = &limits
		}
	}
	if c.cmd.Flags().Changed("strategy-config") {
		if _, err := strategyConfig(*c.config); err != nil {
			return body, "", err
		}
		body.Config = json.RawMessage(*c.config)
	}
	c.given = body.Config != nil || body.Limits != nil
	if len(args) > 0 {
		source, err = takeStrategy(&body, args[0])
	}
	return body, source, err
}

func sourceParam(source string) string {
	if strings.HasPrefix(source, digestPrefix) {
		return ""
	}
	return source
}

// waitFlag is that of the commands that activate a strategy.
func waitFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("wait", 0, "wait up to this `time` for the strategy's first decision")
}

func checkWait(cmd *cobra.Command, wait time.Duration) error {
	if wait < 0 {
		return usageError(errors.New("--wait needs a time above 0"), cmd.CommandPath()+" … --wait 1m")
	}
	return nil
}

// warn tells what is odd about a strategy that was not refused.
func warn(cmd *cobra.Command, warnings []httpapi.Finding) {
	for _, f := range warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "drover: warning: %s\n", client.Printable(f.Rule+": "+f.Message))
		if f.Fix != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "drover:   fix: %s\n", client.Printable(f.Fix))
		}
	}
}

// nameOf is what a strategy calls itself, or where it is from until that is known.
func nameOf(v httpapi.StrategyView) string { return orDash(cmp.Or(v.Name, short(v.Source))) }

// whatOf names a strategy on a terminal.
func whatOf(v httpapi.StrategyView) string {
	return client.Printable(fmt.Sprintf("%s (%s)", nameOf(v), short(v.Digest)))
}

// swapped says how a swap stands.
func swapped(v httpapi.StrategyView) string {
	typ, what := client.Printable(string(v.Type)), whatOf(v)
	switch {
	case v.State == httpapi.StrategyPreparing:
		return fmt.Sprintf("%s: %s is recorded and is being prepared; drover strategy list shows when it is active", typ, what)
	case v.State == httpapi.StrategyMissing:
		return fmt.Sprintf("%s: %s is recorded, and its module cannot be had at present; drover strategy list shows when it is active", typ, what)
	case v.State == httpapi.StrategyReverted:
		return fmt.Sprintf("%s runs %s again: the one asked for failed", typ, what)
	case !v.Worked && v.LastFailure != nil:
		return fmt.Sprintf("%s runs %s, whose last call failed: %s", typ, what, failureText(*v.LastFailure))
	case !v.Worked:
		return fmt.Sprintf("%s runs %s, which has not decided anything yet", typ, what)
	}
	return fmt.Sprintf("%s runs %s", typ, what)
}

// swapPoll is how often a waiting swap looks.
const swapPoll = 200 * time.Millisecond

// waitWorked returns once the strategy that was asked for has given a decision, or the time is up and nobody has asked it. Any other end is an error.
func waitWorked(ctx context.Context, c *client.Client, asked httpapi.StrategyView, limit time.Duration) (httpapi.StrategyView, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for v := asked; ; {
		replaced := v.Digest != asked.Digest || v.State == httpapi.StrategyReverted
		f := v.LastFailure
		switch {
		case replaced && f != nil && f.Digest == asked.Digest:
			return v, withHint(fmt.Errorf("%s failed, and %s runs %s again: %s", whatOf(asked), client.Printable(string(v.Type)), whatOf(v), failureText(*f)),
				"try the strategy on an input: drover strategy run")
		case replaced:
			return v, withHint(fmt.Errorf("%s is not active: %s runs %s", whatOf(asked), client.Printable(string(v.Type)), whatOf(v)),
				"it was replaced meanwhile: drover strategy list")
		case v.Worked:
			return v, nil
		case f != nil && f.Verdict != "missing": // missing: it is fetched and compiled at present
			return v, withHint(fmt.Errorf("%s is active, and its first call failed: %s", whatOf(asked), failureText(*f)),
				fmt.Sprintf("after max_failures in a row the strategy before it comes back; now: drover strategy swap %s …", client.Printable(string(v.Type))))
		}
		select {
		case <-ctx.Done():
			if v.State == httpapi.StrategyActive {
				return v, nil
			}
			return v, withHint(fmt.Errorf("%s is still %s after %s", whatOf(v), client.Printable(v.State.String()), limit), "it may become active later: drover strategy list")
		case <-time.After(swapPoll):
		}
		list, err := c.Strategies(ctx)
		if ctx.Err() != nil {
			continue // the time is up: say so above
		}
		if err != nil {
			return v, err
		}
		i := slices.IndexFunc(list.Strategies, func(s httpapi.StrategyView) bool { return s.Type == asked.Type })
		if i < 0 {
			return v, fmt.Errorf("the cluster has no type %s any more", asked.Type)
		}
		v = list.Strategies[i]
	}
}

// failureText gives verdict and text of a failure on one line.
func failureText(f httpapi.FailureView) string {
	if f.Verdict == "" {
		return client.Printable(f.Text)
	}
	return client.Printable(f.Verdict + ": " + f.Text)
}

// takeStrategy puts the named strategy into the body and gives its source: builtin:NAME, the name of a file, or the digest.
func takeStrategy(body *httpapi.SwapBody, arg string) (source string, err error) {
	if strings.HasPrefix(arg, digestPrefix) {
		if _, err := httpapi.ParseDigest(arg); err != nil {
			return "", usageError(err, "drover strategy list --json shows whole digests")
		}
		body.Digest = arg
		return arg, nil
	}
	if body.Module, err = readModule(arg); err != nil {
		return "", err
	}
	if len(body.Module) == 0 {
		return "", withHint(fmt.Errorf("%s is empty", arg), "build it for wasm; drover strategy check says whether a node would take it")
	}
	if strings.HasPrefix(arg, builtinPrefix) {
		return arg, nil
	}
	return filepath.Base(arg), nil
}
