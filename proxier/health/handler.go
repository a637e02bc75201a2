package health

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// handler answers for one Service on one address. It answers every path alike.
type handler struct {
	service   state.Name
	endpoints atomic.Int64 // ready endpoints on this node
	healthy   func() bool
}

// answerBody is the body of upstream, including white space, for programs that compare it as text.
const answerBody = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

func (h *handler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n, healthy := h.endpoints.Load(), h.healthy()
	writeHeaders(w)
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(n, 10))
	code := http.StatusServiceUnavailable
	if n > 0 && healthy {
		code = http.StatusOK
	}
	w.WriteHeader(code)
	fmt.Fprintf(w, answerBody, h.service.Namespace, h.service.Name, n, healthy)
}
