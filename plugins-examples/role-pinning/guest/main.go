//go:build wasip1

// Command guest is the example as a wasm module.
package main

import (
	"github.com/droverhq/drover/pluginapi"
	rolepinning "github.com/droverhq/drover/plugins-examples/role-pinning"
)

func init() { pluginapi.Register(rolepinning.Strategy{}) }

func main() {}
