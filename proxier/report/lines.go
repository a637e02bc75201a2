package report

import (
	"log/slog"
	"time"
)

// Lines bounds what the log has about the objects of each namespace in a minute. A tenant who writes ever new faults must
// not fill the log, nor keep those of others out of it. One goroutine at a time may use it.
type Lines struct {
	log     *slog.Logger
	limit   int
	written map[string]int // lines of this minute, by namespace
	minute  time.Time      // when it began
}

// NewLines returns Lines with a limit for each namespace.
func NewLines(log *slog.Logger, limit int) Lines {
	return Lines{log: log, limit: limit, written: map[string]int{}}
}

// MayWrite reports whether the log has room for another line about a namespace. The metrics and the Events tell of what
// is left out.
func (l *Lines) MayWrite(namespace string, now time.Time) bool {
	if now.Sub(l.minute) >= time.Minute {
		l.endMinute(now)
	}
	l.written[namespace]++
	if l.written[namespace] == l.limit+1 {
		l.log.Warn("too many lines about the objects of one namespace; more are not logged in this minute",
			"namespace", namespace, "limit", l.limit, "flag", "--max-namespace-log-lines")
	}
	return l.written[namespace] <= l.limit
}

// endMinute logs how many lines were left out, and begins another minute.
func (l *Lines) endMinute(now time.Time) {
	for namespace, n := range l.written {
		if n > l.limit {
			l.log.Warn("lines about the objects of one namespace were not logged", "namespace", namespace, "lines", n-l.limit)
		}
	}
	l.written, l.minute = map[string]int{}, now
}
