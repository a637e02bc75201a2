package wire

import (
	"os"
	"time"

	"github.com/moby/ipvs"
)

// Timeouts are the timeouts of IPVS connections: established TCP, closing TCP, and UDP. 0 leaves a timeout as it is.
// The kernel counts whole seconds. Each network namespace has its own timeouts.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// Seconds rounds up, so that a client does not lose its real server too early.
func Seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }

// Timeouts reads the timeouts of connections.
func (s *Socket) Timeouts() (Timeouts, error) {
	c, err := s.servers.GetConfig()
	if err != nil {
		return Timeouts{}, os.NewSyscallError("read timeouts", err)
	}
	return Timeouts{TCP: c.TimeoutTCP, TCPFin: c.TimeoutTCPFin, UDP: c.TimeoutUDP}, nil
}

// SetTimeouts changes the timeouts that are not 0.
func (s *Socket) SetTimeouts(t Timeouts) error {
	whole := func(d time.Duration) time.Duration { return time.Duration(Seconds(d)) * time.Second } // moby/ipvs rounds down
	err := s.servers.SetConfig(&ipvs.Config{TimeoutTCP: whole(t.TCP), TimeoutTCPFin: whole(t.TCPFin), TimeoutUDP: whole(t.UDP)})
	return os.NewSyscallError("set timeouts", err)
}
