package report

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// sayAgain is how often an error that lasts is logged.
const sayAgain = time.Minute

// Log logs passes and what IPVS did not do. An error that lasts is logged once a minute.
type Log struct {
	log        *slog.Logger
	last       string    // error of the latest failed passes; "": the last pass applied
	said       time.Time // when it was logged
	uncompared time.Time // when it was logged that something cannot be compared
	failed     Lately    // what IPVS did not do and was logged
	lines      *Lines    // about Services
	passes     passLog
	foreign    interferenceLog
}

// Lately has what was said, and when.
type Lately map[string]time.Time

// Due reports whether something was not said within a period, and notes that it is said now. It forgets what was said longer ago.
func (l Lately) Due(what string, period time.Duration, now time.Time) bool {
	maps.DeleteFunc(l, func(_ string, at time.Time) bool { return now.Sub(at) >= period })
	_, said := l[what]
	if !said {
		l[what] = now
	}
	return !said
}

// Tally counts for the log what can happen again and again. The sum of some time is one line.
type Tally struct {
	sum int
	at  time.Time // of the last line
}

// Add returns how many the next line is about; 0: no line is due.
func (t *Tally) Add(n int, period time.Duration, now time.Time) (due int) {
	if t.sum += n; t.sum > 0 && now.Sub(t.at) >= period {
		due, t.sum, t.at = t.sum, 0, now
	}
	return due
}

// NewLog returns a log in which nothing was written.
func NewLog(log *slog.Logger, lines *Lines) Log {
	return Log{log: log, failed: Lately{}, lines: lines, passes: passLog{log: log},
		foreign: interferenceLog{log: log}}
}

// Pass writes a line for what an operator wants to see: passes that changed something, and passes that failed. On
// request it writes a line for each pass.
func (l *Log) Pass(r *Pass, failures int) {
	l.Failures(r.Result.Failures)
	attrs := []any{
		"services", r.Services, "added", r.Result.Added, "deleted", r.Result.Deleted,
		"bytes", r.Result.Bytes, "virtualServers", r.Result.Operations, "kernel", r.Result.Kernel, "duration", r.Duration,
	}
	if r.Result.Err != nil {
		level := slog.LevelDebug // an error that was logged before; the retries go on
		now := r.Started.Add(r.Duration)
		if text := r.Result.Err.Error(); text != l.last || now.Sub(l.said) >= sayAgain {
			level, l.last, l.said = slog.LevelError, text, now
		}
		l.log.Log(context.Background(), level, "pass not applied; the kernel keeps the previous rules, all changes stay pending",
			append(attrs, "outcome", r.Result.Outcome.String(), "error", r.Result.Err, "failures", failures)...)
		return
	}
	if r.Result.Full {
		l.log.Info("tables written", attrs...)
	} else {
		l.log.Debug("pass applied", attrs...)
		l.passes.add(r)
	}
	if l.last != "" {
		l.log.Info("passes apply again")
		l.last = ""
	}
}

// Compared logs that the kernel cannot be compared with what Verdict wrote, which is tried again after a while. Each time it can
// be about something else, so the text does not matter.
func (l *Log) Compared(err error, every time.Duration, now time.Time) {
	if err != nil && now.Sub(l.uncompared) >= sayAgain {
		l.uncompared = now
		l.log.Warn("cannot compare the kernel with what Verdict wrote; trying again", "every", every, "error", err)
	}
}

// Interference logs what another process changed. Next is what becomes of it.
func (l *Log) Interference(i *dataplane.Interference, next string, now time.Time) {
	l.foreign.changed(i, next, now)
}

// Flush writes the sums that have gathered. The loop calls it every second.
func (l *Log) Flush(now time.Time) {
	l.passes.write(now)
	l.foreign.write(now)
}

// Repair logs the end of a repair.
func (l *Log) Repair(r *Repair) {
	if r.Result.Err != nil {
		l.log.Error("the tables are not as they should be; trying again with a pass", "outcome", r.Result.Outcome.String(), "error", r.Result.Err)
		return
	}
	l.foreign.repaired(r)
}

// maxFailures bounds the lines about failures for one pass.
const maxFailures = 10

// Failures logs what IPVS and the addresses of the host did not do.
func (l *Log) Failures(failures []dataplane.Failure) {
	if len(failures) == 0 {
		return
	}
	now, lines := time.Now(), 0
	for i := range failures {
		f := &failures[i]
		if !l.failed.Due(f.Object+f.Err.Error(), sayAgain, now) || !l.lines.MayWrite(f.Service.Namespace, now) {
			continue
		}
		if lines++; lines > maxFailures {
			l.log.Error("the kernel did not make more changes; the first ones were logged, and each is tried again", "failures", len(failures))
			return
		}
		l.log.Error("the kernel did not make a change", "service", f.Service.String(), "object", f.Object, "error", f.Err, "next", f.Next)
	}
}

// passLog writes a line for passes that changed something. In a stream of changes there are many passes a second. Their
// sum is one line.
type passLog struct {
	log *slog.Logger
	// at is when the latest line was written.
	at time.Time

	passes, services, added, deleted, virtualServers int
	kernel, duration, longest                        time.Duration
}

// sumPeriod is how much time passes at least between two lines.
const sumPeriod = time.Second

// add notes an applied pass.
func (l *passLog) add(r *Pass) {
	if r.Result.Added+r.Result.Deleted+r.Result.Operations == 0 {
		return
	}
	l.passes++
	l.services += r.Services
	l.added += r.Result.Added
	l.deleted += r.Result.Deleted
	l.virtualServers += r.Result.Operations
	l.kernel += r.Result.Kernel
	l.duration += r.Duration
	l.longest = max(l.longest, r.Duration)
	l.write(r.Started.Add(r.Duration))
}

// write writes what has gathered, unless the latest line is too recent.
func (l *passLog) write(now time.Time) {
	if l.passes == 0 || now.Sub(l.at) < sumPeriod {
		return
	}
	l.log.Info("changes applied", "passes", l.passes, "services", l.services, "added", l.added, "deleted", l.deleted,
		"virtualServers", l.virtualServers, "kernel", l.kernel, "duration", l.duration, "longest", l.longest)
	*l = passLog{log: l.log, at: now}
}

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
