package flags

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
)

// Follow applies changes of the configuration file until the context ends. It returns an error when the process has to
// start again: whoever runs the process does that. A file that cannot be read changes nothing. A request reads it at once.
func Follow(ctx context.Context, c *CommandLine, now <-chan directory.Request, live func(*config.Settings) error, log *slog.Logger) error {
	if c.File == "" {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f := follower{present: c, live: live, log: log}
	var restart error
	err := directory.FollowFile(ctx, c.File, now, func() error {
		if restart == nil {
			restart = f.read()
		}
		if restart != nil {
			stop()
		}
		if f.refused == "" {
			return nil
		}
		return fmt.Errorf("%s cannot be used, and the previous configuration stays in force: %s", c.File, f.refused)
	}, log)
	return cmp.Or(restart, err)
}

// follower compares the configuration file with the settings in force.
type follower struct {
	present *CommandLine
	content []byte // what is in force
	refused string // why the latest file was not used; "": it was
	live    func(*config.Settings) error
	log     *slog.Logger
}

// read applies the file as it is now. It returns an error if that needs a restart.
func (f *follower) read() error {
	content, err := os.ReadFile(f.present.File)
	if err == nil && bytes.Equal(content, f.content) {
		f.refused = ""
		return nil
	}
	var next *CommandLine
	if err == nil {
		next, err = f.present.again()
	}
	if err == nil {
		var restart error
		if restart, err = f.apply(next); restart != nil {
			return restart
		}
	}
	if err != nil {
		f.refuse(err) // and it is read again
		return nil
	}
	f.content, f.refused = content, ""
	return nil
}

// refuse logs why a file is not used; once for each reason, because the file is looked at regularly.
func (f *follower) refuse(err error) {
	if f.refused == err.Error() {
		return
	}
	f.refused = err.Error()
	f.log.Error("the configuration file has changed and cannot be used; the previous configuration stays in force",
		"file", f.present.File, "error", logging.OneLine(err))
}

// apply makes settings take effect. Restart is not nil if that takes a new process.
func (f *follower) apply(next *CommandLine) (restart, err error) {
	var live, late []string
	f.present.flags.VisitAll(func(flag *pflag.Flag) {
		other := next.flags.Lookup(flag.Name)
		if other == nil || valueOf(flag) == valueOf(other) {
			return
		}
		text := fmt.Sprintf("--%s from %q to %q", flag.Name, valueOf(flag), valueOf(other))
		if field := next.fields[flag.Name]; field != "" {
			text = fmt.Sprintf("%s (%s)", field, text)
		}
		if isLive(flag) {
			live = append(live, text)
		} else {
			late = append(late, text)
		}
	})
	if len(late) > 0 {
		changes := strings.Join(late, "; ")
		f.log.Warn("the configuration file has changed; the process ends and has to be started again; the rules stay in the kernel",
			"file", f.present.File, "changes", changes)
		return errors.New("the configuration file has changed: " + changes), nil
	}
	if len(live) > 0 {
		if err := f.live(&next.Settings); err != nil {
			return nil, err
		}
		f.log.Info("the configuration file has changed; the change takes effect", "file", f.present.File, "changes", strings.Join(live, "; "))
	}
	if text := next.unused(); text != "" && text != f.present.unused() { // the first reading finds what the start has named
		f.log.Warn(unusedFields, "file", next.File, "fields", text)
	}
	f.present = next
	return nil, nil
}
