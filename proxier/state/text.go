package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The longest texts in bytes. Objects are written by tenants, and one value of an object can have 1 MB. A text that is
// quoted in Problems is copied into the log and into an Event, for each part of the object that it concerns.
const (
	maxQuote  = 60  // of a value of an object
	maxReason = 400 // of a Problem
	maxField  = 160 // of the path of a field
)

// Quote returns a value of an object in quotes. It clips long values.
func Quote(s string) string { return strconv.Quote(Clip(s, maxQuote)) }

// Clip returns the first bytes of a text, followed by "..." if something is missing. It does not cut through a
// character. A clipped text shares no memory with the whole one.
func Clip(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	end := longest
	for end > longest-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// Printable returns a text that may be a line of a log or a terminal: what cannot be printed becomes an escape sequence
// of Go.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) && utf8.ValidString(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Plural is "1 endpoint", "2 endpoints".
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// oneOf returns which of some words a text is. The zero value of the type is the first word.
func oneOf[T ~uint8](text string, words ...string) (T, error) {
	if i := slices.Index(words, text); i >= 0 {
		return T(i), nil
	}
	last := len(words) - 1
	return 0, fmt.Errorf("%s is not %s or %s", Quote(text), strings.Join(words[:last], ", "), words[last])
}
