package records

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

// Outcome says what came of running a record again.
type Outcome uint8

// The outcomes.
const (
	Same          Outcome = iota // bit for bit
	Differs                      // the strategy is not a function of its input, or the record was changed
	NotComparable                // a clock, or trouble of the host's own, ended the recorded call: a replay says nothing about it
	NotReplayed                  // module or input are not to be had, or count by another cost model
)

var outcomeNames = [...]string{"same", "differs", "not-comparable", "not-replayed"}

// String returns the name that the command line uses.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Difference is a part of a record that came out otherwise.
type Difference struct {
	Of       string `json:"of"` // verdict, fuel, output, memoryPages
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

// Replayed is a record that was run again, or why it was not.
type Replayed struct {
	Outcome     Outcome
	Reason      string       // of NotComparable and NotReplayed
	Differences []Difference // of Differs
}

const (
	// replayBudget is the time of one call: only fuel is to end it.
	replayBudget = time.Minute
	keepPrepared = 8
)

// Replayer runs records again. It is not safe for concurrent use.
type Replayer struct {
	rt       *host.Runtime
	module   func(host.Digest) ([]byte, error)
	prepared []prepared // the latest used last
}

type prepared struct {
	key      preparedKey
	strategy *host.Strategy
	err      error
}

// preparedKey is all that the image of a strategy depends on, and the limits of its calls.
type preparedKey struct {
	digest host.Digest
	native string // its name; empty for a module
	config string
	fuel   int64
	memory uint32
}

// NewReplayer makes a replayer; module gives a module's bytes.
func NewReplayer(rt *host.Runtime, module func(host.Digest) ([]byte, error)) *Replayer {
	return &Replayer{rt: rt, module: module}
}

// Close releases the strategies.
func (p *Replayer) Close(ctx context.Context) error {
	var errs []error
	for _, s := range p.prepared {
		if s.strategy != nil {
			errs = append(errs, s.strategy.Close(ctx))
		}
	}
	p.prepared = nil
	return errors.Join(errs...)
}

// Replay runs a record's input again, with the module, configuration and limits of the record, and compares verdict, fuel, memory and output bit for
// bit. The error is the caller's end of patience.
func (p *Replayer) Replay(ctx context.Context, rec *host.Record) (Replayed, error) {
	not := func(o Outcome, format string, args ...any) (Replayed, error) {
		return Replayed{Outcome: o, Reason: fmt.Sprintf(format, args...)}, context.Cause(ctx)
	}
	native := rec.Digest == host.Digest{}
	switch {
	case rec.Verdict == host.VerdictBudget:
		return not(NotComparable, "the clock ended the call")
	case rec.Verdict == host.VerdictRefused:
		return not(NotComparable, "the host could not make the call: %s", rec.Error)
	case rec.Input == nil:
		return not(NotReplayed, "its input was too long to be kept")
	case !native && rec.CostModel != host.CostModel:
		return not(NotReplayed, "its fuel was counted by cost model %d, this drover counts by %d: use the release that wrote it", rec.CostModel, host.CostModel)
	}
	in, err := pluginapi.DecodeInput(rec.Input)
	if err != nil {
		return not(NotReplayed, "its input cannot be read: %v", err)
	}
	if in.Op != rec.Op {
		return not(NotReplayed, "it is of %s, its input of %s", rec.Op, in.Op)
	}
	s, err := p.strategy(ctx, rec, in.Snapshot.Config)
	if err != nil {
		return not(NotReplayed, "%v", err)
	}
	res, err := s.Replay(ctx, rec.Input, replayBudget)
	if err != nil {
		return not(NotReplayed, "%v", err)
	}
	if v := res.Record.Verdict; v == host.VerdictBudget || v == host.VerdictRefused {
		return not(NotReplayed, "%v", res.Err)
	}
	if d := compare(rec, res.Record); len(d) > 0 {
		return Replayed{Outcome: Differs, Differences: d}, nil
	}
	return Replayed{Outcome: Same}, nil
}

// strategy prepares what a record was made by, unless it is among the latest.
func (p *Replayer) strategy(ctx context.Context, rec *host.Record, config pluginapi.Config) (*host.Strategy, error) {
	key := preparedKey{digest: rec.Digest, config: string(config), fuel: rec.FuelLimit, memory: rec.MemoryLimit}
	if rec.Digest == (host.Digest{}) {
		key.native = rec.Strategy
	}
	i := slices.IndexFunc(p.prepared, func(s prepared) bool { return s.key == key })
	if i < 0 {
		if len(p.prepared) == keepPrepared {
			oldest := p.prepared[0]
			p.prepared = slices.Delete(p.prepared, 0, 1)
			if oldest.strategy != nil {
				if err := oldest.strategy.Close(ctx); err != nil {
					return nil, err
				}
			}
		}
		s := prepared{key: key}
		s.strategy, s.err = p.prepare(ctx, key, rec.Strategy, config)
		p.prepared = append(p.prepared, s)
	} else {
		s := p.prepared[i]
		p.prepared = append(slices.Delete(p.prepared, i, i+1), s)
	}
	latest := p.prepared[len(p.prepared)-1]
	return latest.strategy, latest.err
}

func (p *Replayer) prepare(ctx context.Context, key preparedKey, name string, config pluginapi.Config) (*host.Strategy, error) {
	if key.native != "" || key.digest == (host.Digest{}) {
		impl, ok := strategies.Native(strings.TrimPrefix(key.native, "native:"))
		if !ok {
			return nil, fmt.Errorf("this drover has no strategy %q in native form", key.native)
		}
		return host.NewNative(name, impl, config)
	}
	wasm, err := p.module(key.digest)
	if err != nil {
		return nil, err
	}
	if got := host.DigestOf(wasm); got != key.digest {
		return nil, fmt.Errorf("module %s was handed out for %s", got, key.digest)
	}
	return p.rt.Load(ctx, wasm, host.Limits{Fuel: key.fuel, MemoryPages: key.memory, Budget: replayBudget}, config, host.WithName(name))
}

func compare(a, b *host.Record) []Difference {
	var out []Difference
	differ := func(of, recorded, replayed string) {
		if recorded != replayed {
			out = append(out, Difference{of, recorded, replayed})
		}
	}
	differ("verdict", a.Verdict.String(), b.Verdict.String())
	differ("fuel", fuelText(a.Fuel), fuelText(b.Fuel))
	differ("memoryPages", strconv.FormatUint(uint64(a.Pages), 10), strconv.FormatUint(uint64(b.Pages), 10))
	if !sameBytes(a.Output, b.Output) {
		out = append(out, Difference{"output", outputText(a.Output), outputText(b.Output)})
	}
	return out
}

func fuelText(f *int64) string {
	if f == nil {
		return "null"
	}
	return strconv.FormatInt(*f, 10)
}

// outputText names an output; two that differ have two names.
func outputText(b []byte) string {
	if b == nil {
		return "none"
	}
	return fmt.Sprintf("%d bytes, sha256:%x", len(b), sha256.Sum256(b))
}
