package report

import (
	"context"
	"log/slog"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// interferenceLog logs what other processes do to the tables. A program that does so all the time must not fill the log.
// So the first change is logged, and those of the next minute are counted and get one line. The metrics count all, and
// the level Debug (-v=4) shows all.
type interferenceLog struct {
	log     *slog.Logger
	said    time.Time // when the latest line was logged
	changes int       // that were only counted
	repairs int       // that ended meanwhile
	latest  dataplane.Interference
}

// changed logs a change, or counts it.
func (l *interferenceLog) changed(i *dataplane.Interference, next string, now time.Time) {
	level := slog.LevelWarn
	if l.changes > 0 || now.Sub(l.said) < sayAgain { // it is only counted
		l.changes, l.latest, level = l.changes+1, *i, slog.LevelDebug
	} else {
		l.said = now
	}
	l.log.Log(context.Background(), level, "another process changed the tables of Verdict", "process", i.Process, "pid", i.PID,
		"changed", i.String(), "next", next)
}

// repaired logs the end of a repair, or counts it if the change was only counted.
func (l *interferenceLog) repaired(r *Repair) {
	level := slog.LevelInfo
	if l.changes > 0 {
		l.repairs++
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "the tables are as they should be again", "full", r.Result.Full,
		"added", r.Result.Added, "deleted", r.Result.Deleted, "kernel", r.Result.Kernel, "duration", r.Duration)
}

// write logs how many changes were counted, once a minute.
func (l *interferenceLog) write(now time.Time) {
	if l.changes == 0 || now.Sub(l.said) < sayAgain {
		return
	}
	i := &l.latest
	l.log.Warn("other processes changed the tables of Verdict again and again", "changes", l.changes, "repairs", l.repairs,
		"latest", i.Process, "pid", i.PID, "changed", i.String())
	l.said, l.changes, l.repairs = now, 0, 0
}
