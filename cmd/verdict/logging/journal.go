package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

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
func newJournal(w io.Writer, format string) *slog.Logger {
	lines := &journalLines{to: w}
	o := &slog.HandlerOptions{Level: &logLevel, ReplaceAttr: sameKeys}
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
