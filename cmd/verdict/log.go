package main

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/verdict-proxy/verdict/config"
)

// newLogger returns a logger that writes JSON if the settings say so, colored lines to a terminal, and plain lines
// otherwise.
func newLogger(w io.Writer, s *config.Settings) *slog.Logger {
	level := slog.Level(-s.Verbosity) // slog.LevelDebug is -4, and every pass is logged there
	switch {
	case s.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: sameKeys}))
	case isTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, ReplaceAttr: sameKeys}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: sameKeys}))
}

// sameKeys gives what client-go logs the keys of this program.
func sameKeys(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "err" {
		a.Key = "error"
	}
	return a
}

// routeClientLog sends the log of client-go to a logger. What it says on -v N is on the level -N.
func routeClientLog(log *slog.Logger, verbosity int) {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	_ = fs.Set("v", strconv.Itoa(verbosity)) // the flag exists, and the value is a number
	klog.SetSlogLogger(log)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
