package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newRootCommand builds the whole command tree. A new command group is one line here and a file of its own.
func newRootCommand() *cobra.Command {
	root := newGroup("drover", "Run sharded stateful services, placed by WebAssembly strategies",
		newRunCommand(),
		newConfigCommand(),
		newTLSCommand(),
		newClusterCommand(),
		newShardCommand(),
		newEntityCommand(),
		newStrategyCommand(),
		newVersionCommand(),
	)
	root.Long = root.Short + `.

Start a node:         drover run --config node.toml
Talk to an entity:    drover entity ask counter user-42 '{"add":2}'
Try out a strategy:   drover strategy run builtin:leastshard --op rebalance --input snapshot.json

Commands that talk to a cluster take --address (or DROVER_ADDRESS) and --token (or DROVER_TOKEN).
Exit codes: 0 done, 2 usage or configuration, 1 anything else; strategy check, describe and run use 3 too, run 4.`
	return root
}

// run executes one command line and returns the exit code of the process. Output goes to stdout, errors and hints to
// stderr.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.InitDefaultCompletionCmd(args...)
	root.InitDefaultHelpCmd()
	strictDefaults(root)

	// Whatever fails before a command's own code runs is a mistake in the command line: flags, arguments, names.
	started := false
	prepare(root, &started)

	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	if !started {
		err = asUsage(err, cmd)
	}
	return report(stderr, err)
}

// strictDefaults makes the commands that cobra brings refuse what they do not know: by themselves they print a help and succeed.
func strictDefaults(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, runGroup
		case "help":
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				target, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 && target.HasSubCommands() {
					err = unknownCommand(target, rest[0])
				}
				if err != nil {
					return err
				}
				return target.Help()
			}
		}
	}
}

// prepare walks the tree once: a command that names no argument rule takes none, and entering a command's code is noted.
func prepare(cmd *cobra.Command, started *bool) {
	if inner := cmd.RunE; inner != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			*started = true
			return inner(c, args)
		}
	}
	if cmd.Args == nil && !cmd.HasSubCommands() {
		cmd.Args = cobra.NoArgs
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && !strings.HasPrefix(sub.Name(), "__") {
			prepare(sub, started)
		}
	}
}

// newGroup makes a command that only holds others. Called without one it prints its help; an unknown one is a usage
// error with suggestions.
func newGroup(use, short string, subs ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE:  runGroup,

		SuggestionsMinimumDistance: 2,
	}
	group.AddCommand(subs...)
	return group
}

func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

func unknownCommand(group *cobra.Command, name string) error {
	hint := fmt.Sprintf("run '%s --help' for the commands there are", group.CommandPath())
	if near := group.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + group.CommandPath() + " " + strings.Join(near, ", or ") + "?"
	}
	return usageError(fmt.Errorf("unknown command %q for %q", name, group.CommandPath()), hint)
}

// jsonFlag adds --json, by which every command prints one JSON value instead of text for people.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON for machines")
}

// writeJSON prints one value, indented, with a newline.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
