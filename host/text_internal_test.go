package host

import (
	"strings"
	"testing"

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
