package config

import (
	"fmt"
	"strings"

	"github.com/droverhq/drover/internal/tomldoc"
)

// Show returns the effective configuration as TOML. Secrets come out as if they were not set, with a comment that says
// how many there are; apart from them it reads back to the same configuration.
func (c *Config) Show() string {
	var b strings.Builder
	for _, t := range tables {
		if !t.list {
			c.showTable(&b, t, 0)
			continue
		}
		for i := range t.count(c) {
			c.showTable(&b, t, i)
		}
	}
	return strings.TrimLeft(b.String(), "\n")
}

func (c *Config) showTable(b *strings.Builder, t table, i int) {
	b.WriteString(header(t))
	var own *key // a table of the user's own has to come last
	for j, k := range t.keys {
		field := k.field(c, i)
		if isTable(field) {
			own = &t.keys[j]
			continue
		}
		fmt.Fprintf(b, "%s = %s", k.name, formatField(field))
		switch n := secrets(field); {
		case n == 1:
			b.WriteString(" # set, not shown")
		case n > 1:
			fmt.Fprintf(b, " # %d set, not shown", n)
		}
		b.WriteString("\n")
	}
	if own != nil {
		if own.name != "" {
			fmt.Fprintf(b, "[%s.%s]\n", t.name, own.name)
		}
		entries := asTable(own.field(c, i))
		for _, name := range sortedKeys(entries) {
			fmt.Fprintf(b, "%s = %s\n", tomldoc.QuoteKey(name), tomldoc.FormatValue(entries[name]))
		}
	}
}

func header(t table) string {
	switch {
	case t.name == "":
		return ""
	case t.list:
		return "\n[[" + t.name + "]]\n"
	default:
		return "\n[" + t.name + "]\n"
	}
}

func isTable(field any) bool {
	switch field.(type) {
	case *map[string]string, *map[string]any:
		return true
	}
	return false
}

func asTable(field any) map[string]any {
	out := map[string]any{}
	switch f := field.(type) {
	case *map[string]string:
		for k, v := range *f {
			out[k] = v
		}
	case *map[string]any:
		return *f
	}
	return out
}

// Tree returns the effective configuration as nested maps for JSON: durations, sizes and rates as in TOML, and
// "(not shown)" for secrets.
func (c *Config) Tree() map[string]any {
	out := map[string]any{}
	for _, t := range tables {
		if !t.list {
			at := out
			if t.name != "" {
				at = map[string]any{}
				out[t.name] = at
			}
			c.fillTree(at, t, 0)
			continue
		}
		list := []any{}
		for i := range t.count(c) {
			at := map[string]any{}
			c.fillTree(at, t, i)
			list = append(list, at)
		}
		out[t.name] = list
	}
	return out
}

func (c *Config) fillTree(into map[string]any, t table, i int) {
	for _, k := range t.keys {
		at, name := into, k.name
		if head, tail, ok := strings.Cut(name, "."); ok {
			inner, _ := at[head].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				at[head] = inner
			}
			at, name = inner, tail
		}
		field := k.field(c, i)
		switch f := field.(type) {
		case *map[string]string, *map[string]any:
			own := asTable(field)
			if name == "" {
				for key, v := range own {
					at[key] = v
				}
			} else {
				at[name] = jsonable(own)
			}
		case *Secret:
			at[name] = f.String()
		case *[]Secret:
			list := make([]string, len(*f))
			for j := range list {
				list[j] = hidden
			}
			at[name] = list
		default:
			v, ok := parseValue(formatField(field))
			if !ok {
				panic("config: " + formatField(field) + " is not TOML")
			}
			at[name] = v
		}
	}
}

// jsonable replaces the numbers that JSON does not have by their names.
func jsonable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = jsonable(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = jsonable(e)
		}
		return out
	case float64:
		if s := tomldoc.FormatValue(v); strings.HasSuffix(s, "inf") || s == "nan" {
			return s
		}
	}
	return v
}

// Sample returns the node.toml that the project ships: every key with a comment, at its default, and one type.
func Sample() string {
	c := Default()
	c.Types, c.Routers = []Type{DefaultType()}, []Router{DefaultRouter()}
	var b strings.Builder
	for _, t := range tables {
		if t.name != "" {
			b.WriteString("\n")
		}
		comment(&b, t.doc)
		if t.name == "" {
			b.WriteString("\n")
		}
		off := ""
		if t.notYet != "" {
			off = "# "
		}
		b.WriteString(off + strings.TrimPrefix(header(t), "\n"))
		for _, k := range t.keys {
			comment(&b, k.doc)
			b.WriteString(sampleKey(t, k, k.field(c, 0), off))
		}
	}
	return b.String()
}

func sampleKey(t table, k key, field any, off string) string {
	switch {
	case isTable(field) && k.sample != "":
		return fmt.Sprintf("[%s.%s]\n%s\n", t.name, k.name, k.sample)
	case isTable(field):
		return "# " + k.example + "\n"
	case k.example != "":
		return fmt.Sprintf("# %s = %s\n", k.name, k.example)
	case k.sample != "":
		return fmt.Sprintf("%s%s = %s\n", off, k.name, k.sample)
	default:
		return fmt.Sprintf("%s%s = %s\n", off, k.name, formatField(field))
	}
}

// comment writes text as TOML comments, wrapped.
func comment(b *strings.Builder, text string) {
	const width = 110
	for _, paragraph := range strings.Split(text, "\n") {
		line := "#"
		for _, word := range strings.Fields(paragraph) {
			if len(line)+1+len(word) > width {
				b.WriteString(line + "\n")
				line = "#"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
}

// Reference returns the keys as Markdown, for docs/config.md.
func Reference() string {
	c := Default()
	c.Types, c.Routers = []Type{DefaultType()}, []Router{DefaultRouter()}
	var b strings.Builder
	for _, t := range tables {
		switch {
		case t.name == "":
			b.WriteString("### Top of the file\n")
		case t.list:
			fmt.Fprintf(&b, "\n### `[[%s]]`\n\n%s\n", t.name, markdown(t.doc))
		default:
			fmt.Fprintf(&b, "\n### `[%s]`\n\n%s\n", t.name, markdown(t.doc))
		}
		b.WriteString("\n| key | default | what it is |\n|---|---|---|\n")
		for _, k := range t.keys {
			standard := "`" + formatField(k.field(c, 0)) + "`"
			name := "`" + k.name + "`"
			switch {
			case isTable(k.field(c, 0)) && k.name == "":
				name, standard = "your own", "none"
			case isTable(k.field(c, 0)):
				name, standard = "`["+t.name+"."+k.name+"]`", "empty"
			case t.name == "" && k.name == "name":
				standard = "host name"
			case strings.HasSuffix(k.doc, "Required."):
				standard = "required"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", name, standard, markdown(k.doc))
		}
	}
	return b.String()
}

// markdown keeps the characters of a text that Markdown tables would take for their own.
func markdown(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "[[", `\[\[`, "]]", `\]\]`, "[", `\[`, "]", `\]`, "<", "&lt;").Replace(s)
}
