//go:build e2e || ipvs

package deadnode

import (
	"fmt"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// checked are the annotations of a Service whose endpoints are asked every second.
func checked(more string) string {
	return `verdict-proxy.github.io/health-check: "tcp interval=1s rise=1 fall=2"` + more
}

// backups writes a slice of backup endpoints: pod b.
func (b *bed) backups() {
	b.write("backup.yaml", `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  namespace: shop
  name: web-backup
  labels: {kubernetes.io/service-name: web}
  annotations: {verdict-proxy.github.io/backup: "true"}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ["`+lab.PodAddress(lab.IPv4, "b").String()+`"], nodeName: node-3, conditions: {ready: true}}]
`)
}

// try makes one connection, and returns its end.
func (b *bed) try() rate.Outcome {
	return b.client(lab.Outside).Connect(rate.To(vip(lab.IPv4))).Outcome
}

// eventually waits until connections end as they should.
func (b *bed) eventually(what string, as func(rate.Outcome) bool) {
	b.t.Helper()
	lab.Eventually(b.t, what, func() error {
		if end := b.try(); !as(end) {
			return fmt.Errorf("a connection was %s", end)
		}
		return nil
	})
}

func works(end rate.Outcome) bool   { return end == rate.Answered }
func refuses(end rate.Outcome) bool { return end == rate.Refused }

// TestActiveCheck: the only primary endpoint dies, so the backup serves. The backup dies as well, so connections are
// refused, as the Service wants. Then the primary returns. No EndpointSlice changes.
func TestActiveCheck(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { activeCheck(t, &e) })
	}
}

func activeCheck(t *testing.T, e *engine) {
	var stop func()
	b := newBedAfter(t, func(b *bed) { stop = b.serverOnce(); b.backups() },
		checked(`, verdict-proxy.github.io/on-all-down: reject`+e.annotation), []place{{"c", 9, lab.RemoteNodeName}},
		append([]string{"--outlier-detection=off"}, e.flags...)...)
	b.eventually("the primary endpoint serves", works)
	stop()
	b.waitFor(`an endpoint fails its check" endpoint=` + lab.PodAddress(lab.IPv4, "c").String() + ":9")
	b.eventually("the backup serves", works)
	b.rule("b", "input", 0, "tcp dport 8080 reject with tcp reset")
	b.waitFor(`an endpoint fails its check" endpoint=` + lab.PodAddress(lab.IPv4, "b").String() + ":8080")
	b.eventually("connections are refused", refuses)
	stop = b.serverOnce()
	defer stop()
	b.waitFor("an endpoint passes its check again")
	b.eventually("the primary endpoint serves again", works)
}
