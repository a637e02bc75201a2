// Package logging makes the logger of a command, in the format and on the level of the flags, and that of client-go.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/lmittmann/tint"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/verdict-proxy/verdict/config"
)

// logLevel is the level of the log. It changes while the daemon runs, when -v changes in the configuration file.
var logLevel slog.LevelVar

// SetVerbosity sets the level of the log, and of the log of client-go, to that of -v. What client-go says on -v N is on
// the level -N. slog.LevelDebug is -4, and every pass is logged there.
func SetVerbosity(v int) {
	logLevel.Set(slog.Level(-v))
	_ = new(klog.Level).Set(strconv.Itoa(v)) // the value is a number
}

// New returns a logger that writes JSON if the settings say so, colored lines to a terminal, and plain lines
// otherwise. Lines for the journal of systemd begin with their priority.
func New(w io.Writer, s *config.Settings) *slog.Logger {
	SetVerbosity(s.Verbosity)
	o := &slog.HandlerOptions{Level: &logLevel, ReplaceAttr: sameKeys}
	f, isFile := w.(*os.File)
	switch {
	case isJournal(w):
		return newJournal(w, s.LogFormat, o)
	case s.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, o))
	case isFile && term.IsTerminal(int(f.Fd())):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: &logLevel, TimeFormat: time.TimeOnly, ReplaceAttr: sameKeys}))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// sameKeys gives what client-go logs the keys of this program.
func sameKeys(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "err" {
		a.Key = "error"
	}
	return a
}

// OneLine returns the text of a joined error on one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// isJournal reports whether what is written goes to the journal of systemd.
func isJournal(w io.Writer) bool {
	if f, ok := w.(*os.File); !ok || f.Fd() != os.Stderr.Fd() {
		return false
	}
	is, err := journal.StderrIsJournalStream()
	return is && err == nil // without an answer, lines are plain
}

// ErrorMark is what a line about an error begins with: its priority, in the journal of systemd.
func ErrorMark(w io.Writer) string {
	if isJournal(w) {
		return fmt.Sprintf("<%d>", journal.PriErr)
	}
	return ""
}

// newJournal returns a logger for the journal. Text has neither time nor level, which the journal has itself.
func newJournal(w io.Writer, format string, o *slog.HandlerOptions) *slog.Logger {
	lines := &journalLines{to: w}
	if format == "json" {
		return slog.New(journalHandler{slog.NewJSONHandler(lines, o), lines})
	}
	o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return sameKeys(groups, a)
	}
	return slog.New(journalHandler{slog.NewTextHandler(lines, o), lines})
}

// journalHandler passes the level of each record to journalLines.
type journalHandler struct {
	slog.Handler
	lines *journalLines
}

// Handle implements slog.Handler.
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.level = r.Level
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h journalHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return journalHandler{h.Handler.WithAttrs(a), h.lines}
}

// WithGroup implements slog.Handler.
func (h journalHandler) WithGroup(name string) slog.Handler {
	return journalHandler{h.Handler.WithGroup(name), h.lines}
}

// journalLines writes lines with their priority (sd-daemon(3)). A handler writes each record as one line.
type journalLines struct {
	mu    sync.Mutex
	to    io.Writer
	level slog.Level
}

// Write implements io.Writer.
func (l *journalLines) Write(line []byte) (int, error) {
	priority := journal.PriDebug
	switch {
	case l.level >= slog.LevelError:
		priority = journal.PriErr
	case l.level >= slog.LevelWarn:
		priority = journal.PriWarning
	case l.level >= slog.LevelInfo:
		priority = journal.PriInfo
	}
	if _, err := l.to.Write(fmt.Appendf(nil, "<%d>%s", priority, line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
