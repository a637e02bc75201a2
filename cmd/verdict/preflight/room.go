package preflight

import (
	"errors"
	"io/fs"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// MoreRoom is the remedy for a table of connections that is full.
const MoreRoom = "raise --conntrack-max-per-core or --conntrack-min; 'conntrack -L' shows who has the connections"

// Room reports a table of connections that is full or nearly full.
func Room(r conntrack.Room, err error) Finding {
	f := Finding{Check: "table of connections", Status: OK, Detail: r.String()}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Detail = "empty: nf_conntrack is not loaded"
	case err != nil:
		f.Status, f.Detail, f.Remedy = Warning, err.Error(), asRoot
	case r.Tight():
		f.Status, f.Detail = Warning, r.String()+": when it is full, new connections of all Services fail"
		f.Remedy = MoreRoom
	}
	return f
}
