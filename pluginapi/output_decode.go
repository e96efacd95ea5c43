package pluginapi

// The decoders of outputs are for hosts alone. They lie apart from the encoders so that a change here leaves the bytes of
// the guests, which hold line numbers, as they are.

import (
	"math"
	"strconv"
)

// outputReader reads one output map. Every output may be a failure instead.
type outputReader struct {
	reader
	failure *Failure
}

// mostKeys bounds the keys of a map in an output, known and unknown: telling whether one of them comes twice takes memory
// for each, and the contract has five.
const mostKeys = 1000

// few counts the keys of a map that the host reads.
func (r *reader) few(field func(key string) error) func(key string) error {
	n := 0
	return func(key string) error {
		if n++; n > mostKeys {
			return r.fail("a map of more than " + strconv.Itoa(mostKeys) + " keys")
		}
		return field(key)
	}
}

// output reads the map and calls field for each key but "error"; it returns a *Failure where there is one, and a
// *DecodeError where required is missing.
func (r *outputReader) output(required string, field func(key string) error) error {
	found := required == ""
	err := r.fields(r.few(func(key string) error {
		if key == "error" {
			message, err := r.text()
			r.failure = &Failure{Message: message}
			return err
		}
		found = found || key == required
		return field(key)
	}))
	if err == nil {
		err = r.end()
	}
	switch {
	case err != nil:
		return err
	case r.failure != nil && found && required != "":
		return atKey(r.fail("there beside "+required), "error")
	case r.failure != nil:
		return r.failure
	case !found:
		return atKey(r.fail("the key is missing"), required)
	}
	return nil
}

// DecodeHomes reads the output of an allocate for n shards. The error is a *Failure if the strategy says that it failed,
// a *DecodeError otherwise. Whether homes are candidates is for the host to check.
func DecodeHomes(data []byte, n int) (Homes, error) {
	r := &outputReader{reader: reader{data: data}}
	var h Homes
	err := r.output("homes", func(key string) (err error) {
		switch key {
		case "homes":
			h.Nodes = make([]int, 0, min(n, r.count(1)))
			return r.column(n, func() error {
				node := NoTarget
				if !r.null() {
					if node, err = r.index(); err != nil {
						return err
					}
				}
				h.Nodes = append(h.Nodes, node)
				return nil
			})
		case "reasons":
			return r.column(n, func() error {
				reason := ""
				if !r.null() {
					if reason, err = r.text(); err != nil {
						return err
					}
				}
				h.Reasons = append(h.Reasons, reason)
				return nil
			})
		case "reason":
			h.Reason, err = r.text()
			return err
		}
		return r.skip(0)
	})
	if err != nil {
		return Homes{}, err
	}
	return h, nil
}

// column reads an array of exactly n elements.
func (r *reader) column(n int, element func() error) error {
	got := 0
	if err := r.list(func() error {
		if got == n {
			return r.fail("one for each of " + strconv.Itoa(n) + " shards is wanted, got more")
		}
		got++
		return element()
	}); err != nil {
		return err
	}
	if got < n {
		return r.fail("one for each of " + strconv.Itoa(n) + " shards is wanted, got " + strconv.Itoa(got))
	}
	return nil
}

// DecodePlan reads the output of a rebalance. The error is a *Failure if the strategy says that it failed, a
// *DecodeError otherwise. Whether moves are allowed is for the host to check.
func DecodePlan(data []byte) (Plan, error) { return DecodePlanUpTo(data, math.MaxInt) }

// DecodePlanUpTo is DecodePlan for at most so many moves: it stops at the first one beyond, so that an answer cannot
// cost its reader more than an honest one would.
func DecodePlanUpTo(data []byte, most int) (Plan, error) {
	r := &outputReader{reader: reader{data: data}}
	var p Plan
	err := r.output("moves", func(key string) (err error) {
		switch key {
		case "moves":
			p.Moves = make([]Move, 0, min(most, r.count(leastPair)))
			return r.list(func() error {
				if len(p.Moves) == most {
					return r.fail("more than " + strconv.Itoa(most) + " moves")
				}
				m, err := r.move()
				p.Moves = append(p.Moves, m)
				return err
			})
		case "reason":
			p.Reason, err = r.text()
			return err
		}
		return r.skip(0)
	})
	if err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (r *reader) move() (m Move, err error) {
	n := 0
	if err := r.list(func() (err error) {
		switch n++; {
		case n == 1:
			var shard uint64
			shard, err = r.bounded(1<<32, "shard")
			m.Shard = uint32(shard)
		case n == 2 && r.null():
			m.Target = NoTarget
		case n == 2:
			m.Target, err = r.index()
		case n == 3:
			m.Reason, err = r.text()
		default:
			err = r.fail("a move is shard, target and reason, got more")
		}
		return err
	}); err != nil {
		return Move{}, err
	}
	if n < 2 {
		return Move{}, r.fail("a move is shard, target and maybe a reason, got " + strconv.Itoa(n) + " elements")
	}
	return m, nil
}

// DecodeConfigured reads the output of a configure: nil if the strategy took its configuration, a *Failure if it did
// not, a *DecodeError for anything else.
func DecodeConfigured(data []byte) error {
	r := &outputReader{reader: reader{data: data}}
	return r.output("", func(string) error { return r.skip(0) })
}

// DecodeDescription reads the output of a describe. The error is a *Failure if the strategy says that it failed, a
// *DecodeError otherwise.
func DecodeDescription(data []byte) (Description, error) {
	r := &outputReader{reader: reader{data: data}}
	var d Description
	versioned := false
	err := r.output("name", func(key string) (err error) {
		switch key {
		case "name":
			d.Name, err = r.text()
		case "version":
			versioned = true
			d.Version, err = r.text()
		case "summary":
			d.Summary, err = r.text()
		case "config":
			err = r.fields(r.few(func(key string) error {
				k := ConfigKey{Key: clone(key)}
				err := r.configKey(&k)
				d.Config = append(d.Config, k)
				return err
			}))
		default:
			err = r.skip(0)
		}
		return err
	})
	if err == nil && !versioned {
		err = atKey(r.fail("the key is missing"), "version")
	}
	if err != nil {
		return Description{}, err
	}
	return d, nil
}

func (r *reader) configKey(k *ConfigKey) error {
	typed := false
	err := r.fields(r.few(func(key string) (err error) {
		switch key {
		case "type":
			typed = true
			k.Type, err = r.text()
		case "default":
			k.Default, err = r.value(0)
		case "help":
			k.Help, err = r.text()
		default:
			err = r.skip(0)
		}
		return err
	}))
	if err == nil && !typed {
		err = atKey(r.fail("the key is missing"), "type")
	}
	return err
}
