package pluginapi_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// schema is a parsed CDDL file (RFC 8610), of the subset that strategy.cddl uses: type choices, maps, arrays, groups by
// name, occurrences ? and *, text and integer literals, tagged byte strings, and the prelude's uint, tstr, bstr, null,
// any. A later rule of the same name is an error, as is a name without a rule.
type schema struct {
	rules map[string]*expr
	// grow reads "* tstr => any" at the end of every map, as the contract tells readers to.
	grow bool
}

type kindOf int

const (
	choice kindOf = iota // alternatives
	literal
	name
	tagged // number, inner
	mapOf
	arrayOf
	group
)

type expr struct {
	kind    kindOf
	alts    []*expr
	value   any    // literal: string or uint64
	name    string // name
	tag     uint64
	members []member
}

type member struct {
	optional, many bool
	key            *expr // nil in arrays and for a group by name
	value          *expr
}

var tokens = regexp.MustCompile(`^(?:"[^"]*"|#6\.\d+|=>|[A-Za-z][A-Za-z0-9_-]*|\d+|[={}\[\]():,/?*])`)

func parseCDDL(text string) (*schema, error) {
	var toks []string
	for _, line := range strings.Split(text, "\n") {
		if i := strings.IndexByte(line, ';'); i >= 0 {
			line = line[:i] // no text in this subset holds a semicolon
		}
		for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
			tok := tokens.FindString(line)
			if tok == "" {
				return nil, fmt.Errorf("cddl: cannot read %q", line)
			}
			toks = append(toks, tok)
			line = line[len(tok):]
		}
	}
	p := &cddlParser{toks: toks}
	s := &schema{rules: map[string]*expr{}}
	for !p.done() {
		rule := p.next()
		if err := p.expect("="); err != nil {
			return nil, fmt.Errorf("cddl: rule %s: %w", rule, err)
		}
		e, err := p.typ()
		if err != nil {
			return nil, fmt.Errorf("cddl: rule %s: %w", rule, err)
		}
		if s.rules[rule] != nil {
			return nil, fmt.Errorf("cddl: rule %s comes twice", rule)
		}
		s.rules[rule] = e
	}
	for rule, e := range s.rules {
		if err := s.resolve(e); err != nil {
			return nil, fmt.Errorf("cddl: rule %s: %w", rule, err)
		}
	}
	return s, nil
}

var prelude = []string{"uint", "tstr", "bstr", "null", "any"}

func (s *schema) resolve(e *expr) error {
	if e == nil {
		return nil
	}
	if e.kind == name && s.rules[e.name] == nil && !slices.Contains(prelude, e.name) {
		return fmt.Errorf("there is no rule %s", e.name)
	}
	for _, a := range e.alts {
		if err := s.resolve(a); err != nil {
			return err
		}
	}
	for _, m := range e.members {
		if err := s.resolve(m.key); err != nil {
			return err
		}
		if err := s.resolve(m.value); err != nil {
			return err
		}
	}
	return nil
}

type cddlParser struct {
	toks []string
	pos  int
}

func (p *cddlParser) done() bool { return p.pos >= len(p.toks) }

func (p *cddlParser) peek() string {
	if p.done() {
		return ""
	}
	return p.toks[p.pos]
}

func (p *cddlParser) next() string {
	t := p.peek()
	p.pos++
	return t
}

func (p *cddlParser) accept(t string) bool {
	if p.peek() == t {
		p.pos++
		return true
	}
	return false
}

func (p *cddlParser) expect(t string) error {
	if !p.accept(t) {
		return fmt.Errorf("want %s, got %q", t, p.peek())
	}
	return nil
}

func (p *cddlParser) typ() (*expr, error) {
	e := &expr{kind: choice}
	for {
		a, err := p.single()
		if err != nil {
			return nil, err
		}
		e.alts = append(e.alts, a)
		if !p.accept("/") {
			return e, nil
		}
	}
}

func (p *cddlParser) single() (*expr, error) {
	t := p.next()
	switch {
	case t == "{":
		ms, err := p.membersTo("}")
		return &expr{kind: mapOf, members: ms}, err
	case t == "[":
		ms, err := p.membersTo("]")
		return &expr{kind: arrayOf, members: ms}, err
	case t == "(":
		ms, err := p.membersTo(")")
		return &expr{kind: group, members: ms}, err
	case strings.HasPrefix(t, "#6."):
		n, err := strconv.ParseUint(t[3:], 10, 64)
		if err == nil {
			err = p.expect("(")
		}
		if err != nil {
			return nil, err
		}
		inner, err := p.typ()
		if err != nil {
			return nil, err
		}
		return &expr{kind: tagged, tag: n, alts: []*expr{inner}}, p.expect(")")
	case strings.HasPrefix(t, `"`):
		return &expr{kind: literal, value: strings.Trim(t, `"`)}, nil
	case t != "" && t[0] >= '0' && t[0] <= '9':
		n, err := strconv.ParseUint(t, 10, 64)
		return &expr{kind: literal, value: n}, err
	case t != "" && (t[0] >= 'a' && t[0] <= 'z' || t[0] >= 'A' && t[0] <= 'Z'):
		return &expr{kind: name, name: t}, nil
	}
	return nil, fmt.Errorf("want a type, got %q", t)
}

