//go:build wasip1

// Command guest is the leastshard strategy as a wasm module; strategies/build.sh builds it.
package main

import (
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/leastshard"
)

func init() { pluginapi.Register(leastshard.Strategy{}) }

func main() {}
