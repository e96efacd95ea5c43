package tomldoc

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Normal gives lists of tables the same shape whichever way they were written.
func Normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = Normal(e)
		}
	case []map[string]any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Normal(e)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = Normal(e)
		}
	}
	return v
}

// Plain turns a decoded TOML value into what CBOR can carry: dates become the text that TOML writes for them.
func Plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = Plain(e)
		}
		return out
	case []map[string]any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Plain(e)
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

// Kind names the TOML type of a decoded value.
func Kind(v any) string {
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

// Describe names the type of a value and the value itself if that is short.
func Describe(v any) string {
	switch v.(type) {
	case string, bool, int64, float64, time.Time:
		text := FormatValue(Plain(v))
		if utf8.RuneCountInString(text) <= 60 {
			return Kind(v) + ", " + text
		}
	}
	return Kind(v)
}

// FormatValue writes a plain value as TOML; tables come out inline, sorted.
func FormatValue(v any) string {
	switch v := v.(type) {
	case string:
		return QuoteText(v)
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
			parts[i] = FormatValue(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		if len(v) == 0 {
			return "{}"
		}
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, QuoteKey(k)+" = "+FormatValue(v[k]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case int64:
		return FormatInt(v)
	default: // bool
		return fmt.Sprint(v)
	}
}

// FormatInt writes a whole number, from six digits on with '_' between thousands.
func FormatInt(n int64) string {
	s := strconv.FormatInt(n, 10)
	if n > -100_000 && n < 100_000 {
		return s
	}
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	return s
}

// QuoteText writes a TOML basic string. It is what messages quote values with too.
func QuoteText(s string) string {
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
