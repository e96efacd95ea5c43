package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/node"
)

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Run a node",
		Long: `Run a node until SIGTERM or SIGINT. It then drains: its shards are handed off to other nodes, bounded by shutdown_timeout. A
second signal ends it at once. The node stays a voter of the cluster's log; 'drover cluster leave' takes it out.
SIGHUP does nothing.

FILE is short for --config FILE.

  drover run --config node.toml
  drover run --config node.toml --set name=b --set data_dir=data-b --set gossip.bind=127.0.0.1:8946 \
    --set transport.bind=127.0.0.1:8947 --set http.address=127.0.0.1:8081 --set 'gossip.join=["127.0.0.1:7946"]'`,
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := flags.load(args)
		if err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr(), cfg.Log)
		for _, w := range cfg.Warnings() {
			log.Warn(w)
		}
		n, err := node.New(cfg, node.Options{Logger: log})
		if err != nil {
			return usageError(err, "see docs/config.md")
		}
		return runError(n.Run(untilSignal(cmd.Context(), log)))
	}
	return cmd
}

// untilSignal gives a context that ends with the first SIGTERM or SIGINT; the second ends the process. SIGHUP, which would end it without a drain,
// does nothing.
func untilSignal(parent context.Context, log *slog.Logger) context.Context {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			log.Warn("SIGHUP changes nothing: node.toml is read at the start; a strategy is replaced with 'drover strategy swap', the node ended with SIGTERM")
		}
	}()
	go func() {
		<-signals
		cancel()
		<-signals
		log.Warn("ended at once by a second signal: what was not handed off is taken over once its lease has lapsed")
		os.Exit(exitFailure)
	}()
	return ctx
}

// runError gives the exit code and the next step for what ended a node.
func runError(err error) error {
	if err == nil {
		return nil
	}
	if node.IsConfig(err) {
		return usageError(err, hintOf(err))
	}
	if hint := hintOf(err); hint != "" {
		return withHint(err, hint)
	}
	return err
}

// hintOf asks an error for its next step.
func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func newLogger(w io.Writer, c config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level.Level()}
	if c.Format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
