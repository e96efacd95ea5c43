// Package strategies holds the built-in strategies: each once as a pure package, and as the wasm module built from it,
// which is what a node runs. build.sh builds the modules, and SHA256SUMS tells their digests.
package strategies

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/hash"
	"github.com/droverhq/drover/strategies/leastshard"
	"github.com/droverhq/drover/strategies/rendezvous"
)

// Default is the name of the strategy of a type that names none, and of the fallback when a strategy fails.
const Default = "hash"

//go:embed hash/hash.wasm
var hashModule []byte

//go:embed leastshard/leastshard.wasm
var leastshardModule []byte

//go:embed rendezvous/rendezvous.wasm
var rendezvousModule []byte

var builtins = [...]struct {
	name   string
	module []byte
	native pluginapi.Strategy
}{
	{"hash", hashModule, hash.Strategy{}},
	{"leastshard", leastshardModule, leastshard.Strategy{}},
	{"rendezvous", rendezvousModule, rendezvous.Strategy{}},
}

// Names returns the names of the built-in strategies, sorted.
func Names() []string {
	names := make([]string, len(builtins))
	for i := range builtins {
		names[i] = builtins[i].name
	}
	return names
}

// Builtin returns a built-in strategy's module, which must not be changed, and its sha256 in hexadecimal; ok is false
// where there is no strategy of that name.
func Builtin(name string) (module []byte, digest string, ok bool) {
	for i := range builtins {
		if builtins[i].name == name {
			sum := sha256.Sum256(builtins[i].module)
			return builtins[i].module, hex.EncodeToString(sum[:]), true
		}
	}
	return nil, "", false
}

// Native returns the pure implementation of a built-in strategy.
func Native(name string) (s pluginapi.Strategy, ok bool) {
	for i := range builtins {
		if builtins[i].name == name {
			return builtins[i].native, true
		}
	}
	return nil, false
}
