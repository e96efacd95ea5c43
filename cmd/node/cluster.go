package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

func newClusterCommand() *cobra.Command {
	return newGroup("cluster", "Look at a cluster and operate it",
		newMembersCommand(),
		newLeaderCommand(),
		newShardsCommand(),
		newDrainCommand(),
		newLeaveCommand(),
		newForgetCommand(),
		newPauseCommand(true),
		newPauseCommand(false),
	)
}

// table writes aligned columns. What stands in them comes from other nodes, from strategies and from whoever is in gossip: nothing of it may steer a
// terminal.
func table(w io.Writer, rows func(row func(cells ...string))) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(func(cells ...string) {
		for i := range cells {
			cells[i] = client.Printable(cells[i])
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	})
	return t.Flush()
}

// orDash shows what is not there.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newMembersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the cluster",
	}
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		v, err := c.Members(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		err = table(cmd.OutOrStdout(), func(row func(...string)) {
			mark := func(is bool) string {
				if is {
					return "*"
				}
				return ""
			}
			row("NAME", "STATE", "LEADER", "VOTER", "SHARDS", "ADDRESS", "ZONE", "ROLES", "VERSION")
			for _, m := range v.Members {
				row(string(m.Name), m.State.String(), mark(m.Leader), mark(m.Voter), strconv.Itoa(m.Shards), m.Address, orDash(m.Zone), orDash(strings.Join(m.Roles, ",")), orDash(m.Version))
			}
		})
		if err == nil && v.Paused {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "rebalancing is paused; drover cluster resume lets it go on")
		}
		return err
	})
}

func newLeaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Name the node that coordinates",
	}
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		v, err := c.Leader(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), client.Printable(fmt.Sprintf("%s at %s, term %d", v.Name, v.Address, v.Term)))
		return err
	})
}

func newShardsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shards [TYPE]",
		Short: "Show the shards of a type and where they are",
		Long: `Show how the shards of a type lie on the nodes; with --list, each shard. TYPE may be left out where there is one.
"?" is what a node did not tell in time.`,
		Args: wants("[TYPE]"),
	}
	completeArgs(cmd, -1, completeTypes)
	asJSON, list := jsonFlag(cmd), cmd.Flags().Bool("list", false, "one line a shard")
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		typ := ""
		if len(args) == 1 {
			typ = args[0]
		}
		v, err := c.Shards(cmd.Context(), typ)
		problem, refused := errors.AsType[*client.Error](err)
		switch {
		case typ == "" && refused && problem.Kind() == httpapi.KindBadRequest && len(problem.Known) > 0:
			return withHint(err, client.Printable("name one: "+cmd.CommandPath()+" "+problem.Known[0]))
		case err != nil:
			return err
		case *asJSON:
			return writeJSON(cmd.OutOrStdout(), v)
		case *list:
			return listShards(cmd.OutOrStdout(), v)
		}
		return drawShards(cmd.OutOrStdout(), v)
	})
}

