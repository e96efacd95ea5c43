package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/strategies"
)

// Exit codes of strategy check, describe and run, beside the common ones (spec 1.6).
const (
	exitRefused = 3 // the module was not admitted
	exitVerdict = 4 // a call ended in another verdict than ok
)

// builtinPrefix marks a strategy that the program carries.
const builtinPrefix = "builtin:"

func newStrategyCommand() *cobra.Command {
	group := newGroup("strategy", "Try out placement strategies, and replace those of a cluster",
		newStrategyCheckCommand(),
		newStrategyDescribeCommand(),
		newStrategyRunCommand(),
		newStrategyTestCommand(),
		newStrategyBenchCommand(),
		newStrategyProfileCommand(),
		newStrategyReplayCommand(),
		newStrategyBacktestCommand(),
		newStrategyListCommand(),
		newStrategySwapCommand(),
		newStrategyShadowCommand(),
		newStrategyPromoteCommand(),
		newStrategyRollbackCommand(),
	)
	for _, cmd := range group.Commands() {
		if cmd.ValidArgsFunction == nil && cmd.Args != nil { // those of one module
			completeArgs(cmd, 0, completeBuiltins)
		}
	}
	return group
}

// oneStrategy is the argument rule of commands about one module.
func oneStrategy(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("want one strategy, a .wasm file or %sNAME, got %d arguments", builtinPrefix, len(args))
}

// readModule returns the bytes of a .wasm file or of a built-in strategy.
func readModule(arg string) ([]byte, error) {
	if name, ok := strings.CutPrefix(arg, builtinPrefix); ok {
		wasm, _, ok := strategies.Builtin(name)
		if !ok {
			return nil, usageError(fmt.Errorf("no built-in strategy %q", name), "there are "+strings.Join(strategies.Names(), ", "))
		}
		return wasm, nil
	}
	wasm, err := readFile(arg, host.MaxModuleBytes+1)
	if errors.Is(err, fs.ErrNotExist) {
		hint := fmt.Sprintf("name a .wasm file, or a strategy that the program carries: %s%s", builtinPrefix, strings.Join(strategies.Names(), ", "+builtinPrefix))
		if _, _, known := strategies.Builtin(arg); known {
			hint = fmt.Sprintf("the built-in strategy is %s%s", builtinPrefix, arg)
		}
		err = withHint(err, hint)
	}
	return wasm, err
}

// readFile reads a file, or standard input for "-" in callers that pass it on, up to a size that is surely too large.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readUpTo(f, path, most)
}

func readUpTo(r io.Reader, name string, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most))
	if _, named := errors.AsType[*fs.PathError](err); named {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// cacheDir is where machine code is kept between runs, so that a module of standard Go costs its half a second once. Without a home directory
// nothing is kept.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "drover")
}

// withRuntime runs f with a runtime of its own and closes it. A cache that cannot be had, or is not safe to use, costs time and is told.
func withRuntime(ctx context.Context, engine host.Engine, f func(*host.Runtime) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	rt, err := host.NewRuntime(ctx, host.Options{Engine: engine, CacheDir: cacheDir()})
	if err != nil {
		trouble := client.Printable(err.Error())
		if rt, err = host.NewRuntime(ctx, host.Options{Engine: engine}); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "drover: warning: %s: each run compiles anew\n", trouble)
	}
	return errors.Join(f(rt), rt.Close(ctx))
}

func newStrategyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE|builtin:NAME",
		Short: "Say whether a node would admit a module, and why not",
		Long: `Say whether a node would admit a module, and why not: the same checks as at every load, the warm-up call
included. Each finding names a rule, listed in docs/strategy-rules.md, and what to do about it.
Exit code 0 if the module is admitted, 3 if it is refused.`,
		Args: oneStrategy,
	}
	settings := cmd.Flags().String("strategy-config", "", "configuration as a `JSON` object, as in [type.config]")
	limits := limitFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		most, err := limits()
		if err != nil {
			return err
		}
		wasm, err := readModule(args[0])
		if err != nil {
			return err
		}
		encoded, err := strategyConfig(*settings)
		if err != nil {
			return err
		}
		return withRuntime(cmd.Context(), host.Compiler, func(rt *host.Runtime) error {
			rep, err := rt.Check(cmd.Context(), wasm, most, encoded)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if *asJSON {
				err = writeJSON(out, rep)
			} else {
				err = printReport(out, args[0], rep)
			}
			if err == nil && !rep.OK {
				return exitWith(exitRefused)
			}
			return err
		})
	}
	return cmd
}

// limitFlags adds --fuel and --memory, which a type has in node.toml and a module is admitted under.
func limitFlags(cmd *cobra.Command) func() (host.Limits, error) {
	fuel := cmd.Flags().Int64("fuel", host.DefaultFuel, "fuel of one call, in units")
	memory := cmd.Flags().String("memory", (host.DefaultMemoryPages * host.PageBytes * config.Bytes(1)).String(), "most memory, a `size`")
	return func() (host.Limits, error) {
		help := fmt.Sprintf("run '%s --help'", cmd.CommandPath())
		if *fuel < 1 || *fuel > host.MaxFuel {
			return host.Limits{}, usageError(fmt.Errorf("--fuel %d: between 1 and %d", *fuel, int64(host.MaxFuel)), help)
		}
		size, err := config.ParseBytes(*memory)
		if err == nil && (size < host.PageBytes || size > host.MaxMemoryPages*host.PageBytes || size%host.PageBytes != 0) {
			err = errors.New("want a multiple of 64KiB, at most 64MiB")
		}
		if err != nil {
			return host.Limits{}, usageError(fmt.Errorf("--memory %q: %w", *memory, err), help)
		}
		return host.Limits{Fuel: *fuel, MemoryPages: uint32(size / host.PageBytes)}, nil
	}
}

