package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// wrong is a value that does not fit its key. element is the part of the value that is meant, as a path: "[1]", ".rack".
type wrong struct {
	element string
	message string
}

func wrongType(want string, v any) *wrong {
	return &wrong{message: fmt.Sprintf("want %s, got %s", want, describe(v))}
}

// assign puts a decoded TOML value into the field of a key.
func assign(field, v any) *wrong {
	switch f := field.(type) {
	case *string:
		return assignText(f, v)
	case *Place:
		return assignText(f, v)
	case *Persistence:
		return assignText(f, v)
	case *RouterStrategy:
		return assignText(f, v)
	case *LogLevel:
		return assignText(f, v)
	case *LogFormat:
		return assignText(f, v)
	case *Secret:
		s, ok := v.(string)
		if !ok {
			return &wrong{message: "want a text in quotes, got " + kind(v)}
		}
		*f = Secret(s)
	case *bool:
		b, ok := v.(bool)
		if !ok {
			return wrongType("true or false", v)
		}
		*f = b
	case *int:
		n, ok := v.(int64)
		if !ok {
			return wrongType("a whole number", v)
		}
		if int64(int(n)) != n {
			return &wrong{message: fmt.Sprintf("%d is too large", n)}
		}
		*f = int(n)
	case *int64:
		n, ok := v.(int64)
		if !ok {
			return wrongType("a whole number", v)
		}
		*f = n
	case *time.Duration:
		return assignParsed(f, v, `a duration such as "2s"`, parseDuration)
	case *Bytes:
		return assignParsed(f, v, `a size such as "64MiB"`, ParseBytes)
	case *Rate:
		return assignParsed(f, v, `a rate such as "100MiB/s"`, ParseRate)
	case *[]string:
		return assignList(f, v, false)
	case *[]Secret:
		return assignList(f, v, true)
	case *map[string]string:
		return assignTags(f, v)
	case *map[string]any:
		m, ok := v.(map[string]any)
		if !ok {
			return wrongType("a table", v)
		}
		*f = plain(m).(map[string]any)
	default:
		panic(fmt.Sprintf("config: the key table has a field of type %T", field))
	}
	return nil
}

func assignText[T ~string](f *T, v any) *wrong {
	s, ok := v.(string)
	if !ok {
		return wrongType("a text in quotes", v)
	}
	*f = T(s)
	return nil
}

func assignParsed[T any](f *T, v any, want string, parse func(string) (T, error)) *wrong {
	s, ok := v.(string)
	if !ok {
		return wrongType(want, v)
	}
	parsed, err := parse(s)
	if err != nil {
		return &wrong{message: fmt.Sprintf("%s is %s", quoteText(s), err)}
	}
	*f = parsed
	return nil
}

func assignList[T ~string](f *[]T, v any, secret bool) *wrong {
	list, ok := v.([]any)
	if !ok {
		if secret {
			return &wrong{message: "want a list of texts, got " + kind(v)}
		}
		return wrongType("a list of texts", v)
	}
	out := make([]T, 0, len(list))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			message := "want a text in quotes, got " + describe(e)
			if secret {
				message = "want a text in quotes, got " + kind(e)
			}
			return &wrong{element: index("", i), message: message}
		}
		out = append(out, T(s))
	}
	if len(out) == 0 {
		out = nil
	}
	*f = out
	return nil
}

func assignTags(f *map[string]string, v any) *wrong {
	m, ok := v.(map[string]any)
	if !ok {
		return wrongType("a table of texts", v)
	}
	out := make(map[string]string, len(m))
	for _, k := range sortedKeys(m) {
		s, ok := m[k].(string)
		if !ok {
			w := wrongType("a text in quotes", m[k])
			w.element = "." + quoteKey(k)
			return w
		}
		out[k] = s
	}
	*f = out
	return nil
}

// plain turns a decoded TOML value into what CBOR can carry: dates become the text that TOML writes for them.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []map[string]any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	case time.Time:
		return formatTime(v)
	default:
		return v
	}
}

