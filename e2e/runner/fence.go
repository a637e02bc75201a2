package runner

import (
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// fencePatience is how long the proxy may take to follow a change, or to start. kube-proxy takes a second to start.
const fencePatience = lab.Limit

// fence waits for the proxy.
type fence struct {
	objects *objects
	clients *clients
	fences  int
}

// wait returns when the proxy has followed every earlier change of Services and EndpointSlices. The API server delivers
// changes of one kind in order, and a proxy handles them in the order in which they arrived: one post is enough. A
// proxy that reads a folder takes files that changed at about the same time by their names. When the second post shows,
// it has read everything that changed before the first one did.
func (f *fence) wait() error {
	posts := 1
	if _, folder := f.objects.source.(*manifests); folder {
		posts = 2
	}
	for range posts {
		if err := f.post(); err != nil {
			return err
		}
	}
	f.objects.pending = false
	return f.clients.readAddresses()
}

// post changes the runner's own Service and its slice, and waits until connections show both changes.
//
// Changes of Node and ServiceCIDR arrive independently (see fenced). Steps that check their effect are tried
// repeatedly.
func (f *fence) post() error {
	f.fences++
	port, target := uint16(1000+f.fences%50000), lab.Ports()[2+f.fences%2]
	for _, o := range f.fenceObjects(port, target) {
		if err := f.objects.source.Put(o); err != nil {
			return fmt.Errorf("fence: %w", err)
		}
	}
	q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f.clients.family, "FENCE", port), Patience: 200 * time.Millisecond}
	var last lab.Result
	return f.clients.world.Node.Do(func() error {
		for end := time.Now().Add(fencePatience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			last = lab.Ask(q)
			if last.Outcome == lab.Answered && last.Answer.Port == target {
				return nil
			}
			if err := f.clients.proxy.err(); err != nil {
				return err
			}
		}
		return fmt.Errorf("the proxy has not followed a change of Services within %s: a connection to %s was %s; "+
			"the proxy's log ends:\n%s", fencePatience, q.To, last, f.clients.proxy.running().Log(15))
	})
}

// fenceObjects are the runner's own Service and its slice.
func (f *fence) fenceObjects(port, target uint16) []scenario.Object {
	return f.objects.written(fmt.Sprintf(`
kind: Service
metadata: {name: fence, namespace: kube-system}
spec: {clusterIPs: [$FENCE], ports: [{name: fence, port: %d}]}
---
kind: EndpointSlice
metadata: {name: fence, namespace: kube-system, labels: {kubernetes.io/service-name: fence}}
addressType: $FAMILY
ports: [{name: fence, protocol: TCP, port: %d}]
endpoints: [{addresses: [$A], nodeName: node-1, conditions: {ready: true}}]
`, port, target))
}
