//go:build e2e || ipvs

package takeover

import (
	"testing"

	"github.com/verdict-proxy/verdict/e2e/clients"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// newClients returns clients for each way to reach the Service: cluster IP, node port and load-balancer IP, in both
// families, over TCP and UDP.
func newClients(t *testing.T) (list []clients.Client) {
	t.Helper()
	for _, f := range lab.Families() {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			for i, c := range []struct {
				place, name string
				port        uint16
			}{
				{"b", "VIP1", servicePort}, {lab.Node, "VIP1", servicePort}, {lab.Outside, "NODE", nodePort}, {lab.Outside, "LB1", servicePort},
			} {
				to := lab.AddressPort(f, c.name, c.port)
				list = append(list, clients.Client{
					Place: c.place, Question: lab.Question{Protocol: protocol, Ports: lab.OwnPorts(i), To: to, Patience: patience},
				})
			}
		}
	}
	return list
}
