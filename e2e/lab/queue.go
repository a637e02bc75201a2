package lab

import (
	"fmt"
	"os"
	"strings"
)

// QueueDrops is how many packets the machine has dropped since its start because the queue of a processor was full. All network
// namespaces share these queues (net.core.netdev_max_backlog): a flood in one takes packets of the others.
func QueueDrops() (n int, err error) {
	const file = "/proc/net/softnet_stat"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var passed, dropped int
		if _, err := fmt.Sscanf(line, "%x %x", &passed, &dropped); err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		n += dropped
	}
	return n, nil
}
