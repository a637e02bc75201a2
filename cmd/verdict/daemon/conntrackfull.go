package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

const procRoot = "/proc"

// A full table of connections concerns all Services of the node, and no rule can help. So it is said once when it begins,
// and again from time to time.
const (
	roomPeriod   = 10 * time.Second
	roomSayAgain = 10 * time.Minute
)

// fullWatch logs when the table of connections gets full.
type fullWatch struct {
	root   string
	log    *slog.Logger
	said   time.Time // zero: the table has room
	before conntrack.Room
	failed bool
}

func newFullWatch(root string, log *slog.Logger) *fullWatch {
	w := &fullWatch{root: root, log: log}
	w.before, _ = conntrack.ReadRoom(root) // look reports an error
	return w
}

// run looks until the context ends.
func (w *fullWatch) run(ctx context.Context) error {
	tick := time.NewTicker(roomPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			w.look(now)
		}
	}
}

// look compares the table with what it was. First packets that were dropped since then show that it was full.
func (w *fullWatch) look(now time.Time) {
	r, err := conntrack.ReadRoom(w.root)
	if err != nil {
		// The first of several failures is logged. A kernel that has no connection tracking has no table either.
		if !w.failed && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("cannot see how full the table of connections is; trying again", "every", roomPeriod, "error", err)
		}
		w.failed = true
		return
	}
	dropped, evicted := r.Dropped-w.before.Dropped, r.Evicted-w.before.Evicted
	w.before, w.failed = r, false
	full := r.Tight() || dropped > 0
	switch {
	case full && now.Sub(w.said) >= roomSayAgain:
		w.said = now
		w.log.Warn("the table of connections is full or nearly full; when it is full, new connections of all Services fail",
			"entries", r.Entries, "limit", r.Limit, "dropped", dropped, "evicted", evicted, "within", roomPeriod,
			"remedy", preflight.MoreRoom)
	case !full && !w.said.IsZero() && r.Entries < r.Limit/10*8:
		w.said = time.Time{}
		w.log.Info("the table of connections has room again", "entries", r.Entries, "limit", r.Limit)
	}
}
