package scenario

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/internal/tomldoc"
)

// maxFile bounds a scenario file, in bytes.
const maxFile = 8 << 20

// Scenario is a cluster and the steps that are made with it, in order, each on what the one before has left.
type Scenario struct {
	File    string
	Line    int // of the scenario in the file, from 1
	Name    string
	First   uint32 // the number of the first shard in the file; a snapshot's is 0
	Cluster *lab.Cluster
	Steps   []Step
}

// Op is what a step does.
type Op uint8

// The operations.
const (
	Rebalance Op = iota + 1 // asks for moves, and makes them
	Allocate                // asks for homes, and gives them
	Play                    // plays the simulator
)

var opNames = [...]string{Rebalance: "rebalance", Allocate: "allocate", Play: "play"}

// String returns the name that files use.
func (o Op) String() string {
	if o >= Rebalance && int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Step is one question, or one run of the simulator, with what is expected of it.
type Step struct {
	Line int // in the file, from 1
	Op   Op

	Events []lab.Event // of Rebalance and Allocate: before the question, in order
	Ask    []uint32    // of Allocate; nil means the shards that need a home
	Play   lab.Options // of Play: with its events

	Expects []Expectation
}

// Expectation is one key of a step's table expect.
type Expectation struct {
	Key       string
	Line, Col int // of its value

	judge judge
}

// Error is one thing that is wrong with a scenario file.
type Error struct {
	File      string
	Line, Col int    // from 1; columns count characters
	Key       string // dotted, such as nodes[2].zone; empty for a syntax error
	Message   string

	path string // of the whole file
}

// Error names the place and the key, and says what is wrong and what is wanted.
func (e *Error) Error() string {
	key := e.Key
	if key != "" {
		key += ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s", e.File, e.Line, e.Col, key, e.Message)
}

// Errors is everything that is wrong with a file, in its order.
type Errors []*Error

// Error has a line an error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Load reads a file. The error is Errors where the file could be read.
func Load(path string) ([]*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("scenarios: %s is larger than %d MiB", path, maxFile>>20)
	}
	return Parse(path, data)
}

// Parse reads the contents of a file; its name is for messages, and for a scenario that has none. The error is Errors.
func Parse(name string, data []byte) ([]*Scenario, error) {
	doc, tree := string(data), map[string]any{}
	if _, err := toml.Decode(doc, &tree); err != nil {
		at, message, _ := tomldoc.Syntax(doc, err)
		return nil, Errors{{File: name, Line: at.Line, Col: at.Col, Message: "not TOML: " + message}}
	}
	p := &parser{file: name, spots: tomldoc.Locate(doc)}
	scenarios := p.root(tomldoc.Normal(tree).(map[string]any))
	if len(p.errs) > 0 {
		slices.SortStableFunc(p.errs, func(a, b *Error) int {
			return cmp.Or(a.Line-b.Line, a.Col-b.Col, strings.Compare(a.Key, b.Key))
		})
		same := func(a, b *Error) bool { return a.Error() == b.Error() } // what scenarios have in common is wrong in each
		return nil, slices.CompactFunc(p.errs, same)
	}
	return scenarios, nil
}

// root reads a file: one scenario, or a list of them with what they have in common before it.
func (p *parser) root(tree map[string]any) []*Scenario {
	top := p.table("", tree)
	list, several := top.m["scenario"]
	if !several {
		base := strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file))
		return []*Scenario{p.scenario(top, nil, base)}
	}
	elements, ok := list.([]any)
	if !ok || len(elements) == 0 {
		p.fail("scenario", "want tables, [[scenario]], got %s", tomldoc.Describe(list))
		return nil
	}
	for key := range top.m {
		if key != "scenario" && !slices.Contains(clusterKeys, key) {
			p.unknown(top, key, append([]string{"scenario"}, clusterKeys...), "before [[scenario]] stands what the scenarios of a file have in common")
		}
	}
	var out []*Scenario
	names := map[string]int{}
	for i, e := range elements {
		path := tomldoc.Index("scenario", i)
		m, ok := e.(map[string]any)
		if !ok {
			p.fail(path, "want a table, [[scenario]], got %s", tomldoc.Describe(e))
			continue
		}
		s := p.scenario(p.table(path, m), top, "")
		if line, twice := names[s.Name]; twice {
			p.fail(tomldoc.Join(path, "name"), "the scenario in line %d has this name already", line)
		} else if s.Name != "" {
			names[s.Name] = s.Line
		}
		out = append(out, s)
	}
	return out
}

// scenario reads one scenario; top is what it has in common with others, nil for nothing.
func (p *parser) scenario(t, top *table, name string) *Scenario {
	s := &Scenario{File: p.file, Name: name, Line: max(1, p.spots[t.path].Key.Line)}
	if text, ok := t.text("name"); ok {
		s.Name = text
	}
	if s.Name == "" {
		p.fail(t.child("name"), "each [[scenario]] has a name")
	}
	p.world = newWorld(p, t, top)
	before := len(p.errs)
	s.Cluster = p.world.cluster()
	s.First = p.world.first
	sound := len(p.errs) == before // else what is said of shards and nodes means nothing
	known := slices.Concat([]string{"name", "step"}, clusterKeys)
	if list, several := t.m["step"]; several {
		elements, ok := list.([]any)
		if !ok || len(elements) == 0 {
			p.fail(t.child("step"), "want tables, [[…step]], got %s", tomldoc.Describe(list))
		}
		for i, e := range elements {
			path := tomldoc.Index(t.child("step"), i)
			m, ok := e.(map[string]any)
			if !ok {
				p.fail(path, "want a table, got %s", tomldoc.Describe(e))
				continue
			}
			step := p.table(path, m)
			p.unknownKeys(step, stepKeys)
			if sound {
				s.Steps = append(s.Steps, p.step(step))
			}
		}
	} else {
		known = append(known, stepKeys...)
		if sound {
			s.Steps = append(s.Steps, p.step(t))
		}
	}
	p.unknownKeys(t, known)
	expects := 0
	for _, step := range s.Steps {
		expects += len(step.Expects)
	}
	if expects == 0 && sound && !p.failed(t.path) {
		p.fail(t.path, "nothing is expected: a scenario has an expect table, in one of its steps at least")
	}
	return s
}
