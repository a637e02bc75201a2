package proxier

import (
	"log/slog"
	"time"
)

// passLog writes a line for passes that changed something. In a stream of changes there are many passes a second. Their
// sum is one line.
type passLog struct {
	log *slog.Logger
	// at is when the latest line was written.
	at time.Time

	passes, services, added, deleted, virtualServers int
	kernel, duration, longest                        time.Duration
}

// passLogPeriod is how much time passes at least between two lines.
const passLogPeriod = time.Second

// add notes an applied pass.
func (l *passLog) add(r *PassReport) {
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

// write writes what has gathered, unless the latest line is too recent. The loop calls it every second.
func (l *passLog) write(now time.Time) {
	if l.passes == 0 || now.Sub(l.at) < passLogPeriod {
		return
	}
	l.log.Info("changes applied", "passes", l.passes, "services", l.services, "added", l.added, "deleted", l.deleted,
		"virtualServers", l.virtualServers, "kernel", l.kernel, "duration", l.duration, "longest", l.longest)
	*l = passLog{log: l.log, at: now}
}
