package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/config"
)

// configFlags are the flags of every command that reads a node's configuration.
type configFlags struct {
	cmd     *cobra.Command
	file    string
	set     []string
	noFiles bool // the files that the configuration names need not be there
}

// addConfigFlags adds --config, which may be an argument too, and --set.
func addConfigFlags(cmd *cobra.Command) *configFlags {
	f := &configFlags{cmd: cmd}
	cmd.Args = wants("[FILE]")
	cmd.Flags().StringVar(&f.file, "config", "node.toml", "configuration `file`")
	// Not a StringSlice: that would split lists at their commas.
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "override one `key=value`: a dotted key of the file, a TOML value or bare word; repeatable")
	return f
}

// load reads defaults, file, environment and flags. Every error is a usage error and names key and value.
func (f *configFlags) load(args []string) (*config.Config, error) {
	if len(args) > 0 {
		if f.cmd.Flags().Changed("config") && f.file != args[0] {
			return nil, usageError(fmt.Errorf("both %q and --config %q are given", args[0], f.file), "name one file")
		}
		f.file = args[0]
	}
	c, err := config.Load(config.Options{File: f.file, Env: os.Environ(), Set: f.set, Files: !f.noFiles})
	if err == nil {
		return c, nil
	}
	if errors.Is(err, config.ErrNoFile) {
		return nil, usageError(err, "name another with --config, or make one: drover config example > "+f.file)
	}
	return nil, usageError(err, "every key is explained in docs/config.md and in the output of 'drover config example'")
}

func newConfigCommand() *cobra.Command {
	return newGroup("config", "Check and show the configuration of a node",
		newConfigCheckCommand(),
		newConfigShowCommand(),
		newConfigExampleCommand(),
	)
}

// problem is an error of a configuration for machines.
type problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Source  string `json:"source,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
	NotYet  bool   `json:"notYet,omitempty"`
}

func newConfigCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Say everything that is wrong with a configuration",
		Long: `Say everything that is wrong with a configuration: unknown keys, wrong types, values out of range, and what
this version cannot do yet, each with its place in the file; then whether a node would take what it names: the files of [tls], and
the strategies, as "strategy check" says it. Nothing is started. Exit code 2 if anything is wrong.`,
	}
	flags, asJSON := addConfigFlags(cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.load(args)
		var warnings []string
		if err == nil {
			var odd []string
			odd, err = checkNamed(cmd.Context(), c)
			warnings = append(c.Warnings(), odd...)
		}
		if *asJSON {
			return checkJSON(cmd, warnings, err)
		}
		if err != nil {
			return err
		}
		for _, w := range warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "drover: warning: %s\n", w)
		}
		names := []string{}
		for _, t := range c.Types {
			names = append(names, t.Name)
		}
		if len(names) == 0 {
			names = append(names, "none")
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is fine: node %s of cluster %s; types: %s\n",
			flags.file, c.Name, c.Cluster, strings.Join(names, ", "))
		return err
	}
	return cmd
}

func checkJSON(cmd *cobra.Command, warnings []string, err error) error {
	out := struct {
		OK       bool      `json:"ok"`
		Errors   []problem `json:"errors"`
		Warnings []string  `json:"warnings"`
	}{OK: err == nil, Errors: []problem{}, Warnings: []string{}}
	if err == nil {
		out.Warnings = append(out.Warnings, warnings...)
		return writeJSON(cmd.OutOrStdout(), out)
	}
	list, ok := errors.AsType[config.Errors](err)
	if one, single := errors.AsType[*config.Error](err); !ok && single { // the file itself cannot be read
		list = config.Errors{one}
	}
	if refused, ok := errors.AsType[*refusals](err); ok {
		for _, r := range refused.list {
			out.Errors = append(out.Errors, problem{Key: r.key, Message: r.text})
		}
	} else if len(list) == 0 { // such as a cache that cannot be written
		return err
	}
	for _, e := range list {
		out.Errors = append(out.Errors, problem{File: e.File, Line: e.Line, Column: e.Col, Source: e.Source, Key: e.Key, Message: e.Message, NotYet: e.NotYet})
	}
	if err := writeJSON(cmd.OutOrStdout(), out); err != nil {
		return err
	}
	return exitWith(exitUsage)
}

func newConfigShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print the effective configuration without secrets",
		Long: `Print what a node would run with: defaults, file, environment and --set, in that order. Tokens and keys are
left out; apart from them the output is a node.toml that means the same.`,
	}
	flags, asJSON := addConfigFlags(cmd), jsonFlag(cmd)
	flags.noFiles = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.load(args)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), c.Tree())
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), c.Show())
		return err
	}
	return cmd
}

func newConfigExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a node.toml with every key, its default and a comment",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Sample())
			return err
		},
	}
}
