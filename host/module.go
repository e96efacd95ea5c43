package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
	"github.com/droverhq/drover/pluginapi"
)

// ABI is the version of the contract that the host speaks.
const ABI = 1

// How a module is compiled: wazero stops between functions once the time is
// over, but only with two workers or more.
const (
	compileWorkers = 2
	compileTimeout = 30 * time.Second
)

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

// Module is an admitted and compiled module, not yet configured.
type Module struct {
	rt       *Runtime
	digest   Digest
	limits   Limits
	compiled wazero.CompiledModule
	rewrite  *fuel.Result
	findings []Finding // warnings
}

// Compile admits, rewrites and compiles a module under limits; a module's own
// limits on memory are lowered to them. The error is a *RefusedError if the
// module is at fault.
func (r *Runtime) Compile(ctx context.Context, wasm []byte, l Limits) (*Module, error) {
	l = l.WithDefaults()
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	decoded, findings := admit(wasm, l)
	if refused(findings) {
		return nil, &RefusedError{Findings: findings}
	}
	if err := r.validate(ctx, wasm); err != nil {
		return nil, &RefusedError{Findings: append(findings, finding(RuleInvalid, "%s", firstLine(err)))}
	}
	m := &Module{rt: r, digest: DigestOf(wasm), limits: l, findings: findings}
	if err := m.compile(ctx, decoded, len(wasm), compileTimeout); err != nil {
		return nil, err
	}
	if m.fresh() {
		m.findings = append(m.findings, finding(RuleFreshInstance, "each call runs in a new instance, initialised anew"))
	}
	return m, nil
}

// validate has wazero validate the module as it was handed in: the rewrite adds
// types, functions and exports, which an invalid module could come to refer to.
// A cancelled context stops the engine right after validation, before it
// compiles anything.
func (r *Runtime) validate(ctx context.Context, wasm []byte) error {
	stopped, stop := context.WithCancelCause(experimental.WithCompilationWorkers(ctx, compileWorkers))
	stop(errValidated)
	compiled, err := r.checker.CompileModule(stopped, wasm)
	if compiled != nil {
		err = errors.Join(err, compiled.Close(ctx))
	}
	if errors.Is(err, errValidated) {
		return nil
	}
	return err
}

var errValidated = errors.New("validated")

// compile rewrites and compiles what was decoded from size bytes.
func (m *Module) compile(ctx context.Context, decoded *wasmbin.Module, size int, timeout time.Duration) error {
	mergeData(decoded)
	res, err := fuel.Rewrite(decoded, fuel.Options{DepthLimit: m.limits.Depth})
	if err != nil {
		return &RefusedError{Findings: append(m.findings, finding(RuleInvalid, "%v", err))}
	}
	a := &admission{m: decoded, findings: m.findings}
	if a.merges(res.FrameValues, size); refused(a.findings) {
		return &RefusedError{Findings: a.findings}
	}
	ctx, cancel := context.WithTimeout(experimental.WithCompilationWorkers(ctx, compileWorkers), timeout)
	defer cancel()
	compiled, err := m.rt.wazero.CompileModule(ctx, res.Wasm)
	if err != nil && ctx.Err() == nil && m.rt.cacheDir != "" {
		// A damaged file in the cache, or one that cannot be read: once more
		// without it.
		if cerr := clearCache(m.rt.cacheDir); cerr != nil {
			return fmt.Errorf("compile %s: %w", m.digest, errors.Join(err, cerr))
		}
		compiled, err = m.rt.wazero.CompileModule(ctx, res.Wasm)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &RefusedError{Findings: append(m.findings, finding(RuleCompile, "not done after %s", timeout))}
	case err != nil:
		return fmt.Errorf("compile %s: %w", m.digest, err)
	}
	if m.rt.cacheDir != "" {
		if err := sealCache(m.rt.cacheDir); err != nil {
			// Swept at the next start; nothing else needs it.
			m.rt.log.WarnContext(ctx, "cache of compiled strategies", "error", err)
		}
	}
	m.compiled, m.rewrite = compiled, res
	res.Wasm = nil // as large as the module, and of no more use
	return nil
}

// fresh tells whether an instance cannot be brought back to its image.
func (m *Module) fresh() bool {
	return m.rewrite.ChangesTables || m.rewrite.DropsSegments || m.rewrite.MutableRefs
}

// Digest returns the digest of the module as it was handed in.
func (m *Module) Digest() Digest { return m.digest }

// Limits returns the limits that the module was compiled for.
func (m *Module) Limits() Limits { return m.limits }

// Warnings returns the findings that did not refuse the module.
func (m *Module) Warnings() []Finding { return m.findings }

// Close releases the compiled code. Strategies made from the module must be
// closed before.
func (m *Module) Close(ctx context.Context) error { return m.compiled.Close(ctx) }

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
	rep.Findings = append(rep.Findings, s.Warnings()...)
	if d, err := s.Describe(ctx); err == nil {
		rep.Findings = append(rep.Findings, UnknownKeys(d, config)...)
	} else if !errors.Is(err, ErrNoDescription) {
		rep.Findings = append(rep.Findings, finding(RuleDescribe, "%v", err))
	}
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
