package wire

import (
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Commands of IPVS (include/uapi/linux/ip_vs.h).
const (
	cmdNewReal  = 5
	cmdSetReal  = 6
	cmdDelReal  = 7
	cmdGetReals = 8
	version     = 1
)

// Socket is a socket to IPVS. Only one goroutine at a time may use it.
type Socket struct {
	family int
	handle *nl.SocketHandle
}

// Open opens a socket in a network namespace, or in the current one if ns is 0. family is the number of the generic
// netlink family "IPVS".
func Open(ns int, family uint16) (*Socket, error) {
	in := netns.None()
	if ns != 0 {
		in = netns.NsHandle(ns)
	}
	s, err := nl.GetNetlinkSocketAt(in, netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	return &Socket{family: int(family), handle: &nl.SocketHandle{Socket: s}}, nil
}

// Close closes the socket.
func (s *Socket) Close() { s.handle.Close() }

// Add adds a real server to a virtual server.
func (s *Socket) Add(v Service, r Real) error { return s.change(cmdNewReal, v, r) }

// Edit changes a real server.
func (s *Socket) Edit(v Service, r Real) error { return s.change(cmdSetReal, v, r) }

// Delete deletes a real server.
func (s *Socket) Delete(v Service, r Real) error { return s.change(cmdDelReal, v, r) }

// List lists the real servers of a virtual server. It lists none if there is no such virtual server.
func (s *Socket) List(v Service) ([]Real, error) {
	messages, err := s.execute(cmdGetReals, unix.NLM_F_DUMP, v.attribute())
	if err != nil {
		return nil, err
	}
	list := make([]Real, len(messages))
	for i, m := range messages {
		if list[i], err = parseReal(m); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Socket) change(command uint8, v Service, r Real) error {
	_, err := s.execute(command, unix.NLM_F_ACK, v.attribute(), r.attribute())
	return err
}

func (s *Socket) execute(command uint8, flags int, attrs ...*nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(s.family, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: s.handle}
	req.AddData(&nl.Genlmsg{Command: command, Version: version})
	for _, a := range attrs {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}
