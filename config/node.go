package config

import (
	"errors"
	"fmt"
	"time"
)

// Node holds the settings of the host that the daemon makes when it starts. They are those of kube-proxy.
type Node struct {
	Conntrack   Conntrack
	OOMScoreAdj int // of the process
}

// Conntrack holds the settings of connection tracking. 0 leaves a setting of the kernel as it is.
type Conntrack struct {
	// MaxPerCore and Min give the size of the table: at least Min. Min counts only if MaxPerCore is set.
	MaxPerCore, Min int
	// TCPEstablished and TCPCloseWait are the idle timeouts of TCP connections.
	TCPEstablished, TCPCloseWait time.Duration
	// UDP is the idle timeout of flows without a reply, UDPStream that of the others.
	UDP, UDPStream time.Duration
	// TCPBeLiberal accepts packets outside of the TCP window.
	TCPBeLiberal bool
}

func defaultNode() Node {
	return Node{
		Conntrack: Conntrack{
			MaxPerCore: 32 * 1024, Min: 128 * 1024, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
		},
		OOMScoreAdj: -999,
	}
}

func (n *Node) validate() error {
	c := &n.Conntrack
	return errors.Join(
		notNegative("--conntrack-max-per-core", c.MaxPerCore),
		notNegative("--conntrack-min", c.Min),
		validateTimeout("--conntrack-tcp-timeout-established", c.TCPEstablished),
		validateTimeout("--conntrack-tcp-timeout-close-wait", c.TCPCloseWait),
		validateTimeout("--conntrack-udp-timeout", c.UDP),
		validateTimeout("--conntrack-udp-timeout-stream", c.UDPStream),
		validateOOMScoreAdj(n.OOMScoreAdj),
	)
}

func notNegative(flag string, n int) error {
	if n < 0 {
		return fmt.Errorf("%s=%d: must not be negative", flag, n)
	}
	return nil
}

// maxOOMScoreAdj is the greatest value that the kernel accepts. The least one is its negative.
const maxOOMScoreAdj = 1000

func validateOOMScoreAdj(n int) error {
	if n < -maxOOMScoreAdj || n > maxOOMScoreAdj {
		return fmt.Errorf("--oom-score-adj=%d: must be between %d and %d", n, -maxOOMScoreAdj, maxOOMScoreAdj)
	}
	return nil
}
