package tomldoc

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Position is where something stands in a file, lines and columns from 1; columns count characters.
type Position struct{ Line, Col int }

// Spot is where a key and its value stand.
type Spot struct{ Key, Value Position }

// Locate finds where every key of a TOML document stands. The TOML library knows, and does not tell. It is called on
// documents that the library has accepted, so it checks no grammar; on anything else it may find nothing, never panic.
//
// The keys of the result are paths as written by Join: a.b, "odd key".c, list[0].d.
func Locate(doc string) map[string]Spot {
	s := &scanner{doc: doc, spots: map[string]Spot{}, arrays: map[string]int{}}
	s.document()
	return s.spots
}

// LastKey is the path of the value that a document breaks off in, or before; empty if it is none.
func LastKey(doc string) string {
	path, last := "", Position{}
	for p, s := range Locate(doc) {
		if at := s.Value; at.Line > last.Line || at.Line == last.Line && (at.Col > last.Col || at.Col == last.Col && len(p) > len(path)) {
			path, last = p, at
		}
	}
	return path
}

type scanner struct {
	doc    string
	at     int
	spots  map[string]Spot
	arrays map[string]int // how many elements of a [[table]] have been seen

	// Counting lines goes on from the last place asked for: offsets mostly ascend.
	countedTo, line, lineStart int
}

// position turns an offset into line and column.
func (s *scanner) position(offset int) Position {
	if offset < s.countedTo {
		s.countedTo, s.line, s.lineStart = 0, 0, 0
	}
	for i := s.countedTo; i < offset; i++ {
		if s.doc[i] == '\n' {
			s.line++
			s.lineStart = i + 1
		}
	}
	s.countedTo = offset
	return Position{s.line + 1, utf8.RuneCountInString(s.doc[s.lineStart:offset]) + 1}
}

// At turns an offset in bytes into a document into a position.
func At(doc string, offset int) Position { return (&scanner{doc: doc}).position(offset) }

// Syntax says where a document, which the TOML library has refused with err, stops being TOML, and why. Offset is in bytes, 0
// where the library does not tell.
func Syntax(doc string, err error) (at Position, message string, offset int) {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return Position{1, 1}, err.Error(), 0
	}
	at = Position{max(1, pe.Position.Line), max(1, pe.Position.Col)}
	if start := pe.Position.Start; start >= 0 && start <= len(doc) {
		offset = start
		if p := At(doc, start); p.Line == at.Line { // counts characters, the library counts bytes
			at.Col = p.Col
		}
	}
	return at, pe.Message, offset
}

// DottedKey reads the dotted key that a text begins with, and returns its parts and what follows.
func DottedKey(text string) (parts []string, rest string) {
	s := &scanner{doc: text}
	parts = s.key()
	return parts, text[s.at:]
}

func (s *scanner) document() {
	s.doc = strings.TrimPrefix(s.doc, "\ufeff")
	table := ""
	for {
		s.space()
		if s.at >= len(s.doc) {
			return
		}
		start := s.at
		if s.peek() == '[' {
			table = s.header()
		} else {
			s.pair(table)
		}
		if s.at == start { // no grammar we know: do not spin
			return
		}
	}
}

// header reads [a.b] or [[a.b]] and returns the path of the table that it opens.
func (s *scanner) header() string {
	start := s.at
	s.at++
	list := s.peek() == '['
	if list {
		s.at++
	}
	parts := s.key()
	for s.at < len(s.doc) && s.peek() != '\n' {
		s.at++
	}
	path, where := "", s.position(start)
	for i, part := range parts {
		path = Join(path, part)
		if i == len(parts)-1 {
			break
		}
		if n := s.arrays[path]; n > 0 {
			path = Index(path, n-1)
		}
		s.implied(path, where)
	}
	if list {
		n := s.arrays[path]
		s.arrays[path] = n + 1
		if n == 0 {
			s.spots[path] = Spot{where, where}
		}
		path = Index(path, n)
	}
	s.spots[path] = Spot{where, where}
	return path
}

// pair reads key = value below the given table.
func (s *scanner) pair(table string) {
	where, path := s.position(s.at), table
	for _, part := range s.key() {
		path = Join(path, part)
		s.implied(path, where)
	}
	s.blank()
	if s.peek() != '=' {
		return
	}
	s.at++
	s.blank()
	s.spots[path] = Spot{where, s.position(s.at)}
	s.value(path)
}

