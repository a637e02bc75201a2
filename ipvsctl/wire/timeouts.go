package wire

import (
	"os"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Timeouts are the timeouts of IPVS connections: established TCP, closing TCP, and UDP. 0 leaves a timeout as it is.
// The kernel counts whole seconds. Each network namespace has its own timeouts.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// Commands and attributes of timeouts.
const (
	cmdSetConfig = 12
	cmdGetConfig = 13

	cmdAttrTCP    = 4
	cmdAttrTCPFin = 5
	cmdAttrUDP    = 6
)

// Seconds rounds up, so that a client does not lose its real server too early.
func Seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }

// Timeouts reads the timeouts of connections.
func (s *Socket) Timeouts() (t Timeouts, err error) {
	messages, err := s.execute(cmdGetConfig, unix.NLM_F_ACK)
	for _, m := range messages {
		var attrs map[uint16][]byte
		attrs, err = attributes(m[min(len(m), nl.SizeofGenlmsg):])
		whole := func(kind uint16) time.Duration { return time.Duration(number(attrs[kind])) * time.Second }
		t = Timeouts{TCP: whole(cmdAttrTCP), TCPFin: whole(cmdAttrTCPFin), UDP: whole(cmdAttrUDP)}
	}
	return t, os.NewSyscallError("read timeouts", err)
}

// SetTimeouts changes the timeouts that are not 0.
func (s *Socket) SetTimeouts(t Timeouts) error {
	err := s.change(cmdSetConfig, nl.NewRtAttr(cmdAttrTCP, nl.Uint32Attr(Seconds(t.TCP))),
		nl.NewRtAttr(cmdAttrTCPFin, nl.Uint32Attr(Seconds(t.TCPFin))), nl.NewRtAttr(cmdAttrUDP, nl.Uint32Attr(Seconds(t.UDP))))
	return os.NewSyscallError("set timeouts", err)
}
