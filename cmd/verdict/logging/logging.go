package logging

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

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
	clientLog.Lock()
	defer clientLog.Unlock()
	if clientLog.flags == nil {
		clientLog.flags = flag.NewFlagSet("klog", flag.ContinueOnError)
		klog.InitFlags(clientLog.flags)
	}
	_ = clientLog.flags.Set("v", strconv.Itoa(v)) // the flag exists, and the value is a number
}

// clientLog has the flags of the log of client-go. They are made once, because that reads present values without a lock.
var clientLog struct {
	sync.Mutex
	flags *flag.FlagSet
}

// New returns a logger that writes JSON if the settings say so, colored lines to a terminal, and plain lines
// otherwise. Lines for the journal of systemd begin with their priority.
func New(w io.Writer, s *config.Settings) *slog.Logger {
	SetVerbosity(s.Verbosity)
	if isJournal(w) {
		return newJournal(w, s.LogFormat)
	}
	switch {
	case s.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: &logLevel, ReplaceAttr: sameKeys}))
	case isTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: &logLevel, TimeFormat: time.TimeOnly, ReplaceAttr: sameKeys}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: &logLevel, ReplaceAttr: sameKeys}))
}

// sameKeys gives what client-go logs the keys of this program.
func sameKeys(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "err" {
		a.Key = "error"
	}
	return a
}

// RouteClientLog sends the log of client-go to a logger.
func RouteClientLog(log *slog.Logger) { klog.SetSlogLogger(log) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// OneLine returns the text of a joined error on one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
