package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/droverhq/drover/pluginapi"
)

// ABI is the version of the contract that the host speaks.
const ABI = 1

// Digest is the SHA-256 of a module's bytes.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a module.
func DigestOf(wasm []byte) Digest { return sha256.Sum256(wasm) }

// String returns the digest as "sha256:" and hex.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	v, err := ParseDigest(string(b))
	if err == nil {
		*d = v
	}
	return err
}

// ParseDigest reads "sha256:" and 64 hex digits.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	h, ok := strings.CutPrefix(s, "sha256:")
	if b, err := hex.DecodeString(h); ok && err == nil && len(b) == len(d) {
		copy(d[:], b)
		return d, nil
	}
	return d, fmt.Errorf("digest %q: want sha256: and 64 hex digits", s)
}

// Module is an admitted and compiled module, not yet configured. Modules of the
// same bytes share their code, whatever their fuel and time.
type Module struct {
	rt     *Runtime
	limits Limits
	close  sync.Once
	*code
}

// Compile admits, rewrites and compiles a module under limits; a module's own
// limits on memory are lowered to them. What is being compiled already, or was,
// is not compiled again; wasm must not be changed meanwhile. The error is a
// *RefusedError if the module is at fault.
func (r *Runtime) Compile(ctx context.Context, wasm []byte, l Limits) (*Module, error) {
	l = l.WithDefaults()
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	c, err := r.acquire(ctx, wasm, l)
	if err != nil {
		return nil, err
	}
	return &Module{rt: r, limits: l, code: c}, nil
}

// Digest returns the digest of the module as it was handed in.
func (m *Module) Digest() Digest { return m.key.digest }

// Warnings returns the findings that did not refuse the module.
func (m *Module) Warnings() []Finding { return m.findings }

// Close releases the module; its code goes with the last one that shares it.
// Strategies made from it must be closed before.
func (m *Module) Close(ctx context.Context) (err error) {
	m.close.Do(func() { err = m.rt.release(ctx, m.code) })
	return err
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Report is what a check of a module found.
type Report struct {
	OK       bool      `json:"ok"`
	Digest   Digest    `json:"digest"`
	ABI      int       `json:"abi"`
	Findings []Finding `json:"findings"`
}

// Check runs all of admission on a module, initialisation with the given
// configuration and the warm-up included. Its error is the host's own trouble;
// what is wrong with the module is in the report.
func (r *Runtime) Check(ctx context.Context, wasm []byte, l Limits, config []byte) (Report, error) {
	rep := Report{Digest: DigestOf(wasm), ABI: ABI, Findings: []Finding{}}
	s, err := r.Load(ctx, wasm, l, config)
	var re *RefusedError
	switch {
	case errors.As(err, &re):
		rep.Findings = re.Findings
		return rep, nil
	case err != nil:
		return rep, err
	}
	rep.OK = true
	_, odd := s.Inspect(ctx)
	rep.Findings = append(rep.Findings, odd...)
	return rep, s.Close(ctx)
}

// UnknownKeys finds the keys of a configuration that a strategy does not
// describe. Strategies pass over them, so that a type's configuration outlives a
// change of its strategy; most are misspelt.
func UnknownKeys(d pluginapi.Description, config pluginapi.Config) []Finding {
	keys, err := config.Keys()
	if err != nil {
		return []Finding{finding(RuleConfigKey, "%v", err)}
	}
	var known []string
	for _, k := range d.Config {
		known = append(known, k.Key)
	}
	there := "it describes no key"
	if len(known) > 0 {
		there = "there is " + strings.Join(known, ", ")
	}
	var out []Finding
	for _, k := range keys {
		if !slices.Contains(known, k) {
			out = append(out, finding(RuleConfigKey, "%s passes over the key %q: %s", d.Name, k, there))
		}
	}
	return out
}
