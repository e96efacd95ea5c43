package host

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// What a module or a guest says, reasons and descriptions included, goes into
// errors, findings, logs and on terminals: in one line, without control characters, and no longer than this.
const (
	maxText = 1024 // bytes of a message
	maxName = 128  // bytes of a name within one
)

// clean makes s fit for a message of at most so many bytes, and an ellipsis.
func clean(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = s[:most]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, size := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && size == 1 {
			s = s[:len(s)-1] // the start of the rune that was cut
		}
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		var b strings.Builder
		for i, r := range s {
			switch quoted := strconv.QuoteRune(r); {
			case r == utf8.RuneError && s[i] != 0xef: // a byte that is no UTF-8
				b.WriteString(`\x` + strconv.FormatUint(uint64(s[i]), 16))
			case strconv.IsPrint(r):
				b.WriteRune(r)
			default:
				b.WriteString(quoted[1 : len(quoted)-1])
			}
		}
		s = b.String()
	}
	if cut {
		s += "…"
	}
	return s
}
