package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Ports lists the ports at which every pod answers, in all protocols. The last two are the fence's.
func Ports() []uint16 { return []uint16{8080, 8081, 8082, 8083} }

// BusyPort is one of the node's that a program holds, from the range of node ports.
const BusyPort = 32767

// Answer is what a server says about a request.
type Answer struct {
	Pod    string     // who it is
	Port   uint16     // where it was reached
	Local  netip.Addr // the address at which it was reached; zero when it cannot tell
	Source netip.Addr // who asked, as it sees it
}

// String is the line that goes over the wire.
func (a Answer) String() string {
	local := "-"
	if a.Local.IsValid() {
		local = a.Local.String()
	}
	return fmt.Sprintf("%s %d %s %s\n", a.Pod, a.Port, local, a.Source)
}

func parseAnswer(line string) (Answer, error) {
	var a Answer
	var local, source string
	if _, err := fmt.Sscan(line, &a.Pod, &a.Port, &local, &source); err != nil {
		return a, fmt.Errorf("answer %q: %w", line, err)
	}
	var err error
	if local != "-" {
		if a.Local, err = netip.ParseAddr(local); err != nil {
			return a, fmt.Errorf("answer %q: %w", line, err)
		}
	}
	a.Source, err = netip.ParseAddr(source)
	return a, err
}

// serve starts the servers of all pods, and one in the node's own namespace.
func (w *World) serve() error {
	if err := w.serveTCP(Node, hostPod, BusyPort); err != nil {
		return fmt.Errorf("serve on port %d of the node: %w", BusyPort, err)
	}
	for _, name := range append(Pods(), Node) {
		as := name
		if name == Node {
			as = hostPod
		}
		for _, port := range Ports() {
			if err := errors.Join(w.serveTCP(name, as, port), w.serveUDP(name, as, port)); err != nil {
				return fmt.Errorf("serve on port %d of %s: %w", port, name, err)
			}
		}
		if name == Node {
			continue // SCTP by hand would see the packets that the node forwards
		}
		for _, f := range Families() {
			if err := w.serveSCTP(name, f); err != nil {
				return fmt.Errorf("serve SCTP in %s: %w", name, err)
			}
		}
	}
	return nil
}

func (w *World) serveTCP(place, as string, port uint16) error {
	var listener net.Listener
	err := w.places[place].Do(func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(context.Background(), "tcp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	if err != nil {
		return err
	}
	w.closer = append(w.closer, listener.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go answerTCP(conn, as, port)
		}
	}()
	return nil
}

// answerTCP answers at once, and again for each line that the client sends.
func answerTCP(conn net.Conn, as string, port uint16) {
	defer func() { _ = conn.Close() }() // the client has what it wanted, or complains itself
	answer := Answer{Pod: as, Port: port, Local: addrOf(conn.LocalAddr()), Source: addrOf(conn.RemoteAddr())}
	lines := bufio.NewScanner(conn)
	for {
		if _, err := conn.Write([]byte(answer.String())); err != nil {
			return
		}
		if !lines.Scan() {
			return
		}
	}
}

func addrOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// serveUDP answers every datagram.
func (w *World) serveUDP(place, as string, port uint16) error {
	var conn *net.UDPConn
	err := w.places[place].Do(func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		return err
	})
	if err != nil {
		return err
	}
	w.closer = append(w.closer, conn.Close)
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := conn.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				answer := Answer{Pod: as, Port: port, Source: from.Addr().Unmap()}
				_, _ = conn.WriteToUDPAddrPort([]byte(answer.String()), from) // a client that hears nothing complains
			}
		}
	}()
	return nil
}

// Name is how scenarios call the endpoint that answered: the pod, with its port unless that is the first one.
func (a Answer) Name() string {
	if a.Port == Ports()[0] {
		return a.Pod
	}
	return strings.Join([]string{a.Pod, fmt.Sprint(a.Port)}, ":")
}
