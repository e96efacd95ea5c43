package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/droverhq/drover/internal/tomldoc"
)

// sourceSet is how messages name the --set flag; environment variables are named by themselves.
const sourceSet = "--set"

// ErrNoFile is what Load's error wraps when the configuration file itself is not there.
var ErrNoFile = errors.New("no such file")

// maxFile bounds what is read: no node.toml is larger, and a wrong --config (a disk image, a device) ends at once.
const maxFile = 1 << 20

// Options say what Load reads. Every layer may be left out.
type Options struct {
	File     string   // path, read unless Data is given, and named in messages
	Data     []byte   // contents of the file
	Env      []string // as os.Environ gives it; only DROVER_… is looked at
	Set      []string // key=value, as given to --set
	Hostname func() (string, error)
	Entities []string // names that entity may have; nil: Entities
	Files    bool     // whether the files that the configuration names must be there
}

// Load applies the layers in order, takes the host's name if none is given, and validates. The error is Errors with
// everything that is wrong, or says why the file cannot be read.
func Load(o Options) (*Config, error) {
	l := &loader{config: Default(), file: o.File, set: map[string]string{}}
	if o.File != "" || o.Data != nil {
		if err := l.readFile(o); err != nil {
			return nil, err
		}
	}
	l.environment(o.Env)
	for _, flag := range o.Set {
		l.flag(flag)
	}
	if _, given := l.set["name"]; !given {
		l.hostName(o.Hostname)
	}
	entities := o.Entities
	if entities == nil {
		entities = Entities
	}
	wrong := map[string]bool{} // what could not be read at all is not judged by its default or zero value too
	for _, e := range l.errs {
		wrong[e.Key] = true
	}
	for _, f := range l.config.validate(entities) {
		if !wrong[l.config.pretty(f.path)] {
			l.fail(f.path, f.message, f.notYet)
		}
	}
	if o.Files {
		l.files()
	}
	if err := l.errs.orNil(); err != nil {
		return nil, err
	}
	l.config.warnings = append(l.config.warnings, l.config.oddities()...)
	return l.config, nil
}

// files checks that the files that the configuration names are there.
func (l *loader) files() {
	need := map[string]string{"tls.ca": l.config.TLS.CA, "tls.cert": l.config.TLS.Cert, "tls.key": l.config.TLS.Key}
	for i, t := range l.config.Types {
		if path, ok := t.StrategyPath(); ok && strategyProblem(t.Strategy) == "" {
			need[tomldoc.Index("type", i)+".strategy"] = path
		}
	}
	for path, file := range need {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			l.fail(path, tomldoc.QuoteText(file)+": no such file", false)
		case err != nil:
			l.fail(path, tomldoc.QuoteText(file)+" "+reason(err), false)
		case info.IsDir():
			l.fail(path, tomldoc.QuoteText(file)+" is a directory", false)
		}
	}
}

type loader struct {
	config *Config
	file   string
	spots  map[string]tomldoc.Spot
	set    map[string]string // path of a key that a layer has set → source; empty: the file
	source string            // of the layer that is being read; empty: the file
	errs   Errors
}

func (l *loader) readFile(o Options) error {
	data := o.Data
	if data == nil {
		var err error
		if data, err = readLimited(o.File); err != nil {
			return err
		}
	}
	doc := string(data)
	tree := map[string]any{}
	if _, err := toml.Decode(doc, &tree); err != nil {
		return Errors{syntaxError(o.File, doc, err)}
	}
	l.spots = tomldoc.Locate(doc)
	l.apply(schema(), tomldoc.Normal(tree), "", 0)
	return nil
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &Error{File: path, Message: ErrNoFile.Error(), cause: ErrNoFile}
		}
		return nil, &Error{File: path, Message: reason(err)}
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &Error{File: path, Message: reason(err)}
	}
	if len(data) > maxFile {
		return nil, &Error{File: path, Message: "larger than 1MiB: not a node.toml"}
	}
	return data, nil
}