func (p *cddlParser) membersTo(end string) ([]member, error) {
	var ms []member
	for !p.accept(end) {
		m := member{optional: p.accept("?")}
		m.many = p.accept("*")
		first, err := p.typ()
		if err != nil {
			return nil, err
		}
		m.value = first
		if p.accept(":") || p.accept("=>") {
			m.key = first
			if m.value, err = p.typ(); err != nil {
				return nil, err
			}
		}
		ms = append(ms, m)
		if !p.accept(",") && p.peek() != end {
			return nil, fmt.Errorf("want , or %s, got %q", end, p.peek())
		}
	}
	return ms, nil
}

// match tells why a decoded value is not of a rule; nil if it is.
func (s *schema) match(rule string, v any) error {
	return s.value(&expr{kind: name, name: rule}, v, rule)
}

func (s *schema) value(e *expr, v any, path string) error {
	mismatch := func(want string) error { return fmt.Errorf("%s: want %s, got %T %v", path, want, v, v) }
	switch e.kind {
	case choice:
		var errs []string
		for _, a := range e.alts {
			err := s.value(a, v, path)
			if err == nil {
				return nil
			}
			errs = append(errs, err.Error())
		}
		return fmt.Errorf("%s", strings.Join(errs, "; or "))
	case literal:
		if v != e.value {
			return mismatch(fmt.Sprint(e.value))
		}
		return nil
	case name:
		if r := s.rules[e.name]; r != nil {
			return s.value(r, v, path)
		}
		ok := false
		switch e.name {
		case "uint":
			_, ok = v.(uint64)
		case "tstr":
			_, ok = v.(string)
		case "bstr":
			_, ok = v.([]byte)
		case "null":
			ok = v == nil
		case "any":
			ok = true
		}
		if !ok {
			return mismatch(e.name)
		}
		return nil
	case tagged:
		t, ok := v.(cbor.Tag)
		if !ok || t.Number != e.tag {
			return mismatch(fmt.Sprintf("tag %d", e.tag))
		}
		return s.value(e.alts[0], t.Content, path)
	case mapOf:
		m, ok := v.(map[any]any)
		if !ok {
			return mismatch("a map")
		}
		return s.mapMembers(e, m, path)
	case arrayOf:
		a, ok := v.([]any)
		if !ok {
			return mismatch("an array")
		}
		return s.arrayMembers(e, a, path)
	}
	return mismatch("a type that is no group")
}

// flat lists members with groups by name in place.
func (s *schema) flat(ms []member) []member {
	var all []member
	for _, m := range ms {
		if m.key == nil && m.value.kind == choice && len(m.value.alts) == 1 && m.value.alts[0].kind == name {
			if r := s.rules[m.value.alts[0].name]; r != nil && len(r.alts) == 1 && r.alts[0].kind == group {
				all = append(all, s.flat(r.alts[0].members)...)
				continue
			}
		}
		all = append(all, m)
	}
	return all
}

func (s *schema) mapMembers(e *expr, m map[any]any, path string) error {
	left := map[any]bool{}
	for k := range m {
		left[k] = true
	}
	members := s.flat(e.members)
	for _, mem := range members {
		if mem.many {
			continue
		}
		key := mem.key.alts[0].value
		v, found := m[key]
		if !found {
			if !mem.optional {
				return fmt.Errorf("%s: the key %v is missing", path, key)
			}
			continue
		}
		delete(left, key)
		if err := s.value(mem.value, v, fmt.Sprintf("%s.%v", path, key)); err != nil {
			return err
		}
	}
	for _, mem := range members {
		if !mem.many {
			continue
		}
		for k := range left {
			if s.value(mem.key, k, path) == nil {
				if err := s.value(mem.value, m[k], fmt.Sprintf("%s.%v", path, k)); err != nil {
					return err
				}
				delete(left, k)
			}
		}
	}
	for k := range left {
		if _, text := k.(string); !s.grow || !text {
			return fmt.Errorf("%s: the key %v is not in the schema", path, k)
		}
	}
	return nil
}

func (s *schema) arrayMembers(e *expr, a []any, path string) error {
	i := 0
	for _, mem := range s.flat(e.members) {
		least, most := 1, 1
		if mem.optional || mem.many {
			least = 0
		}
		if mem.many {
			most = math.MaxInt
		}
		n := 0
		for ; n < most && i < len(a); n, i = n+1, i+1 {
			if err := s.value(mem.value, a[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				if n < least || mem.many {
					return err
				}
				break
			}
		}
		if n < least {
			return fmt.Errorf("%s: too few elements", path)
		}
	}
	if i < len(a) {
		return fmt.Errorf("%s: too many elements", path)
	}
	return nil
}
