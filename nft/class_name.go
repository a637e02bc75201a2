package nft

import (
	"strconv"
	"strings"
	"time"
)

// parseClass reads the name of the chain of a class. It is the inverse of class.chain.
func parseClass(chain string) (c class, ok bool) {
	words := strings.Split(chain, "-")
	if len(words) < 2 {
		return c, false
	}
	size, err := strconv.ParseUint(words[1], 10, 32)
	method, known := parseMethod(words[0])
	c.draw = draw{method, uint32(size)}
	switch rest := words[2:]; {
	case len(rest) > 1 && rest[0] == "sticky":
		c.affinity = parseDuration(rest[1])
		c.local = len(rest) == 3 && rest[2] == "local"
	case len(rest) > 0:
		return c, false
	}
	return c, known && err == nil && c.chain() == chain
}

func parseMethod(s string) (Method, bool) {
	for _, m := range []Method{Random, InTurn, SourceHash} {
		if m.String() == s {
			return m, true
		}
	}
	return 0, false
}

// parseDuration reads the form that duration prints; 0 for any other text.
func parseDuration(s string) time.Duration {
	var sum time.Duration
	for s != "" {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		n, err := strconv.ParseInt(s[:digits], 10, 64)
		if err != nil || digits == len(s) {
			return 0
		}
		sum += time.Duration(n) * unitOf(s[digits])
		s = s[digits+1:]
	}
	return sum
}

func unitOf(letter byte) time.Duration {
	switch letter {
	case 'd':
		return 24 * time.Hour
	case 'h':
		return time.Hour
	case 'm':
		return time.Minute
	case 's':
		return time.Second
	}
	return 0
}
