package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/client"
	"github.com/droverhq/drover/internal/httpapi"
)

// clientFlags are the flags of every command that talks to a cluster.
type clientFlags struct {
	address, token string
}

// addClientFlags adds --address and --token.
func addClientFlags(cmd *cobra.Command) *clientFlags {
	f := &clientFlags{}
	cmd.Flags().StringVar(&f.address, "address", "", "`host:port` or URL of a node (default DROVER_ADDRESS, else "+client.DefaultAddress+")")
	cmd.Flags().StringVar(&f.token, "token", "", "bearer `token` (default DROVER_TOKEN)")
	return f
}

// open makes the client. The environment is read here and not as a default, so that no help shows a token.
func (f *clientFlags) open() (*client.Client, error) {
	address, token := f.address, f.token
	if address == "" {
		address = os.Getenv("DROVER_ADDRESS")
	}
	if address == "" {
		address = client.DefaultAddress
	}
	if token == "" {
		token = os.Getenv("DROVER_TOKEN")
	}
	c, err := client.New(address, token)
	if err != nil {
		return nil, usageError(err, "write the address as "+client.DefaultAddress+", in --address or DROVER_ADDRESS, and the token as it is, in --token or DROVER_TOKEN")
	}
	return c, nil
}

// clusterCommand makes a command that talks to a node: flags, client, and the hints of its errors.
func clusterCommand(cmd *cobra.Command, run func(cmd *cobra.Command, c *client.Client, args []string) error) *cobra.Command {
	flags := addClientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.open()
		if err != nil {
			return err
		}
		return hinted(cmd, run(cmd, c, args))
	}
	return cmd
}

// hinted adds the next step that the node or the connection suggests, unless the command has named one in its own words.
func hinted(cmd *cobra.Command, err error) error {
	if own, ok := errors.AsType[*exitError](err); err == nil || ok && own.hint != "" {
		return err
	}
	hint := ""
	if p, ok := errors.AsType[*client.Error](err); ok {
		switch hint = p.Hint(); p.Kind() {
		case httpapi.KindUnauthorized, httpapi.KindForbidden:
			hint = "give the token with --token or DROVER_TOKEN; it is http.tokens in the node's configuration"
		case httpapi.KindBadRequest, httpapi.KindNotFound: // the hint may be about paths and queries, which are not what was typed
			if strings.Contains(hint, "GET /") || strings.Contains(hint, "?") {
				hint = "run '" + cmd.CommandPath() + " --help'"
			}
		}
	} else if u, ok := errors.AsType[*client.UnreachableError](err); ok {
		hint = u.Hint()
	}
	if hint == "" {
		return err
	}
	return withHint(err, hint)
}