// strategyConfig encodes a configuration from the command line; none is nil.
func strategyConfig(text string) (pluginapi.Config, error) {
	if text == "" {
		return nil, nil
	}
	c, err := snapshotfile.ParseConfig([]byte(text))
	if err != nil {
		return nil, usageError(fmt.Errorf("--strategy-config: %w", err), `write it as '{"threshold":2}'`)
	}
	return c, nil
}

func printReport(w io.Writer, name string, rep host.Report) error {
	var b strings.Builder
	if rep.OK {
		fmt.Fprintf(&b, "%s: admitted (contract %d, %s)\n", name, rep.ABI, rep.Digest)
	} else { // of which contract it is, if of any, nobody has found out
		fmt.Fprintf(&b, "%s: refused (%s)\n", name, rep.Digest)
	}
	for _, f := range rep.Findings {
		fmt.Fprintf(&b, "  %s: %s\n", f.Severity, f)
		if f.Fix != "" {
			fmt.Fprintf(&b, "    fix: %s\n", f.Fix)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// description is what describe prints for machines.
type description struct {
	Name    string                  `json:"name"`
	Version string                  `json:"version"`
	Summary string                  `json:"summary"`
	Config  map[string]describedKey `json:"config"`
	Digest  host.Digest             `json:"digest"`
	ABI     int                     `json:"abi"`
}

type describedKey struct {
	Type    string `json:"type"`
	Default any    `json:"default"`
	Help    string `json:"help"`
}

func newStrategyDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe FILE|builtin:NAME",
		Short: "Show what a strategy says it is, and its configuration keys",
		Args:  oneStrategy,
	}
	limits := limitFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		most, err := limits()
		if err != nil {
			return err
		}
		wasm, err := readModule(args[0])
		if err != nil {
			return err
		}
		return withRuntime(cmd.Context(), host.Compiler, func(rt *host.Runtime) error {
			d, err := describeModule(cmd.Context(), rt, wasm, most)
			if re, ok := errors.AsType[*host.RefusedError](err); ok {
				rep := host.Report{Digest: host.DigestOf(wasm), ABI: host.ABI, Findings: re.Findings}
				if err := printReport(cmd.ErrOrStderr(), args[0], rep); err != nil {
					return err
				}
				return exitWith(exitRefused)
			} else if err != nil {
				err = fmt.Errorf("%s: %w", args[0], err)
				if errors.Is(err, host.ErrNoDescription) {
					err = withHint(err, "export drover_describe, or give the strategy a Describe; it is admitted without, too")
				}
				return err
			}
			if *asJSON {
				return writeJSON(cmd.OutOrStdout(), describe(d, host.DigestOf(wasm)))
			}
			return printDescription(cmd.OutOrStdout(), d, host.DigestOf(wasm))
		})
	}
	return cmd
}

// describeModule admits a module and asks it what it is. One that refuses the empty configuration is asked before it is configured.
func describeModule(ctx context.Context, rt *host.Runtime, wasm []byte, limits host.Limits) (pluginapi.Description, error) {
	s, err := rt.Load(ctx, wasm, limits, nil)
	if err == nil {
		d, err := s.Describe(ctx)
		return d, errors.Join(err, s.Close(ctx))
	}
	if host.RuleOf(err) != host.RuleConfigure {
		return pluginapi.Description{}, err
	}
	m, merr := rt.Compile(ctx, wasm, limits)
	if merr != nil {
		return pluginapi.Description{}, merr
	}
	d, derr := m.Describe(ctx)
	if derr = errors.Join(derr, m.Close(ctx)); derr != nil {
		return pluginapi.Description{}, err
	}
	return d, nil
}

func describe(d pluginapi.Description, digest host.Digest) description {
	out := description{Name: d.Name, Version: d.Version, Summary: d.Summary, Config: map[string]describedKey{}, Digest: digest, ABI: host.ABI}
	for _, k := range d.Config {
		out.Config[k.Key] = describedKey{k.Type, jsonValue(k.Default), k.Help}
	}
	return out
}

// jsonValue returns a default as JSON can hold it: NaN and the infinities as text.
func jsonValue(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = jsonValue(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = jsonValue(v[key])
		}
		return out
	}
	return v
}

// defaultText returns a default for people, as JSON, which leaves no control character as it is.
func defaultText(v any) string {
	b, err := json.Marshal(jsonValue(v))
	if err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	return string(b)
}

func printDescription(w io.Writer, d pluginapi.Description, digest host.Digest) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", d.Name, d.Version)
	if d.Summary != "" {
		fmt.Fprintf(&b, "%s\n", d.Summary)
	}
	fmt.Fprintf(&b, "contract %d, %s\n", host.ABI, digest)
	if len(d.Config) == 0 {
		b.WriteString("\nNo configuration.\n")
	} else {
		b.WriteString("\nConfiguration ([type.config] in node.toml):\n")
	}
	for _, k := range d.Config {
		fmt.Fprintf(&b, "  %s (%s", k.Key, k.Type)
		if k.Default != nil {
			fmt.Fprintf(&b, ", default %s", defaultText(k.Default))
		}
		b.WriteString(")")
		if k.Help != "" {
			fmt.Fprintf(&b, ": %s", k.Help)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
