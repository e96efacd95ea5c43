package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/pki"
	"github.com/droverhq/drover/sharding"
)

func newTLSCommand() *cobra.Command {
	cmd := newGroup("tls", "Make certificates for connections between nodes",
		newTLSAuthorityCommand(),
		newTLSCertCommand(),
	)
	cmd.Long = cmd.Short + `.

With [tls] in node.toml, nodes prove who they are by certificates of one authority. A certificate carries the cluster's label,
the node's name and its roles; a node may do no more than its certificate says.

  drover tls ca --out certs
  drover tls cert --ca certs --name a --roles coordinator,compute --hosts 10.0.0.1

The authority's key (ca-key.pem) is needed for making certificates alone: keep it away from the nodes.`
	return cmd
}

func newTLSAuthorityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca --out DIR",
		Short: "Make the authority of a cluster",
		Long: `Make the authority of a cluster: ca.pem, which every node needs, and ca-key.pem, which makes certificates.
ECDSA P-256, valid for ten years. Files that are there already are left alone.`,
	}
	out := cmd.Flags().String("out", "", "`directory` to write to; made if need be")
	cluster := cmd.Flags().String("cluster", "drover", "label of the cluster, for the authority's name")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *out == "" {
			return usageError(errors.New("--out is missing"), "say where to write: drover tls ca --out certs")
		}
		files, err := pki.CreateAuthority(*out, *cluster, time.Now())
		if err != nil {
			return tlsError(err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), files)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  the authority, for every node ([tls] ca)\n%s  its key: keep it secret, and away from the nodes\n", files.Cert, files.Key)
		return err
	}
	return cmd
}

func newTLSCertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert --ca DIR --name NODE",
		Short: "Make the certificate of a node",
		Long: `Make the certificate of a node by the authority that "drover tls ca" made: NODE.pem and NODE-key.pem.
ECDSA P-256, valid for a year. Cluster, name and roles must be those of the node's node.toml: a node whose certificate
lacks the role "coordinator" can neither vote nor lead. Files that are there already are left alone.`,
	}
	flags := cmd.Flags()
	ca := flags.String("ca", "", "`directory` of the authority")
	name := flags.String("name", "", "`node` name, as in its node.toml")
	out := flags.String("out", "", "`directory` to write to (default: that of the authority)")
	cluster := flags.String("cluster", "drover", "label of the cluster, as in node.toml")
	roles := flags.StringSlice("roles", []string{"coordinator", "compute"}, "`roles` that the node may take, separated by commas")
	hosts := flags.StringSlice("hosts", nil, "DNS names and IP addresses, `list` separated by commas, for other tools; nodes look at the name alone")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *ca == "" || *name == "" {
			return usageError(errors.New("--ca and --name are needed"), "for example: drover tls cert --ca certs --name a")
		}
		dir := *out
		if dir == "" {
			dir = *ca
		}
		id := pki.Identity{Cluster: *cluster, Node: sharding.NodeID(*name), Roles: *roles}
		files, err := pki.CreateNode(*ca, dir, id, *hosts, time.Now())
		if err != nil {
			return tlsError(err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), files)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "[tls]\nca = %q\ncert = %q\nkey = %q\n", filepath.Join(*ca, pki.AuthorityCert), files.Cert, files.Key)
		return err
	}
	return cmd
}

// tlsError adds the next step. What the file system refuses is a failure, anything else a mistake in the flags.
func tlsError(err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return withHint(err, "it may be in use: remove it yourself, or write elsewhere with --out")
	case errors.Is(err, fs.ErrNotExist):
		return withHint(err, "make an authority first: drover tls ca --out DIR")
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return withHint(err, "check the directory and who may write there")
	}
	return usageError(err, "run 'drover tls cert --help'")
}
