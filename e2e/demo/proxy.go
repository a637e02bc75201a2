package main

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// backendPort is where the pods answer.
const backendPort = 8080

// service is the manifest of the Service. Its cluster IPs are a parameter.
const service = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIPs: [%s]
  ports: [{name: http, protocol: TCP, port: 80, targetPort: 8080}]
`

// endpointSlices returns the manifest of a pod: an EndpointSlice for each of its addresses.
func endpointSlices(pod *host) (text string) {
	for i, a := range pod.addresses {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%d, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: http, protocol: TCP, port: %d}]
endpoints: [{addresses: [%q]}]
`, pod.name, i, []string{"IPv4", "IPv6"}[i], backendPort, a)
	}
	return text
}

// startProxy starts a "verdict run", which ends with this process. It returns its log.
func startProxy(verdict string, arguments []string) (*bufio.Scanner, error) {
	arguments = append(arguments, "--state-dir", "", // nothing outlives the demo
		"--table-owner", "off", // whoever watches the demo may try what happens when the tables change
		"-v", "4") // from 4 on every pass is logged
	process := exec.Command(verdict, arguments...)
	log, err := process.StderrPipe()
	if err = errors.Join(err, process.Start()); err != nil {
		return nil, fmt.Errorf("start verdict run: %w", err)
	}
	return bufio.NewScanner(log), nil
}

// untilChanged reads the log up to a transaction with elements, and returns the numbers on that line. It skips sums of several
// passes. If the log has an error, that is the error.
func untilChanged(log *bufio.Scanner, what string) (string, error) {
	transaction := regexp.MustCompile(` msg="(?:tables written|pass applied)" .*(added=(?:[1-9]|0 deleted=[1-9]).*)`)
	for log.Scan() {
		line := log.Text()
		if strings.Contains(line, "level=ERROR") || !strings.HasPrefix(line, "time=") { // what main prints at the end has no time
			return "", fmt.Errorf("verdict run: %s", line)
		}
		if found := transaction.FindStringSubmatch(line); found != nil {
			return found[1], nil
		}
	}
	return "", fmt.Errorf("verdict run ended before %s", what)
}