// reason is an error of the file system without the path, which the message names already.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return "cannot be read: " + e.Err.Error()
	}
	return "cannot be read: " + err.Error()
}

func syntaxError(file, doc string, err error) *Error {
	at, message, offset := tomldoc.Syntax(doc, err)
	out := &Error{File: file, Line: at.Line, Col: at.Col, Message: "not TOML: " + message}
	if path := tomldoc.LastKey(doc[:offset]); path != "" && schema().at(path).secret() { // the library quotes what it stumbles over
		out.Message = "not TOML, at or after " + path + ": what stands there may be a secret and is not shown (texts need quotes)"
	}
	return out
}

// node is a level of the key table, as a tree.
type node struct {
	children map[string]*node
	key      *key
	table    *table // of a [[table]]
}

// schema is the key table as a tree.
var schema = sync.OnceValue(func() *node {
	root := &node{}
	for i := range tables {
		t := &tables[i]
		at := root
		if t.name != "" {
			at = root.child(t.name)
		}
		if t.list {
			at.table = t
		}
		for j := range t.keys {
			leaf := at
			if name := t.keys[j].name; name != "" {
				for _, part := range strings.Split(name, ".") {
					leaf = leaf.child(part)
				}
			}
			leaf.key = &t.keys[j]
		}
	}
	return root
})

func (n *node) child(name string) *node {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	if n.children[name] == nil {
		n.children[name] = &node{}
	}
	return n.children[name]
}

// secret says whether a key at or below this level holds a secret.
func (n *node) secret() bool {
	if n.key != nil {
		return n.key.secret
	}
	for _, child := range n.children {
		if child.secret() {
			return true
		}
	}
	return false
}

// at finds the level that a path leads to, as far as the key table goes: what stands deeper is of that level too.
func (n *node) at(path string) *node {
	for rest := path; rest != "" && n.key == nil; {
		var part string
		part, rest, _ = strings.Cut(rest, ".")
		part, _, _ = strings.Cut(part, "[")
		child := n.children[part]
		if child == nil {
			break
		}
		n = child
	}
	return n
}

// apply puts a value where the tree says. i is the element of the [[table]] that path lies in.
func (l *loader) apply(n *node, v any, path string, i int) {
	if n.key != nil {
		l.set[path] = l.source
		if w := assign(n.key.field(l.config, i), v); w != nil {
			l.fail(path+w.element, w.message, false)
		}
		return
	}
	if n.table != nil {
		l.applyList(n, v, path)
		return
	}
	m, ok := v.(map[string]any)
	if !ok {
		header := "[" + path + "]"
		if name, _, element := strings.Cut(path, "["); element {
			header = "[[" + name + "]]"
		}
		got := tomldoc.Describe(v)
		if n.secret() { // tokens = "…": what stands there is a token
			got = tomldoc.Kind(v)
		}
		l.fail(path, "want a table, "+header+", got "+got, false)
		return
	}
	for _, name := range sortedKeys(m) {
		if child := n.children[name]; child != nil {
			l.apply(child, m[name], tomldoc.Join(path, name), i)
			continue
		}
		l.unknown(n, path, name)
	}
}

func (l *loader) applyList(n *node, v any, path string) {
	list, ok := v.([]any)
	if !ok {
		l.set[path] = l.source
		l.fail(path, wrongType("a list of tables, [["+path+"]]", v).message, false)
		return
	}
	n.table.clear(l.config)
	element := &node{children: n.children}
	for i, e := range list {
		n.table.add(l.config)
		at := tomldoc.Index(path, i)
		l.set[at] = l.source
		l.apply(element, e, at, i)
	}
}

// unknown reports a key that is in no table.
func (l *loader) unknown(n *node, path, name string) {
	full := tomldoc.Join(path, name)
	e := l.place(full)
	if s, ok := l.spots[full]; ok && l.source == "" {
		e.Line, e.Col = s.Key.Line, s.Key.Col
	}
	e.Message = "unknown key" + suggestKey(n, l.pretty(path), name)
	l.errs = append(l.errs, e)
}

