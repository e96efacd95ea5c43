package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// wants is the argument rule of a command with these arguments, in order; the ones in brackets may be left out. What is missing is named.
func wants(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		var err error
		switch {
		case len(args) > len(names):
			err = fmt.Errorf("%q is one argument too many", args[len(names)])
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			missing := names[len(args):]
			for i, name := range missing {
				if strings.HasPrefix(name, "[") {
					missing = missing[:i]
					break
				}
			}
			verb := " is"
			if len(missing) > 1 {
				verb = " are"
			}
			err = fmt.Errorf("%s%s missing", strings.Join(missing, " and "), verb)
		default:
			return nil
		}
		return usageError(err, fmt.Sprintf("usage: %s; run '%s --help' for more", cmd.UseLine(), cmd.CommandPath()))
	}
}
