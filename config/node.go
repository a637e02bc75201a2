package config

import (
	"errors"
	"fmt"
	"time"
)

// Node holds the settings of the host that the daemon makes when it starts. They are those of kube-proxy.
type Node struct {
	Conntrack   Conntrack
	OOMScoreAdj int `flag:"oom-score-adj" usage:"<NUMBER> from -1000 to 1000: how likely the kernel ends the process when memory is short"`
}

// Conntrack holds the settings of connection tracking. 0 leaves a setting of the kernel as it is.
type Conntrack struct {
	// Min counts only if MaxPerCore is set.
	MaxPerCore     int           `flag:"conntrack-max-per-core" usage:"<NUMBER> of connections for each core that the kernel can track; a larger limit stays; 0: leave it as it is"`
	Min            int           `flag:"conntrack-min" usage:"<NUMBER> of connections that the kernel can track at least"`
	TCPEstablished time.Duration `flag:"conntrack-tcp-timeout-established" usage:"idle <TIME> of established TCP connections; 0: leave it as it is"`
	TCPCloseWait   time.Duration `flag:"conntrack-tcp-timeout-close-wait" usage:"idle <TIME> of TCP connections that only the server has closed; 0: leave it as it is"`
	UDP            time.Duration `flag:"conntrack-udp-timeout" usage:"idle <TIME> of UDP flows without a reply; 0: leave it as it is"`
	UDPStream      time.Duration `flag:"conntrack-udp-timeout-stream" usage:"idle <TIME> of UDP flows with replies; 0: leave it as it is"`
	TCPBeLiberal   bool          `flag:"conntrack-tcp-be-liberal" usage:"track TCP packets outside of the window as well, instead of passing them on without translation"`
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
