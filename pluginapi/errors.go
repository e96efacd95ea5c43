package pluginapi

import "strconv"

// DecodeError is returned for bytes that are not what the contract says.
type DecodeError struct {
	Path    string // names the value, such as nodes[2].name; "" is the whole
	Offset  int    // of the byte at which reading stopped
	Message string
}

// Error names the value and says what is wrong with it.
func (e *DecodeError) Error() string {
	if e.Path == "" {
		return e.Message + " (at byte " + strconv.Itoa(e.Offset) + ")"
	}
	return e.Path + ": " + e.Message + " (at byte " + strconv.Itoa(e.Offset) + ")"
}

// EncodeError is returned for a Go value that the contract has no form for.
type EncodeError struct {
	Path    string // names the value, such as config.zones[2]; "" is the whole
	Message string
}

// Error names the value and says what is wrong with it.
func (e *EncodeError) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Failure is what a strategy answers where it cannot decide: the message of its error.
type Failure struct{ Message string }

// Error returns the strategy's message.
func (e *Failure) Error() string { return "strategy failed: " + e.Message }

// ConfigError says that a configuration key holds a value of the wrong kind or range.
type ConfigError struct{ Key, Message string }

// Error names the key and says what is wrong with its value.
func (e *ConfigError) Error() string {
	if e.Key == "" {
		return "config: " + e.Message
	}
	return "config." + e.Key + ": " + e.Message
}

// atKey and atIndex put a step before the path of an error on its way up.
func atKey(err error, key string) error { return prefix(err, key) }

func atIndex(err error, i int) error { return prefix(err, "["+strconv.Itoa(i)+"]") }

func prefix(err error, step string) error {
	switch e := err.(type) {
	case *DecodeError:
		e.Path = join(step, e.Path)
	case *EncodeError:
		e.Path = join(step, e.Path)
	}
	return err
}

func join(step, path string) string {
	if path == "" || path[0] == '[' {
		return step + path
	}
	return step + "." + path
}
