package mirror

import "github.com/verdict-proxy/verdict/nft/program"

// numbering assigns numbers to service ports. A freed number is used again as late as possible, because the kernel may
// still have affinity entries of the port that had it.
type numbering struct {
	used map[uint32]struct{}
	next uint32
}

// take returns a free number; 0: there is none.
func (n *numbering) take() uint32 {
	if n.room() == 0 {
		return 0
	}
	for {
		n.next = (n.next + 1) % program.MaxPorts
		if _, taken := n.used[n.next]; !taken && n.next != 0 {
			n.claim(n.next)
			return n.next
		}
	}
}

// room is how many numbers are free.
func (n *numbering) room() int { return max(0, program.MaxPorts-1-len(n.used)) }

func (n *numbering) claim(number uint32) {
	if n.used == nil {
		n.used = map[uint32]struct{}{}
	}
	n.used[number] = struct{}{}
}

func (n *numbering) free(number uint32) { delete(n.used, number) }
