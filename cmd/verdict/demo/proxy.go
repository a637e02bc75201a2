package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// The Service of the demo and its node.
const (
	servicePort = 80
	backendPort = 8080
	nodePort    = 30080
	nodeName    = "demo-node"
)

// manifest returns a Service with a cluster IP in each family and a node port, and an EndpointSlice for each family.
func manifest(families []family, pods []*host, annotation string) string {
	var ips, names []string
	slices := ""
	for i, f := range families {
		ips, names = append(ips, fmt.Sprintf("%q", f.clusterIP)), append(names, f.name)
		slices += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: http, protocol: TCP, port: %d}]
endpoints:
`, strings.ToLower(f.name), f.name, backendPort)
		for _, p := range pods {
			slices += fmt.Sprintf("- {addresses: [%q], conditions: {ready: true}, nodeName: %s}\n", p.addresses[i], nodeName)
		}
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {%s}}
spec:
  type: NodePort
  clusterIP: %s
  clusterIPs: [%s]
  ipFamilies: [%s]
  ports: [{name: http, protocol: TCP, port: %d, targetPort: %d, nodePort: %d}]
%s`, annotation, ips[0], strings.Join(ips, ", "), strings.Join(names, ", "), servicePort, backendPort, nodePort, slices)
}

// entry holds the fields of a log line of the proxy that the demo reads.
type entry struct {
	Level    string        `json:"level"`
	Msg      string        `json:"msg"`
	Error    string        `json:"error"`
	Added    int           `json:"added"`
	Deleted  int           `json:"deleted"`
	Bytes    int           `json:"bytes"`
	Kernel   time.Duration `json:"kernel"`   // of the system call that sends the transaction
	Duration time.Duration `json:"duration"` // of the whole pass
}

// proxy is a running "verdict run".
type proxy struct {
	process *exec.Cmd
	log     chan entry // closed at the end of the log
}

func startProxy(arguments []string) (*proxy, error) {
	arguments = append([]string{"run"}, arguments...)
	arguments = append(arguments, "--state-dir", "", // nothing outlives the demo
		"--table-owner", "off", // whoever watches the demo may try what happens when the tables change
		"--log-format", "json", "-v", "4") // from 4 on every pass is logged
	p := &proxy{process: exec.Command(ownProgram, arguments...), log: make(chan entry, 4096)}
	stderr, err := p.process.StderrPipe()
	if err == nil {
		err = p.process.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start verdict run: %w", err)
	}
	go p.read(stderr)
	return p, nil
}

// read puts the lines of the log into the channel, which holds more of them than a demo has.
func (p *proxy) read(stderr io.Reader) {
	defer close(p.log)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = entry{Level: "ERROR", Msg: lines.Text()} // the error that main prints at the end is not JSON
		}
		p.log <- e
	}
}

// untilChanged reads the log up to a transaction with elements. It returns the first error of the proxy.
func (p *proxy) untilChanged(what string) (entry, error) {
	for e := range p.log {
		switch {
		case e.Level == "ERROR":
			return e, fmt.Errorf("verdict run: %s", strings.TrimSuffix(e.Msg+": "+e.Error, ": "))
		case e.Added+e.Deleted > 0 && e.Msg != "changes applied": // the sum of several passes
			return e, nil
		}
	}
	return entry{}, fmt.Errorf("verdict run ended before %s", what)
}

// stop asks the proxy to end and waits for it.
func (p *proxy) stop() error {
	err := p.process.Process.Signal(syscall.SIGTERM)
	for range p.log { // its end is the end of the process
	}
	if err := errors.Join(err, p.process.Wait()); err != nil {
		return fmt.Errorf("stop verdict run: %w", err)
	}
	return nil
}
