package node_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/droverhq/drover/node"
	"github.com/droverhq/drover/sharding"
)

// Deposit is the message of an account, Balance its answer. Any type will do that the codec can encode; the default codec is CBOR.
type Deposit struct {
	Account string
	Cents   int64
}

type Balance struct{ Cents int64 }

// Account is one entity: the state of one id. It handles one message at a time, so it needs no lock.
type Account struct {
	cents int64
	rates RateService
}

// RateService stands for something slow that an account asks.
type RateService interface {
	Fee(done func(cents int64, err error))
}

// Receive handles one message. The error is the asker's, as *sharding.EntityError; the account lives on.
func (a *Account) Receive(ctx sharding.Context, d Deposit) (Balance, error) {
	if d.Cents < 0 && a.cents+d.Cents < 0 {
		return Balance{}, fmt.Errorf("account %s has %d cents", ctx.ID(), a.cents)
	}
	a.cents += d.Cents
	if a.rates == nil {
		return Balance{a.cents}, nil
	}
	// The answer comes later; until then the account takes no other message, and no goroutine waits.
	answer := ctx.Later()
	before := a.cents
	a.rates.Fee(func(fee int64, err error) { answer(Balance{before - fee}, err) })
	return Balance{}, nil
}

// Stop is called when the account ends: idle for too long, handed off to another node, or by StopSelf.
func (a *Account) Stop(ctx sharding.Context) { ctx.Logger().Info("account ends", "cents", a.cents) }

// AccountKind is what a [[type]] with entity = "account" of node.toml names.
func AccountKind(rates RateService) sharding.Kind {
	return sharding.NewKind("account",
		func(sharding.Context) sharding.Entity[Deposit, Balance] { return &Account{rates: rates} },
		sharding.Options[Deposit, Balance]{
			PassivateAfter: 10 * time.Minute, // default: never. An account that leaves memory is lost unless its Stop has saved it
			MaxLive:        100_000,          // default: no bound. Beyond it the least recently used leave likewise
		})
}

// Accounts gives a ref to all accounts, on any node: one that hosts them, one with another role, one whose file does not name the type.
func Accounts(n *node.Node) sharding.Region[Deposit, Balance] {
	return sharding.RegionOf(n, "account", func(d Deposit) string { return d.Account }, sharding.Options[Deposit, Balance]{})
}

// A program that hosts its own entities and sends to them.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	kind := AccountKind(nil)
	cfg, err := node.LoadConfig("node.toml", nil, kind)
	if err != nil {
		log.Fatal(err)
	}
	started := make(chan struct{})
	n, err := node.New(cfg, node.Options{Started: func(node.Addresses) { close(started) }}, kind)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-started
		if err := work(ctx, n); err != nil {
			log.Print(err)
		}
	}()
	if err := n.Run(ctx); err != nil { // until SIGTERM; then shards are handed off first
		log.Fatal(err)
	}
}

// work sends a few messages.
func work(ctx context.Context, n *node.Node) error {
	accounts := Accounts(n)
	// The region finds the entity in the message; an entity ref is bound to one. Both work before any shard has a home.
	if err := accounts.Tell(Deposit{Account: "ada", Cents: 500}); err != nil {
		return err
	}
	ada := accounts.Entity("ada")
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	balance, err := ada.Ask(ask, Deposit{Cents: -200})
	var refused *sharding.EntityError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("the account says: %s", refused.Text)
	case errors.Is(err, sharding.ErrUnavailable):
		return fmt.Errorf("surely not done, it may be sent again: %w", err)
	case err != nil:
		return fmt.Errorf("the outcome is not known: %w", err)
	}
	fmt.Println(balance.Cents)
	return nil
}
