package ui

import (
	"net/url"

	"github.com/verdict-proxy/verdict/cmd/verdict/explain"
)

// explain explains a connection, or all frontends of a Service. It is not cached: somebody looks at a change.
func (p *page) explain(q url.Values) (any, error) {
	return p.reading.do(func() (any, error) { return explain.Answer(q.Get("source"), q.Get("destination")) })
}