// known shows a count, or that it is not known.
func known(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

func listShards(w io.Writer, v httpapi.ShardsView) error {
	return table(w, func(row func(...string)) {
		row("SHARD", "NODE", "STATE", "EPOCH", "ENTITIES")
		for _, s := range v.Shards {
			row(fmt.Sprint(s.Shard), string(s.Node), s.State, fmt.Sprint(s.Epoch), known(s.Entities))
		}
	})
}

// drawShards draws one bar a node.
func drawShards(w io.Writer, v httpapi.ShardsView) error {
	states := map[string]int{}
	for _, s := range v.Shards {
		states[s.State]++
	}
	var parts []string
	for _, state := range []string{"homed", "moving", "waiting"} {
		if n := states[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if away := int(v.NumShards) - len(v.Shards); away > 0 {
		parts = append(parts, fmt.Sprintf("%d without a home", away))
	}
	fmt.Fprintf(w, "%s: %s: %s; revision %s\n", client.Printable(string(v.Type)), counted(int(v.NumShards), "shard"), strings.Join(parts, ", "), v.Revision)

	hosts := slices.DeleteFunc(slices.Clone(v.Regions), func(r httpapi.RegionView) bool { return r.Proxy })
	if len(hosts) == 0 {
		return nil
	}
	most := slices.MaxFunc(hosts, func(a, b httpapi.RegionView) int { return cmp.Compare(a.Shards, b.Shards) }).Shards
	fmt.Fprintln(w)
	return table(w, func(row func(...string)) {
		row("NODE", "SHARDS", "ENTITIES")
		for _, r := range hosts {
			row(string(r.Node), bar(r.Shards, most), known(r.Entities))
		}
	})
}

const barWidth = 40

// bar draws n of most, in eighths of a character, with the number behind it.
func bar(n, most int) string {
	eighths := 0
	if most > 0 {
		eighths = n * barWidth * 8 / most
	}
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return strings.TrimLeft(b+" "+strconv.Itoa(n), " ")
}

func newDrainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Hand the shards of a node to the others",
		Long: `Hand the shards of a node to the others; it gets no new ones until the drain is ended with --undo. Without NODE it is
the node at --address. The command returns once the drain is recorded, or with --wait once the node holds no shard.`,
		Args: wants("[NODE]"),
	}
	completeArgs(cmd, -1, completeNodes)
	undo := cmd.Flags().Bool("undo", false, "end the drain")
	wait := cmd.Flags().Duration("wait", 0, "wait up to this `time` for the node to hold no shard; needs NODE")
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		node := ""
		if len(args) == 1 {
			node = args[0]
		}
		if *wait != 0 && (*undo || node == "" || *wait < 0) {
			return usageError(errors.New("--wait needs a time above 0, a NODE and no --undo"), "drover cluster drain b --wait 1m")
		}
		if err := c.Drain(cmd.Context(), node, !*undo); err != nil {
			return err
		}
		if *wait > 0 {
			if err := waitDrained(cmd, c, node, *wait); err != nil {
				return err
			}
		}
		text := "drains"
		switch {
		case *undo:
			text = "drains no more"
		case *wait > 0:
			text = "holds no shard"
		}
		return done(cmd, *asJSON, cmp.Or(node, "the node at "+c.Address())+" "+text)
	})
}

// done says that a request was carried out.
func done(cmd *cobra.Command, asJSON bool, text string) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), map[string]bool{"ok": true})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// drainPoll is how often a waiting drain looks.
const drainPoll = 200 * time.Millisecond

// waitDrained returns once the node holds no shard, and shows on a terminal how many are left.
func waitDrained(cmd *cobra.Command, c *client.Client, node string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	show := progressOf(cmd.ErrOrStderr())
	defer show.end()
	left, first := -1, -1
	timeUp := func() error {
		text := fmt.Sprintf("%s still holds %s after %s", node, counted(left, "shard"), limit)
		if left < 0 {
			text = fmt.Sprintf("how many shards %s still holds was not told within %s", node, limit)
		}
		return withHint(errors.New(text+"; the drain goes on"), "see where they are: drover cluster shards")
	}
	for {
		v, err := c.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return timeUp()
		case err != nil:
			return err
		}
		i := slices.IndexFunc(v.Members, func(m httpapi.MemberView) bool { return m.Name == sharding.NodeID(node) })
		if i < 0 || v.Members[i].Shards == 0 {
			return nil
		}
		if left = v.Members[i].Shards; first < 0 {
			first = left
		}
		show.at(max(0, first-left), first, "shards handed over")
		select {
		case <-ctx.Done():
			return timeUp()
		case <-time.After(drainPoll):
		}
	}
}

func newLeaveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Take a node out of the cluster",
		Long: `Take the node at --address out of the cluster, until it is started again: it gives its vote back, its shards are handed over, and its
process ends. It is refused where the voters that would be left are no live majority: forget the dead ones first. A node that is to come back
needs no leave: end it with SIGTERM. For a dead one there is forget.`,
	}
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		if err := c.Leave(cmd.Context()); err != nil {
			return err
		}
		return done(cmd, *asJSON, "the node at "+c.Address()+" leaves")
	})
}

func newForgetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "Take a dead node out of the cluster",
		Args:  wants("NODE"),
	}
	completeArgs(cmd, -1, completeNodes)
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		if err := c.Forget(cmd.Context(), args[0]); err != nil {
			return err
		}
		return done(cmd, *asJSON, args[0]+" is forgotten")
	})
}

func newPauseCommand(on bool) *cobra.Command {
	cmd := &cobra.Command{Use: "pause", Short: "Stop all rebalancing"}
	text := "rebalancing is paused: shards without a home still get one, nothing else moves"
	if !on {
		cmd.Use, cmd.Short, text = "resume", "Let rebalancing go on", "rebalancing goes on"
	}
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		if err := c.Pause(cmd.Context(), on); err != nil {
			return err
		}
		return done(cmd, *asJSON, text)
	})
}
