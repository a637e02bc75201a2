package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
)

// BusyPort is a port in the range of node ports. A program on the node listens there.
const BusyPort = 32767

// serve starts the servers of all pods, and one in the node's own network.
func (w *World) serve() error {
	if err := w.serveTCP(Node, hostPod, BusyPort); err != nil {
		return err
	}
	for _, pod := range append(Pods(), hostPod) {
		place := pod
		if pod == hostPod {
			place = Node
		}
		for _, port := range Ports() {
			if err := w.Serve(place, pod, port); err != nil {
				return err
			}
		}
		if place == Node {
			continue // a raw socket there would also receive the packets that the node forwards
		}
		if err := w.serveSCTP(place); err != nil {
			return err
		}
	}
	return nil
}

// Serve answers at a port of a place over TCP and UDP, under a name, until the world ends.
func (w *World) Serve(place, as string, port uint16) error {
	return errors.Join(w.serveTCP(place, as, port), w.serveUDP(place, as, port))
}

func (w *World) serveTCP(place, as string, port uint16) error {
	return w.accept(place, as, port, func() (net.Listener, error) {
		return net.ListenTCP("tcp", &net.TCPAddr{Port: int(port)})
	})
}

// ServeKernelSCTP answers at a port of a pod over SCTP with the kernel's own implementation. The port must be none of
// Ports: there the pod answers by hand.
func (w *World) ServeKernelSCTP(pod string, port uint16) error {
	var errs []error
	for _, f := range Families() {
		at := netip.AddrPortFrom(PodAddress(f, pod), port)
		errs = append(errs, w.accept(pod, pod, port, func() (net.Listener, error) { return listenKernelSCTP(at) }))
	}
	return errors.Join(errs...)
}

// accept answers connections to a listener of a place.
func (w *World) accept(place, as string, port uint16, listen func() (net.Listener, error)) error {
	listener, err := listenIn(w, place, listen)
	if err == nil {
		go Accept(listener, as, port)
	}
	return err
}

// listenIn opens a socket in a place. It is closed when the world ends.
func listenIn[S io.Closer](w *World, place string, listen func() (S, error)) (socket S, err error) {
	err = w.places[place].Do(func() (err error) {
		socket, err = listen()
		return err
	})
	if err != nil {
		return socket, fmt.Errorf("serve in %s: %w", place, err)
	}
	w.closer = append(w.closer, socket.Close)
	return socket, nil
}

// Accept answers the connections to a listener, under a name, until the listener is closed.
func Accept(listener net.Listener, as string, port uint16) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go answerConnection(conn, as, port)
	}
}

// answerConnection answers at once, and again for each line that the client sends.
func answerConnection(conn net.Conn, as string, port uint16) {
	defer func() { _ = conn.Close() }() // a client that misses something reports it
	answer := Answer{Pod: as, Port: port, Local: addrOf(conn.LocalAddr()), Source: addrOf(conn.RemoteAddr())}
	lines := bufio.NewScanner(conn)
	for {
		if _, err := conn.Write(answer.line()); err != nil {
			return
		}
		if !lines.Scan() {
			return
		}
	}
}

// serveUDP answers every datagram.
func (w *World) serveUDP(place, as string, port uint16) error {
	conn, err := listenIn(w, place, func() (*net.UDPConn, error) { return net.ListenUDP("udp", &net.UDPAddr{Port: int(port)}) })
	if err == nil {
		go Reply(conn, as, port)
	}
	return err
}

// Reply answers every datagram, under a name, until the socket is closed.
func Reply(conn *net.UDPConn, as string, port uint16) {
	buf := make([]byte, 100)
	for {
		_, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			answer := Answer{Pod: as, Port: port, Source: from.Addr().Unmap()}
			// A client that gets no answer reports it.
			_, _ = conn.WriteToUDPAddrPort(answer.line(), from)
		}
	}
}

// serveSCTP answers requests to the ports of pods.
func (w *World) serveSCTP(place string) error {
	if err := w.places[place].Load(dropAborts); err != nil {
		return fmt.Errorf("drop the kernel's own answers: %w", err)
	}
	for _, network := range []string{"ip4:132", "ip6:132"} { // raw sockets are of one family
		conn, err := listenIn(w, place, func() (*net.IPConn, error) { return net.ListenIP(network, nil) })
		if err != nil {
			return err
		}
		go answerINIT(conn, place)
	}
	return nil
}

func answerINIT(conn *net.IPConn, as string) {
	for {
		p, from, ok, err := receiveSCTP(conn)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if !ok || p.Chunk != sctpInit || !slices.Contains(Ports(), p.Dport) {
			continue
		}
		answer := Answer{Pod: as, Port: p.Dport, Source: from}
		header := sctpHeader{Sport: p.Dport, Dport: p.Sport, Vtag: p.InitTag, Chunk: sctpInitAck, InitTag: 1}
		reply := sctpPacket{header, answer.line()}
		// A client that gets no answer reports it.
		_, _ = conn.WriteToIP(reply.encode(), &net.IPAddr{IP: from.AsSlice()})
	}
}
