package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Ports lists the ports at which every pod answers, in all protocols. The runner's fence uses the last two.
func Ports() []uint16 { return []uint16{8080, 8081, 8082, 8083} }

// Answer is a server's answer to a request.
type Answer struct {
	Pod    string     // the server's name
	Port   uint16     // the server's port
	Local  netip.Addr // the server's address; zero when the server does not know it
	Source netip.Addr // the client's address, as the server sees it
}

// line is what the server sends.
func (a Answer) line() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // names, numbers and addresses
	}
	return append(text, '\n')
}

// Name is the name of the endpoint in scenarios: the pod, with its port unless that is the first one.
func (a Answer) Name() string {
	if a.Port == Ports()[0] {
		return a.Pod
	}
	return strings.Join([]string{a.Pod, fmt.Sprint(a.Port)}, ":")
}

func parseAnswer(line []byte) (a Answer, err error) {
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("answer %q: %w", line, err)
	}
	return a, nil
}
