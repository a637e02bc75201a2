package list

import (
	"net/netip"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

// watcher is the part of the daemon that finds endpoints that do not answer.
type watcher interface {
	Outliers() ([]socket.Outlier, error)
	Endpoints(service string) ([]socket.Endpoint, error)
}

// maxWatched is how many Services are asked about.
const maxWatched = 100

// noteOutliers marks endpoints that the daemon suspects or that fail. Without the daemon, nothing is known about them.
func (t *table) noteOutliers(d watcher, now time.Time) {
	list, err := d.Outliers()
	if err != nil || len(list) == 0 {
		return
	}
	frontends := map[string][]*frontend{} // by service port
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		frontends[fe.Service] = append(frontends[fe.Service], fe)
	}
	asked := map[string]bool{}
	for i := range list {
		for _, service := range list[i].Services {
			if asked[service] || len(asked) == maxWatched {
				continue
			}
			asked[service] = true
			ends, _ := d.Endpoints(service) // the Service may just have been deleted
			for j := range ends {
				noteOutlier(frontends[ends[j].Port], &ends[j], service, now)
			}
		}
	}
}

// noteOutlier marks an endpoint of all frontends of a service port. An ejected one has weight 0.
func noteOutlier(frontends []*frontend, e *socket.Endpoint, service string, now time.Time) {
	at, err := netip.ParseAddrPort(e.Addr)
	if e.Outlier == nil || err != nil {
		return
	}
	for _, fe := range frontends {
		if strings.Contains(fe.Family, "4") != at.Addr().Is4() || !fe.has(at) && !e.Outlier.EjectedFrom(service) {
			continue
		}
		fe.endpoint(at).Outlier = e.Outlier.Text(service, now)
	}
}

func (fe *frontend) has(at netip.AddrPort) bool {
	for i := range fe.Endpoints {
		if fe.Endpoints[i].Address == at.Addr() && fe.Endpoints[i].Port == at.Port() {
			return true
		}
	}
	return false
}
