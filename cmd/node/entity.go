package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/sharding"
)

// maxMessage is the largest http.max_body; of less, the node says what is too large.
const maxMessage = 4 << 20

func newEntityCommand() *cobra.Command {
	return newGroup("entity", "Talk to entities",
		newAskCommand(),
		newTellCommand(),
	)
}

// message reads TYPE ID JSON. A JSON of "-" is standard input.
func message(cmd *cobra.Command, args []string) (typ, id string, body []byte, err error) {
	typ, id, body = args[0], args[1], []byte(args[2])
	if err := sharding.CheckEntityID(id); err != nil {
		hint := "use a shorter id, such as a hash of the long one"
		if id == "" {
			hint = "name an entity: " + cmd.CommandPath() + " " + typ + " user-42 '" + args[2] + "'"
		}
		return "", "", nil, usageError(err, hint)
	}
	if typ == "" {
		return "", "", nil, usageError(errors.New("the type is empty"), "name a [[type]] of node.toml")
	}
	if args[2] == "-" {
		if body, err = readUpTo(cmd.InOrStdin(), "standard input", maxMessage+1); err != nil {
			return "", "", nil, err
		}
		if len(body) > maxMessage {
			return "", "", nil, usageError(fmt.Errorf("the message has more than %d bytes: no node takes that much", maxMessage), "send it in parts")
		}
	}
	var v json.RawMessage
	if err := json.Unmarshal(body, &v); err != nil {
		return "", "", nil, usageError(fmt.Errorf("the message is no JSON: %w", err), `names and texts stand in double quotes, and the whole in single ones for the shell: '{"name":"value"}'`)
	}
	return typ, id, body, nil
}

func keyFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("idempotency-key", "", "`key` of the message: a retry with the same one is answered, and not done again")
}

func newAskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ask TYPE ID JSON",
		Short:   "Send a message to an entity and print its answer",
		Long:    "Send a message to an entity and print its answer, which is JSON. A JSON of - is read from standard input.",
		Example: `  drover entity ask counter user-42 '{"add":2}'`,
		Args:    wants("TYPE", "ID", "JSON"),
	}
	completeArgs(cmd, -1, completeTypes)
	key, timeout := keyFlag(cmd), cmd.Flags().Duration("timeout", 30*time.Second, "how long to wait for the answer, 1ms to 5m")
	asJSON := jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		typ, id, body, err := message(cmd, args)
		if err != nil {
			return err
		}
		if *timeout < time.Millisecond || *timeout > 5*time.Minute {
			return usageError(fmt.Errorf("--timeout is %s: want 1ms to 5m", *timeout), "")
		}
		reply, err := c.Ask(cmd.Context(), typ, id, body, *key, *timeout)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), reply)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply)
		return err
	})
}

func newTellCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tell TYPE ID JSON",
		Short:   "Send a message to an entity",
		Long:    "Send a message to an entity: at most once, without waiting for it. A JSON of - is read from standard input.",
		Example: `  drover entity tell counter user-42 '{"add":2}'`,
		Args:    wants("TYPE", "ID", "JSON"),
	}
	completeArgs(cmd, -1, completeTypes)
	key, asJSON := keyFlag(cmd), jsonFlag(cmd)
	return clusterCommand(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		typ, id, body, err := message(cmd, args)
		if err != nil {
			return err
		}
		if err := c.Tell(cmd.Context(), typ, id, body, *key); err != nil {
			return err
		}
		return done(cmd, *asJSON, "sent")
	})
}
