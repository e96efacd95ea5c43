//go:build wasip1

// Command guest is the hash strategy as a wasm module; strategies/build.sh builds it.
package main

import (
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/hash"
)

func init() { pluginapi.Register(hash.Strategy{}) }

func main() {}
