package config

import (
	"fmt"
	"time"

	"github.com/droverhq/drover/internal/tomldoc"
)

// wrong is a value that does not fit its key. element is the part of the value that is meant, as a path: "[1]", ".rack".
type wrong struct {
	element string
	message string
}

func wrongType(want string, v any) *wrong {
	return &wrong{message: fmt.Sprintf("want %s, got %s", want, tomldoc.Describe(v))}
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
			return &wrong{message: "want a text in quotes, got " + tomldoc.Kind(v)}
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
		*f = tomldoc.Plain(m).(map[string]any)
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
		return &wrong{message: fmt.Sprintf("%s is %s", tomldoc.QuoteText(s), err)}
	}
	*f = parsed
	return nil
}

func assignList[T ~string](f *[]T, v any, secret bool) *wrong {
	list, ok := v.([]any)
	if !ok {
		if secret {
			return &wrong{message: "want a list of texts, got " + tomldoc.Kind(v)}
		}
		return wrongType("a list of texts", v)
	}
	out := make([]T, 0, len(list))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			message := "want a text in quotes, got " + tomldoc.Describe(e)
			if secret {
				message = "want a text in quotes, got " + tomldoc.Kind(e)
			}
			return &wrong{element: tomldoc.Index("", i), message: message}
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
			w.element = "." + tomldoc.QuoteKey(k)
			return w
		}
		out[k] = s
	}
	*f = out
	return nil
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
		return tomldoc.QuoteText(s)
	}
	switch f := field.(type) {
	case *Secret:
		return `""`
	case *[]Secret:
		return "[]"
	case *bool:
		return tomldoc.FormatValue(*f)
	case *int:
		return tomldoc.FormatValue(int64(*f))
	case *int64:
		return tomldoc.FormatValue(*f)
	case *time.Duration:
		return tomldoc.QuoteText(formatDuration(*f))
	case *Bytes:
		return tomldoc.QuoteText(f.String())
	case *Rate:
		return tomldoc.QuoteText(f.String())
	case *[]string:
		return tomldoc.FormatValue(anyList(*f))
	case *map[string]string:
		m := make(map[string]any, len(*f))
		for k, v := range *f {
			m[k] = v
		}
		return tomldoc.FormatValue(m)
	case *map[string]any:
		return tomldoc.FormatValue(*f)
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
