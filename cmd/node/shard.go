package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

func newShardCommand() *cobra.Command {
	return newGroup("shard", "Look at one shard and place it by hand",
		newShardExplainCommand(),
		newShardMoveCommand(),
		newShardPinCommand(),
		newShardUnpinCommand(),
	)
}

// shardNumber reads SHARD.
func shardNumber(arg string) (sharding.ShardID, error) {
	n, err := strconv.ParseUint(arg, 10, 32)
	if err != nil {
		return 0, usageError(fmt.Errorf("%q is no shard: want its number, from 0", arg), "drover cluster shards --list shows them")
	}
	return sharding.ShardID(n), nil
}

func newShardExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain TYPE SHARD",
		Short:   "Say why a shard is where it is",
		Example: "  drover shard explain counter 42",
		Args:    wants("TYPE", "SHARD"),
	}
	completeArgs(cmd, -1, completeTypes, completeShards)
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		shard, err := shardNumber(args[1])
		if err != nil {
			return err
		}
		v, err := c.Explain(cmd.Context(), args[0], shard)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		return printExplanation(cmd.OutOrStdout(), v)
	})
}

func printExplanation(w io.Writer, v httpapi.ExplainView) error {
	where := "on " + string(v.Node) + ", " + v.State
	if v.Node == "" {
		where = "without a home (" + v.State + ")"
	}
	fmt.Fprintln(w, client.Printable(fmt.Sprintf("%s %d: %s, epoch %d", v.Type, v.Shard, where, v.Epoch)))
	return table(w, func(row func(...string)) {
		decided, pass := short(v.Digest), ""
		switch {
		case decided == "" && v.Cause != "":
			decided = "the host itself"
		case v.Strategy != "" && v.Strategy != v.Digest:
			decided = fmt.Sprintf("%s (%s)", v.Strategy, decided)
		}
		if v.Pass != 0 {
			pass = strconv.FormatUint(v.Pass, 10)
		}
		for _, line := range [][2]string{
			{"pinned to", string(v.Pinned)}, {"cause", string(v.Cause)}, {"reason", v.Reason},
			{"decided by", decided}, {"verdict", v.Verdict}, {"pass", pass}, {"record", short(v.Record)},
		} {
			if line[1] != "" {
				row("  "+line[0], line[1])
			}
		}
	})
}

func newShardMoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move TYPE SHARD NODE",
		Short: "Hand a shard to a node, whatever the strategy thinks",
		Long: `Hand a shard to a node, whatever the strategy thinks. The command returns once the move is recorded; the strategy may
move the shard again later, unless it is pinned.`,
		Example: "  drover shard move counter 42 b",
		Args:    wants("TYPE", "SHARD", "NODE"),
	}
	return placingCommand(cmd, func(cmd *cobra.Command, c *client.Client, typ string, shard sharding.ShardID, node string) (string, error) {
		moves, err := c.MoveShard(cmd.Context(), typ, shard, node)
		if err == nil && !moves {
			return fmt.Sprintf("%s %d is on %s already", typ, shard, node), nil
		}
		return fmt.Sprintf("%s %d moves to %s", typ, shard, node), err
	})
}

func newShardPinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pin TYPE SHARD NODE",
		Short:   "Keep a shard on a node, whatever the strategy thinks",
		Example: "  drover shard pin counter 42 b",
		Args:    wants("TYPE", "SHARD", "NODE"),
	}
	return placingCommand(cmd, func(cmd *cobra.Command, c *client.Client, typ string, shard sharding.ShardID, node string) (string, error) {
		return fmt.Sprintf("%s %d is pinned to %s", typ, shard, node), c.PinShard(cmd.Context(), typ, shard, node)
	})
}

func newShardUnpinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpin TYPE SHARD",
		Short: "Lift the pin of a shard: the strategy places it again",
		Args:  wants("TYPE", "SHARD"),
	}
	return placingCommand(cmd, func(cmd *cobra.Command, c *client.Client, typ string, shard sharding.ShardID, _ string) (string, error) {
		return fmt.Sprintf("%s %d is pinned no more", typ, shard), c.PinShard(cmd.Context(), typ, shard, "")
	})
}

// placingCommand makes a command of TYPE, SHARD and perhaps NODE.
func placingCommand(cmd *cobra.Command, place func(cmd *cobra.Command, c *client.Client, typ string, shard sharding.ShardID, node string) (string, error)) *cobra.Command {
	completeArgs(cmd, -1, completeTypes, completeShards, completeNodes)
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		shard, err := shardNumber(args[1])
		if err != nil {
			return err
		}
		node := ""
		if len(args) > 2 {
			if node = args[2]; node == "" { // over HTTP that would lift the pin
				return usageError(fmt.Errorf("NODE is empty"), "drover cluster members lists the nodes")
			}
		}
		text, err := place(cmd, c, args[0], shard, node)
		if err != nil {
			return err
		}
		return done(cmd, *asJSON, text)
	})
}