// suggestKey names what an unknown key was probably meant to be: a neighbour, or the same name in another table.
func suggestKey(n *node, path, name string) string {
	if near := tomldoc.Nearest(name, sortedKeys(n.children)); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", tomldoc.Join(path, near))
	}
	var elsewhere []string
	for _, t := range tables {
		for _, k := range t.keys {
			if k.name == name && t.name != "" {
				elsewhere = append(elsewhere, "["+t.name+"]")
				if t.list {
					elsewhere[len(elsewhere)-1] = "[[" + t.name + "]]"
				}
			}
		}
	}
	if len(elsewhere) == 0 {
		return ""
	}
	return " here (there is one in " + strings.Join(elsewhere, ", ") + ")"
}

// fail reports what is wrong with the value at a path.
func (l *loader) fail(path, message string, notYet bool) {
	e := l.place(path)
	e.Message, e.NotYet = message, notYet
	l.errs = append(l.errs, e)
}

// place says where the value at a path came from: the nearest enclosing thing that some layer has set.
func (l *loader) place(path string) *Error {
	e := &Error{File: l.file, Key: l.pretty(path), Source: l.source}
	for p := path; p != ""; p = tomldoc.Parent(p) {
		source, ok := l.set[p]
		if !ok {
			continue
		}
		if source != "" {
			e.Source = source
		}
		break
	}
	if e.Source != "" {
		e.File = ""
		return e
	}
	for p := path; p != ""; p = tomldoc.Parent(p) {
		_, isSet := l.set[p]
		// A default that clashes has no place of its own; the header of a [table] would mislead.
		if s, ok := l.spots[p]; ok && (p == path || isSet || strings.HasSuffix(p, "]")) {
			e.Line, e.Col = s.Value.Line, s.Value.Col
			return e
		}
	}
	return e
}

func (l *loader) pretty(path string) string { return l.config.pretty(path) }

// pretty names the elements of a [[table]] by their name where they have one: type[0].fuel is type.counter.fuel.
func (c *Config) pretty(path string) string {
	name := func(table string, i int) string {
		switch {
		case table == "type" && i < len(c.Types):
			return c.Types[i].Name
		case table == "router" && i < len(c.Routers):
			return c.Routers[i].Name
		}
		return ""
	}
	head, rest, ok := strings.Cut(path, "]")
	if !ok {
		return path
	}
	var i int
	table, number, ok := strings.Cut(head, "[")
	if _, err := fmt.Sscan(number, &i); !ok || err != nil {
		return path
	}
	if n := name(table, i); n != "" {
		return tomldoc.Join(table, n) + rest
	}
	return path
}

// hostName makes the host's name the node's. One that is no name is left to validation, which then says where it is from.
func (l *loader) hostName(hostname func() (string, error)) {
	if hostname == nil {
		hostname = os.Hostname
	}
	l.set["name"] = "host name (set name to another)"
	if name, err := hostname(); err == nil {
		l.config.Name = name
	}
}

// flag applies one --set key=value.
func (l *loader) flag(arg string) {
	l.source = sourceSet
	defer func() { l.source = "" }()
	bad := func(message string) {
		l.errs = append(l.errs, &Error{Source: sourceSet, Key: printable(arg), Message: message})
	}
	parts, rest := tomldoc.DottedKey(arg)
	value, given := strings.CutPrefix(rest, "=")
	if !given {
		// What follows may be a secret, whatever is meant to part it from the key: show nothing of it.
		if end := strings.IndexFunc(arg, func(r rune) bool { return !tomldoc.IsBare(r) && r != '.' }); end >= 0 {
			arg = arg[:end]
		}
		bad(`want key=value, such as gossip.bind=127.0.0.1:7946`)
		return
	}
	value, arg = strings.TrimSpace(value), arg[:len(arg)-len(rest)]
	if slices.Contains(parts, "") || !utf8.ValidString(arg) {
		bad("not a dotted key")
		return
	}
	if !utf8.ValidString(value) {
		bad("the value is not UTF-8 text")
		return
	}
	l.setText(parts, value)
}

