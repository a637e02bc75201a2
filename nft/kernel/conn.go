package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Options say which nf_tables to use.
type Options struct {
	// NetNS is a file descriptor of a network namespace; 0: the present one.
	NetNS int
	// Families to read; empty: both.
	Families []program.Family
}

// Served are those to read.
func (o Options) Served() []program.Family {
	if len(o.Families) > 0 {
		return o.Families
	}
	both := program.Families()
	return both[:]
}

// Conn is a connection to nf_tables: requests and their answers. It is used by one goroutine.
type Conn struct {
	link
	wire Wire // for requests outside batches
}

// Dial opens a socket in the network namespace of a file descriptor; 0: in the present one.
func Dial(netns int) (c *Conn, err error) {
	c = &Conn{link: link{netns: netns, answers: make([]byte, 1<<16), patience: answerTimeout}}
	for range 10 {
		c.port = newPort()
		if err = c.open(); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return c, err
}
