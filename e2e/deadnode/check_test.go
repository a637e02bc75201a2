//go:build e2e || ipvs

package deadnode

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
func (b *bed) try() error {
	l := &load{from: b.At(b.t, lab.Outside), to: vip(lab.IPv4)}
	fd, err := l.open()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // the connection has ended
	return firstByte(fd, time.Now().Add(5*time.Second))
}

// eventually waits until connections end as they should.
func (b *bed) eventually(what string, as func(error) bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := b.try()
		if as(err) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s: %v", what, err)
		}
	}
}

func works(err error) bool   { return err == nil }
func refuses(err error) bool { return err != nil && strings.Contains(err.Error(), "refused") }

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
