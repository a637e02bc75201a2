package health

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// handler answers for one Service on one address, whatever the path.
type handler struct {
	service   state.Name
	endpoints atomic.Int64 // ready local ones
	healthy   func() bool
}

// answerBody is upstream's, white space included: whoever compares it as text need not change.
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