// implied notes a table that a dotted key or header opens on its way: it stands where it is first named.
func (s *scanner) implied(path string, where Position) {
	if _, ok := s.spots[path]; !ok {
		s.spots[path] = Spot{where, where}
	}
}

func (s *scanner) value(path string) {
	switch s.peek() {
	case '"', '\'':
		s.quoted()
	case '[':
		s.at++
		for n := 0; s.more(']'); n++ {
			where := s.position(s.at)
			s.spots[Index(path, n)] = Spot{where, where}
			s.value(Index(path, n))
		}
	case '{':
		s.at++
		for s.more('}') {
			s.pair(path)
		}
	default:
		if n := strings.IndexAny(s.doc[s.at:], ",]}#\n"); n >= 0 {
			s.at += n
		} else {
			s.at = len(s.doc)
		}
	}
}

// more skips to the next element of an array or inline table; false at its end, which it takes.
func (s *scanner) more(end byte) bool {
	for {
		s.space()
		switch s.peek() {
		case ',':
			s.at++
		case end:
			s.at++
			return false
		case 0, ']', '}', '=':
			s.at = len(s.doc) // no valid document
			return false
		default:
			return true
		}
	}
}

// key reads a dotted key.
func (s *scanner) key() []string {
	var parts []string
	for {
		s.blank()
		start := s.at
		if c := s.peek(); c == '"' || c == '\'' {
			s.quoted()
			parts = append(parts, unquote(s.doc[start:s.at]))
		} else {
			for s.at < len(s.doc) && !strings.ContainsRune(" \t\r\n.=]#", rune(s.doc[s.at])) {
				s.at++
			}
			parts = append(parts, s.doc[start:s.at])
		}
		s.blank()
		if s.peek() != '.' {
			return parts
		}
		s.at++
	}
}

// quoted skips a string of any of the four kinds.
func (s *scanner) quoted() {
	quote := s.doc[s.at]
	end := string(quote)
	if strings.HasPrefix(s.doc[s.at:], strings.Repeat(end, 3)) {
		end = strings.Repeat(end, 3)
	}
	s.at += len(end)
	for s.at < len(s.doc) {
		switch {
		case quote == '"' && s.doc[s.at] == '\\':
			s.at++
		case strings.HasPrefix(s.doc[s.at:], end):
			s.at += len(end)
			for n := 0; len(end) == 3 && n < 2 && s.peek() == quote; n++ { // the text may end in quotes of its own
				s.at++
			}
			return
		}
		s.at++
	}
	s.at = min(s.at, len(s.doc))
}

// space skips blanks, newlines and comments; blank skips blanks alone.
func (s *scanner) space() {
	for s.at < len(s.doc) {
		switch s.doc[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		case '#':
			for s.at < len(s.doc) && s.doc[s.at] != '\n' {
				s.at++
			}
		default:
			return
		}
	}
}

func (s *scanner) blank() {
	for c := s.peek(); c == ' ' || c == '\t'; c = s.peek() {
		s.at++
	}
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.doc) {
		return s.doc[s.at]
	}
	return 0
}

// unquote decodes a quoted key the way the TOML library does.
func unquote(raw string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K = "+raw, &v); err != nil {
		return raw
	}
	return v.K
}

// Join adds a key to a path, quoted unless it is a bare key.
func Join(path, key string) string {
	if path == "" {
		return QuoteKey(key)
	}
	return path + "." + QuoteKey(key)
}

func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func QuoteKey(key string) string {
	if key == "" {
		return `""`
	}
	for _, r := range key {
		if !IsBare(r) {
			return QuoteText(key)
		}
	}
	return key
}

func IsBare(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// Parent takes the last key or index off a path. Quotes in a quoted key are escaped, so the last quote opens it.
func Parent(path string) string {
	if cut, ok := strings.CutSuffix(path, `"`); ok {
		for {
			i := strings.LastIndexByte(cut, '"')
			if i < 0 {
				return ""
			}
			cut = cut[:i]
			if !strings.HasSuffix(cut, `\`) {
				return strings.TrimSuffix(cut, ".")
			}
		}
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
