package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/strategies"
)

// completePatience bounds what a shell waits for a cluster when it completes a word.
const completePatience = 500 * time.Millisecond

// completer lists what an argument may be. The client is nil where no cluster can be asked.
type completer func(ctx context.Context, c *client.Client, args []string) []string

// completeArgs completes each argument in its turn by what there is; nil completes nothing. Files says for which further ones the shell's own files
// are offered too: the index of the argument, or below 0 for none.
func completeArgs(cmd *cobra.Command, files int, by ...completer) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if files == len(args) {
			directive = cobra.ShellCompDirectiveDefault
		}
		if len(args) >= len(by) || by[len(args)] == nil {
			return nil, directive
		}
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completePatience)
		defer cancel()
		var out []string
		for _, s := range by[len(args)](ctx, completeClient(cmd), args) {
			if strings.HasPrefix(s, begun) {
				out = append(out, s)
			}
		}
		return out, directive
	}
}

// completeClient is the client that the command line so far asks for.
func completeClient(cmd *cobra.Command) *client.Client {
	var f clientFlags
	if flag := cmd.Flags().Lookup("address"); flag != nil {
		f.address = flag.Value.String()
	}
	if flag := cmd.Flags().Lookup("token"); flag != nil {
		f.token = flag.Value.String()
	}
	c, err := f.open()
	if err != nil {
		return nil
	}
	return c
}

// completeTypes lists the cluster's types.
func completeTypes(ctx context.Context, c *client.Client, _ []string) (out []string) {
	if c == nil {
		return nil
	}
	v, err := c.Strategies(ctx) // a cluster that does not answer completes nothing
	if err != nil {
		return nil
	}
	for _, s := range v.Strategies {
		out = append(out, string(s.Type))
	}
	return out
}

// completeNodes lists the cluster's nodes.
func completeNodes(ctx context.Context, c *client.Client, _ []string) (out []string) {
	if c == nil {
		return nil
	}
	v, err := c.Members(ctx)
	if err != nil {
		return nil
	}
	for _, m := range v.Members {
		out = append(out, string(m.Name))
	}
	return out
}

// completeShards lists the shards of the type before it.
func completeShards(ctx context.Context, c *client.Client, args []string) (out []string) {
	if c == nil || len(args) == 0 {
		return nil
	}
	v, err := c.Shards(ctx, args[0])
	if err != nil {
		return nil
	}
	for _, s := range v.Shards {
		out = append(out, fmt.Sprint(s.Shard))
	}
	return out
}

// completeBuiltins lists the strategies that this program carries.
func completeBuiltins(context.Context, *client.Client, []string) (out []string) {
	for _, name := range strategies.Names() {
		out = append(out, builtinPrefix+name)
	}
	return out
}
