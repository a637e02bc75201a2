package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/verdict-proxy/verdict/config"
)

// debugVerbosity is the value of -v from which every pass is logged.
const debugVerbosity = 4

// newLogger returns a logger that writes JSON if the settings say so, colored lines to a terminal, and plain lines
// otherwise.
func newLogger(w io.Writer, s *config.Settings) *slog.Logger {
	level := slog.LevelInfo
	if s.Verbosity >= debugVerbosity {
		level = slog.LevelDebug
	}
	switch {
	case s.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	case isTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
