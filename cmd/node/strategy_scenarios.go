package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/host/harness/scenario"
	"github.com/droverhq/drover/internal/client"
)

// testResult is what strategy test prints for machines.
type testResult struct {
	Strategy  string             `json:"strategy"`
	Digest    host.Digest        `json:"digest"`
	Passed    int                `json:"passed"`
	Failed    int                `json:"failed"`
	Scenarios []*scenario.Result `json:"scenarios"`

	verbose bool
}

func newStrategyTestCommand() *cobra.Command {
	f := callFlags{repeat: 1}
	verbose := false
	cmd := &cobra.Command{
		Use:   "test FILE|builtin:NAME [SCENARIOS...]",
		Short: "Play scenario files against a strategy, and say what is not as expected",
		Long: `Play scenario files against a strategy, and say what is not as expected: each is a cluster, what happens to it, and what
the strategy is expected to answer, as TOML (docs/scenario-files.md).

SCENARIOS are files, directories (all .toml files in and below them) and patterns; without any it is the directory
scenarios beside FILE.

Exit codes: 0 all is as expected, 1 something is not, 2 usage, or a scenario file that is wrong, 3 the module is refused.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return oneStrategy(cmd, args)
			}
			return nil
		},
	}
	completeArgs(cmd, 0, completeBuiltins)
	first := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // files
		}
		return first(cmd, args, begun)
	}
	flags := cmd.Flags()
	flags.BoolVarP(&verbose, "verbose", "v", false, "name the scenarios that passed too")
	flags.StringVar(&f.engine, "engine", host.Compiler.String(), "compiler or interpreter")
	f.limits = limitFlags(cmd)
	flags.DurationVar(&f.budget, "budget", lab.Patience, "wall-clock time of one call; what a test says should not depend on how busy the machine is")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		engine, limits, err := f.check(cmd)
		if err != nil {
			return err
		}
		wasm, err := readModule(args[0])
		if err != nil {
			return err
		}
		scenarios, err := loadScenarios(args[0], args[1:])
		if err != nil {
			return err
		}
		s, err := labStrategy(cmd, args[0], wasm, engine, limits)
		if err != nil {
			return err
		}
		res := &testResult{Strategy: args[0], Digest: host.DigestOf(wasm), verbose: verbose}
		if err := errors.Join(res.run(cmd.Context(), s, scenarios), s.Close(context.WithoutCancel(cmd.Context()))); err != nil {
			return err
		}
		return tell(cmd, *asJSON, res, args[0])
	}
	return cmd
}

// labStrategy compiles a module for questions by package lab. One that is refused is reported, and ends the command.
func labStrategy(cmd *cobra.Command, name string, wasm []byte, engine host.Engine, limits host.Limits) (*lab.Strategy, error) {
	ctx := cmd.Context()
	open := func(cache string) (*lab.Strategy, error) {
		s := lab.Module(name, wasm, limits).By(host.Options{Engine: engine, CacheDir: cache})
		err := s.Compile(ctx)
		if err == nil {
			return s, nil
		}
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	s, err := open(cacheDir())
	if err != nil && !errors.Is(err, host.ErrRefused) && ctx.Err() == nil {
		trouble := client.Printable(err.Error())
		if s, err = open(""); err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "drover: warning: %s: each run compiles anew\n", trouble)
		}
	}
	if refused, ok := errors.AsType[*host.RefusedError](err); ok {
		rep := host.Report{Digest: host.DigestOf(wasm), ABI: host.ABI, Findings: refused.Findings}
		if err := printReport(cmd.ErrOrStderr(), name, rep); err != nil {
			return nil, err
		}
		return nil, exitWith(exitRefused)
	}
	return s, err
}

// loadScenarios reads the files that the paths name, or those beside the strategy, and says everything that is wrong with them.
func loadScenarios(strategy string, paths []string) ([]*scenario.Scenario, error) {
	if len(paths) == 0 {
		beside := filepath.Join(filepath.Dir(strategy), "scenarios")
		if info, err := os.Stat(beside); strings.HasPrefix(strategy, builtinPrefix) || err != nil || !info.IsDir() {
			return nil, usageError(errors.New("no scenario files are named, and there is no directory scenarios beside the strategy"),
				"name files, directories or patterns; docs/scenario-files.md says how to write them")
		}
		paths = []string{beside}
	}
	files, err := scenarioFiles(paths)
	if err != nil {
		return nil, err
	}
	var all []*scenario.Scenario
	var wrong scenario.Errors
	for _, file := range files {
		scenarios, err := scenario.Load(file)
		if bad, ok := errors.AsType[scenario.Errors](err); ok {
			wrong = append(wrong, bad...)
		} else if err != nil {
			return nil, err
		}
		all = append(all, scenarios...)
	}
	if len(wrong) > 0 {
		return nil, usageError(wrong, "docs/scenario-files.md has every key")
	}
	return all, nil
}

// scenarioFiles returns the files that paths name: files, directories and patterns, each file once.
func scenarioFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		named := []string{path}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?[") {
			if named, err = filepath.Glob(path); err == nil && len(named) == 0 {
				err = errors.New("no file is named so")
			}
			if err != nil {
				return nil, usageError(fmt.Errorf("%s: %w", path, err), "")
			}
		} else if err != nil {
			return nil, err
		} else if info.IsDir() {
			if named, err = tomlBelow(path); err != nil {
				return nil, err
			}
			if len(named) == 0 {
				return nil, usageError(fmt.Errorf("%s: there is no .toml file in this directory", path), "")
			}
		}
		for _, file := range named {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}

func tomlBelow(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".toml" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

func (r *testResult) run(ctx context.Context, s *lab.Strategy, scenarios []*scenario.Scenario) error {
	r.Scenarios = []*scenario.Result{}
	for _, one := range scenarios {
		res, err := one.Run(ctx, s)
		if err != nil {
			return err
		}
		if r.Scenarios = append(r.Scenarios, res); res.OK {
			r.Passed++
		} else {
			r.Failed++
		}
	}
	return nil
}

func (r *testResult) print(w io.Writer, _ string) error {
	var b strings.Builder
	for _, s := range r.Scenarios {
		if s.OK && r.verbose {
			fmt.Fprintf(&b, "ok    %s: %s\n", s.File, s.Name)
		} else if !s.OK {
			fmt.Fprintf(&b, "FAIL  %s: %s\n", s.File, s.Name)
		}
		for _, f := range s.Failures {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(f.Text, "\n"))
		}
		if !s.OK {
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "%d passed, %d failed\n", r.Passed, r.Failed)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *testResult) exit() error {
	if r.Failed > 0 {
		return exitWith(exitFailure)
	}
	return nil
}
