//go:build wasip1

// Command guest is the rendezvous strategy as a wasm module; strategies/build.sh builds it.
package main

import (
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/rendezvous"
)

func init() { pluginapi.Register(rendezvous.Strategy{}) }

func main() {}
