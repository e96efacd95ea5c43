package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/droverhq/drover/internal/tomldoc"
)

// parser reads one file, and goes on after an error: a file is told everything that is wrong with it.
type parser struct {
	file  string
	spots map[string]tomldoc.Spot
	errs  Errors
	world *world // of the scenario that is being read
}

// fail reports what is wrong with the value at a path: at its place, or that of the nearest thing around it.
func (p *parser) fail(path, format string, args ...any) {
	e := &Error{File: p.file, Line: 1, Col: 1, Key: short(path), Message: fmt.Sprintf(format, args...), path: path}
	for at := path; at != ""; at = tomldoc.Parent(at) {
		if s, ok := p.spots[at]; ok {
			e.Line, e.Col = s.Value.Line, s.Value.Col
			break
		}
	}
	p.errs = append(p.errs, e)
}

// short takes scenario[3] off the path of something in it: its place says which is meant.
func short(path string) string {
	if rest, ok := strings.CutPrefix(path, "scenario["); ok {
		if _, inside, ok := strings.Cut(rest, "]."); ok {
			return inside
		}
	}
	return path
}

// failed tells whether something is wrong at a path or below it.
func (p *parser) failed(path string) bool {
	return slices.ContainsFunc(p.errs, func(e *Error) bool { return strings.HasPrefix(e.path, path) })
}

// unknown reports a key that a table cannot have.
func (p *parser) unknown(t *table, key string, known []string, otherwise string) {
	path := t.child(key)
	e := &Error{File: p.file, Line: p.spots[path].Key.Line, Col: p.spots[path].Key.Col, Key: short(path), path: path}
	if meant := tomldoc.DidYouMean(key, known); meant != "" {
		otherwise = strings.TrimSpace(meant)
	}
	e.Message = "unknown key: " + strings.Trim(otherwise, "()")
	p.errs = append(p.errs, e)
}

func (p *parser) unknownKeys(t *table, known []string) {
	for _, key := range slices.Sorted(maps.Keys(t.m)) {
		if !slices.Contains(known, key) {
			p.unknown(t, key, known, "known here are "+strings.Join(known, ", "))
		}
	}
}

// table is a table of the file, and its path.
type table struct {
	p    *parser
	path string
	m    map[string]any
}

func (p *parser) table(path string, m map[string]any) *table { return &table{p, path, m} }

func (t *table) child(key string) string { return tomldoc.Join(t.path, key) }

// sub returns a table below a key; nil where there is none.
func (t *table) sub(key string) *table {
	v, ok := t.m[key]
	if !ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.p.fail(t.child(key), "want a table, got %s", tomldoc.Describe(v))
		return nil
	}
	return t.p.table(t.child(key), m)
}

// text returns the text at a key; false where there is none or it is something else, which is reported.
func (t *table) text(key string) (string, bool) {
	v, ok := t.m[key]
	if !ok {
		return "", false
	}
	return t.p.text(t.child(key), v)
}

func (p *parser) text(path string, v any) (string, bool) {
	s, ok := v.(string)
	if !ok {
		p.fail(path, "want a text in quotes, got %s", tomldoc.Describe(v))
	}
	return s, ok
}

// number returns the whole number at a key, between least and most; false likewise.
func (t *table) number(key string, least, most int64) (int64, bool) {
	v, ok := t.m[key]
	if !ok {
		return 0, false
	}
	return t.p.number(t.child(key), v, least, most)
}

func (p *parser) number(path string, v any, least, most int64) (int64, bool) {
	n, ok := v.(int64)
	switch {
	case !ok:
		p.fail(path, "want a whole number, got %s", tomldoc.Describe(v))
	case n < least && most == math.MaxInt64:
		p.fail(path, "%d is too small: at least %d", n, least)
		ok = false
	case n < least || n > most:
		p.fail(path, "%d is out of range: between %d and %d", n, least, most)
		ok = false
	}
	return n, ok
}

// truth returns the truth value at a key; false likewise.
func (t *table) truth(key string) (value, ok bool) {
	v, ok := t.m[key]
	if !ok {
		return false, false
	}
	if value, ok = v.(bool); !ok {
		t.p.fail(t.child(key), "want true or false, got %s", tomldoc.Describe(v))
	}
	return value, ok
}

// list returns the list at a key; false likewise.
func (t *table) list(key string) ([]any, bool) {
	v, ok := t.m[key]
	if !ok {
		return nil, false
	}
	return t.p.list(t.child(key), v)
}

func (p *parser) list(path string, v any) ([]any, bool) {
	list, ok := v.([]any)
	if !ok {
		p.fail(path, "want a list, got %s", tomldoc.Describe(v))
	}
	return list, ok
}
