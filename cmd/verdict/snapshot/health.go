package snapshot

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

// watcher is the part of the daemon that knows endpoints that do not answer or fail their checks.
type watcher interface {
	Outliers() ([]socket.Outlier, error)
	Endpoints(service string) ([]socket.Endpoint, error)
}

// maxWatched is how many Services are asked about.
const maxWatched = 100

// noteOutliers marks endpoints that do not answer, fail their checks, or are backups. Without the
// daemon, nothing is known about them.
func (t *Table) noteOutliers(d watcher) {
	list, err := d.Outliers()
	if err != nil || len(list) == 0 {
		return
	}
	frontends := map[string][]*Frontend{} // by service port
	asked := map[string]bool{}            // by Service; those in the table
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		frontends[fe.Service] = append(frontends[fe.Service], fe)
		service, _, _ := strings.Cut(fe.Service, ":")
		asked[service] = false
	}
	room, left := maxWatched, 0
	for i := range list {
		for _, service := range list[i].Services {
			if done, listed := asked[service]; done || !listed {
				continue
			}
			asked[service] = true
			if room--; room < 0 {
				left++
				continue
			}
			ends, _ := d.Endpoints(service) // the Service may just have been deleted
			for j := range ends {
				noteOutlier(frontends[ends[j].Port], &ends[j])
			}
		}
	}
	if left > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("endpoints of %d more Services do not answer, fail their checks, or are backups, "+
			"and are not marked; list these Services by name or namespace", left))
	}
}

// noteOutlier marks an endpoint of all frontends of a service port. One that gets no new connections has weight 0.
func noteOutlier(frontends []*Frontend, e *socket.Endpoint) {
	at, err := netip.ParseAddrPort(e.Addr)
	if e.Remark == "" || err != nil {
		return
	}
	for _, fe := range frontends {
		if strings.Contains(fe.Family, "4") != at.Addr().Is4() || fe.find(at) == nil && !e.NoNew {
			continue
		}
		of := fe.endpoint(at)
		of.Outlier, of.Bad = e.Remark, e.Bad
	}
}

// noteFastPath notes which frontends stay on the rules, and why.
func (t *Table) noteFastPath(f socket.FastPath) {
	if why := f.Idle(); why != "" {
		t.FastPath, t.Notes = f, append(t.Notes, why)
		return
	}
	reason := f.Reasons()
	for i := range t.Frontends {
		t.Frontends[i].OnRules = reason(t.Frontends[i].Service, t.Frontends[i].Family)
	}
	f.OnRules = nil // the frontends have them
	t.FastPath = f
}
