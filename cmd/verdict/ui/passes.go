package ui

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

func (p *page) passes(url.Values) (any, error) {
	return p.recent.get("passes", func() (any, error) { return p.Daemon.Passes(), nil })
}

// changes are the first changes of a pass.
func (p *page) changes(q url.Values) (any, error) {
	number, err := strconv.ParseUint(q.Get("pass"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: pass %q must be a number", socket.ErrQuestion, q.Get("pass"))
	}
	return p.recent.get("changes "+q.Get("pass"), func() (any, error) {
		lines, ok := p.Daemon.Journal.Changes(number)
		if !ok {
			return nil, fmt.Errorf("%w: pass %d is too long ago", socket.ErrUnknown, number)
		}
		return map[string]any{"pass": number, "changes": lines}, nil
	})
}