// printable shortens what a user typed so that it fits a message.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "…"
	}
	return strings.Trim(tomldoc.QuoteText(s), `"`)
}

// setText sets the key named by parts to a value given as text.
func (l *loader) setText(parts []string, value string) {
	n, path, element := schema(), "", 0
	for at := 0; at < len(parts); at++ {
		part := parts[at]
		if n.key != nil {
			l.setInside(n, path, element, parts[at:], value)
			return
		}
		if n.table != nil {
			i := l.element(n.table, part)
			if i < 0 {
				return
			}
			path, element = tomldoc.Index(path, i), i
			n = &node{children: n.children}
			continue
		}
		child := n.children[part]
		if child == nil {
			l.unknown(n, path, part)
			return
		}
		n, path = child, tomldoc.Join(path, part)
	}
	if n.key != nil {
		l.apply(n, fromText(n.key.field(l.config, element), value), path, element)
		return
	}
	l.set[path] = l.source
	v, ok := parseValue(value)
	if !ok {
		v = value
	}
	l.apply(n, v, path, element)
}

// element finds the element of a [[table]] by its name, or reports that there is none and returns -1.
func (l *loader) element(t *table, name string) int {
	var names []string
	for i := range t.count(l.config) {
		have, _ := text(t.keys[0].field(l.config, i))
		if have == name {
			return i
		}
		names = append(names, have)
	}
	known := "none is configured"
	if len(names) > 0 {
		known = "there is " + strings.Join(names, ", ")
	}
	e := l.place(tomldoc.Join(t.name, name))
	e.Message = fmt.Sprintf("no [[%s]] has this name; %s%s", t.name, known, tomldoc.DidYouMean(name, names))
	l.errs = append(l.errs, e)
	return -1
}

// setInside sets a key below a table that is the user's own: tags and [type.config].
func (l *loader) setInside(n *node, path string, element int, parts []string, value string) {
	full := path
	for _, p := range parts {
		full = tomldoc.Join(full, p)
	}
	v, ok := parseValue(value)
	if !ok {
		v = value
	}
	switch f := n.key.field(l.config, element).(type) {
	case *map[string]string:
		if len(parts) == 1 {
			if _, isText := v.(string); !isText {
				v = value
			}
			l.set[full] = l.source
			(*f)[parts[0]] = v.(string)
			return
		}
	case *map[string]any:
		m := *f
		for _, p := range parts[:len(parts)-1] {
			inner, ok := m[p].(map[string]any)
			if !ok {
				inner = map[string]any{}
				m[p] = inner
			}
			m = inner
		}
		l.set[full] = l.source
		m[parts[len(parts)-1]] = tomldoc.Plain(v)
		return
	}
	l.fail(full, "unknown key: "+path+" has no keys below it", false)
}

// parseValue reads one TOML value.
func parseValue(s string) (any, bool) {
	var doc map[string]any
	if _, err := toml.Decode("v = "+s, &doc); err != nil || len(doc) != 1 {
		return nil, false
	}
	v, ok := doc["v"]
	return tomldoc.Normal(v), ok
}

// fromText turns text into the value that a field takes: TOML, or a bare word. For fields that hold text, whatever is
// no TOML text is meant as it stands (name=7, zone=true); a list may be one element, or some between commas.
func fromText(field any, s string) any {
	v, ok := parseValue(s)
	_, isText := v.(string)
	_, isList := v.([]any)
	switch field.(type) {
	case *[]string, *[]Secret:
		if ok && isList {
			return v
		}
		if ok && isText {
			return []any{v}
		}
		list := []any{}
		for _, part := range strings.Split(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		return list
	case *bool, *int, *int64, *map[string]string, *map[string]any:
		if ok {
			return v
		}
		return s
	default:
		if ok && isText {
			return v
		}
		return s
	}
}