// formatTime writes a date as TOML does. The TOML library marks the kinds without an offset by the name of the zone.
func formatTime(t time.Time) string {
	switch t.Location().String() {
	case "datetime-local":
		return t.Format("2006-01-02T15:04:05.999999999")
	case "date-local":
		return t.Format("2006-01-02")
	case "time-local":
		return t.Format("15:04:05.999999999")
	default:
		return t.Format(time.RFC3339Nano)
	}
}

// kind names the TOML type of a decoded value.
func kind(v any) string {
	switch v.(type) {
	case string:
		return "a text"
	case bool:
		return "a truth value"
	case int64:
		return "a whole number"
	case float64:
		return "a decimal number"
	case time.Time:
		return "a date or time"
	case []any:
		return "a list"
	case []map[string]any:
		return "a list of tables"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprintf("%T", v)
	}
}

// describe names the type of a value and the value itself if that is short.
func describe(v any) string {
	switch v.(type) {
	case string, bool, int64, float64, time.Time:
		text := formatValue(plain(v))
		if utf8.RuneCountInString(text) <= 60 {
			return kind(v) + ", " + text
		}
	}
	return kind(v)
}

// number returns a field as the integer that its bounds are given in.
func number(field any) (int64, bool) {
	switch f := field.(type) {
	case *int:
		return int64(*f), true
	case *int64:
		return *f, true
	case *time.Duration:
		return int64(*f), true
	case *Bytes:
		return int64(*f), true
	case *Rate:
		return int64(*f), true
	}
	return 0, false
}

// text returns a field that is a text or an enumeration.
func text(field any) (string, bool) {
	switch f := field.(type) {
	case *string:
		return *f, true
	case *Place:
		return string(*f), true
	case *Persistence:
		return string(*f), true
	case *RouterStrategy:
		return string(*f), true
	case *LogLevel:
		return string(*f), true
	case *LogFormat:
		return string(*f), true
	}
	return "", false
}

// formatField writes a field as TOML. Secrets come out as if they were not set.
func formatField(field any) string {
	if s, ok := text(field); ok {
		return quoteText(s)
	}
	switch f := field.(type) {
	case *Secret:
		return `""`
	case *[]Secret:
		return "[]"
	case *bool:
		return formatValue(*f)
	case *int:
		return formatValue(int64(*f))
	case *int64:
		return formatValue(*f)
	case *time.Duration:
		return quoteText(formatDuration(*f))
	case *Bytes:
		return quoteText(f.String())
	case *Rate:
		return quoteText(f.String())
	case *[]string:
		return formatValue(anyList(*f))
	case *map[string]string:
		m := make(map[string]any, len(*f))
		for k, v := range *f {
			m[k] = v
		}
		return formatValue(m)
	case *map[string]any:
		return formatValue(*f)
	default:
		panic(fmt.Sprintf("config: the key table has a field of type %T", field))
	}
}

// secrets counts the secrets that a field holds.
func secrets(field any) int {
	switch f := field.(type) {
	case *Secret:
		if *f != "" {
			return 1
		}
	case *[]Secret:
		return len(*f)
	}
	return 0
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// formatValue writes a plain value as TOML; tables come out inline, sorted.
func formatValue(v any) string {
	switch v := v.(type) {
	case string:
		return quoteText(v)
	case float64:
		switch {
		case math.IsNaN(v):
			return "nan"
		case math.IsInf(v, 1):
			return "inf"
		case math.IsInf(v, -1):
			return "-inf"
		}
		s := fmt.Sprint(v)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = formatValue(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		if len(v) == 0 {
			return "{}"
		}
		parts := make([]string, 0, len(v))
		for _, k := range sortedKeys(v) {
			parts = append(parts, quoteKey(k)+" = "+formatValue(v[k]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case int64:
		return formatInt(v)
	default: // bool
		return fmt.Sprint(v)
	}
}

// formatInt writes a whole number, from six digits on with '_' between thousands.
func formatInt(n int64) string {
	s := strconv.FormatInt(n, 10)
	if n > -100_000 && n < 100_000 {
		return s
	}
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	return s
}

// quoteText writes a TOML basic string. It is what messages quote values with too.
func quoteText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r >= 0x7f && r <= 0x9f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
