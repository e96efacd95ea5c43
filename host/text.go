package host

import (
	"strconv"
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
	if i := unclean(s); i < len(s) {
		s = escape(s, i)
	}
	if cut {
		s += "…"
	}
	return s
}

// unclean returns where the first character of s is that has to be escaped; its
// length if there is none. A call may answer with megabytes of reasons, and the
// time that they take is nobody's but the host's.
func unclean(s string) int {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !strconv.IsPrint(r) {
			return i
		}
		i += size
	}
	return len(s)
}

// escape returns s with what unclean finds written as in a Go string, from at on.
func escape(s string, at int) string {
	b := append(make([]byte, 0, 2*len(s)), s[:at]...)
	for at < len(s) {
		if c := s[at]; c < utf8.RuneSelf {
			b = append(b, escaped[c]...)
			at++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[at:])
		switch {
		case r == utf8.RuneError && size == 1: // a byte that is no UTF-8
			b = append(b, `\x`...)
			b = strconv.AppendUint(b, uint64(s[at]), 16)
		case strconv.IsPrint(r):
			b = append(b, s[at:at+size]...)
		default:
			quoted := strconv.AppendQuoteRune(nil, r)
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		at += size
	}
	return string(b)
}

// escaped is how each ASCII character is written.
var escaped = func() (all [utf8.RuneSelf]string) {
	for r := range rune(utf8.RuneSelf) {
		all[r] = string(r)
		if !strconv.IsPrint(r) {
			quoted := strconv.QuoteRune(r)
			all[r] = quoted[1 : len(quoted)-1]
		}
	}
	return all
}()
