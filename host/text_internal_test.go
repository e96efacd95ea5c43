package host

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain, ünïcode":           "plain, ünïcode",
		"two\nlines\r":             `two\nlines\r`,
		"\x1b[31mred\x1b[0m":       `\x1b[31mred\x1b[0m`,
		"bad \xff byte":            `bad \xff byte`,
		"replaced \uFFFD":          "replaced \uFFFD",
		"left\u202Eto right":       `left\u202eto right`,
		"0123456789abcdefghij":     "0123456789abcdefghij",
		"0123456789abcdefghijk":    "0123456789abcdefghij…",
		"0123456789abcdefghi→":     "0123456789abcdefghi…",
		strings.Repeat("\xff", 21): strings.Repeat(`\xff`, 19) + "…",
	} {
		require.Equal(t, want, clean(in, 20), "%q", in)
	}
}

// Escaping is what strconv does, character by character, bytes that are no UTF-8 aside.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "plain", "a\nb\x7f", "\u202e\ufffd\xc3", "ünïcode\a", "\U0010ffff\xe2\x82"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want strings.Builder
		for i, r := range s {
			switch quoted := strconv.QuoteRune(r); {
			case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
				fmt.Fprintf(&want, `\x%02x`, s[i])
			case strconv.IsPrint(r):
				want.WriteRune(r)
			default:
				want.WriteString(quoted[1 : len(quoted)-1])
			}
		}
		require.Equal(t, want.String(), clean(s, len(s)))
	})
}
