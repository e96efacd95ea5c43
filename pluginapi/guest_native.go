//go:build !wasip1

package pluginapi

// Register makes s the strategy of a wasm module. Natively there is no module and it does nothing.
func Register(s Strategy) {}

// Log hands a message to the host's log. It never changes a decision. Natively it does nothing.
func Log(level Level, msg string) {}
