package pluginapi

import (
	"math"
	"math/bits"
)

// Config is a strategy's own table of node.toml, as CBOR. nil is an empty table. Each getter returns def where the key
// is missing, and a *ConfigError that names the key where it holds another kind of value. Keys that nobody asks for are
// no error: a type's configuration outlives a change of its strategy.
type Config []byte

// NewConfig encodes a table. Its values are nil, bool, int, int64, uint64, float64, string, []any or map[string]any;
// anything else is an *EncodeError that names the key.
func NewConfig(table map[string]any) (Config, error) {
	b, err := appendValue(nil, table)
	if err != nil {
		return nil, atKey(err, "config")
	}
	return b, nil
}

// lookup returns a reader that stands at the value of a key.
func (c Config) lookup(key string) (r *reader, found bool, err error) {
	if len(c) == 0 {
		return nil, false, nil
	}
	all := &reader{data: c}
	err = all.fields(func(k string) error {
		raw, err := all.raw()
		if err == nil && k == key {
			r, found = &reader{data: raw}, true
		}
		return err
	})
	if err == nil {
		err = all.end()
	}
	if err != nil {
		return nil, false, &ConfigError{Message: err.Error()}
	}
	return r, found, nil
}

func wrongKind(key string, r *reader, want string) error {
	r.pos = 0
	return &ConfigError{Key: key, Message: "want " + want + ", got " + r.kind()}
}

// Keys returns the keys of the table, in the order in which they are encoded.
func (c Config) Keys() ([]string, error) {
	if len(c) == 0 {
		return nil, nil
	}
	var keys []string
	r := &reader{data: c}
	err := r.fields(func(k string) error {
		keys = append(keys, clone(k))
		return r.skip(0)
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, &ConfigError{Message: err.Error()}
	}
	return keys, nil
}

// Uint returns a whole number of at least 0.
func (c Config) Uint(key string, def uint64) (uint64, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return def, err
	}
	n, err := r.uint()
	if err != nil {
		return def, wrongKind(key, r, "a whole number of at least 0")
	}
	return n, nil
}

// Int returns a whole number.
func (c Config) Int(key string, def int64) (int64, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return def, err
	}
	if v, err := r.value(0); err == nil {
		if n, ok := v.(int64); ok {
			return n, nil
		}
	}
	return def, wrongKind(key, r, "a whole number")
}

// Float returns a number; a whole one is taken for a float.
func (c Config) Float(key string, def float64) (float64, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return def, err
	}
	v, err := r.value(0)
	if err == nil {
		switch n := v.(type) {
		case float64:
			return n, nil
		case int64:
			return float64(n), nil
		}
	}
	return def, wrongKind(key, r, "a number")
}

// String returns a text.
func (c Config) String(key, def string) (string, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return def, err
	}
	s, err := r.text()
	if err != nil {
		return def, wrongKind(key, r, "text")
	}
	return s, nil
}

// Bool returns a boolean.
func (c Config) Bool(key string, def bool) (bool, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return def, err
	}
	if b := r.peek(); b == simpleTrue || b == simpleFalse {
		return b == simpleTrue, nil
	}
	return def, wrongKind(key, r, "true or false")
}

// Strings returns a list of texts.
func (c Config) Strings(key string, def []string) ([]string, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return def, err
	}
	it, err := r.array()
	if err != nil {
		return def, wrongKind(key, r, "a list of texts")
	}
	list := []string{}
	for r.next(&it) {
		s, err := r.text()
		if err != nil {
			return def, &ConfigError{Key: key, Message: "want a list of texts, got " + r.kind() + " in it"}
		}
		list = append(list, s)
	}
	return list, nil
}

// Table returns a table within the table, nil where the key is missing.
func (c Config) Table(key string) (Config, error) {
	r, found, err := c.lookup(key)
	if err != nil || !found {
		return nil, err
	}
	if r.peek()&0xe0 != majorMap {
		return nil, wrongKind(key, r, "a table")
	}
	return Config(r.data), nil
}

// Share returns a part of a whole, a number from 0 to 1, rounded to parts per billion.
func (c Config) Share(key string, def Share) (Share, error) {
	f, err := c.Float(key, 0)
	if err != nil {
		return def, err
	}
	if _, found, _ := c.lookup(key); !found {
		return def, nil
	}
	if !(f >= 0 && f <= 1) {
		return def, &ConfigError{Key: key, Message: "want a number from 0 to 1"}
	}
	return shareOf(f), nil
}

// shareOf rounds a float from 0 to 1 to parts per billion, in integers alone.
func shareOf(f float64) Share {
	b := math.Float64bits(f)
	exp, frac := int(b>>52&0x7ff), b&(1<<52-1)
	if exp == 0 { // below 2^-1022
		return 0
	}
	// f = mantissa × 2^-shift with shift of 52 or more, as f is at most 1; the product is below 2^83.
	mantissa, shift := frac|1<<52, uint(1075-exp)
	hi, lo := bits.Mul64(mantissa, uint64(Whole))
	if shift >= 100 {
		return 0
	}
	if shift > 64 {
		return Share((hi + 1<<(shift-65)) >> (shift - 64))
	}
	lo, carry := bits.Add64(lo, 1<<(shift-1), 0)
	hi += carry
	if shift == 64 {
		return Share(hi)
	}
	return Share(hi<<(64-shift) | lo>>shift)
}
