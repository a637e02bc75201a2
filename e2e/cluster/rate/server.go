package rate

import (
	"bufio"
	"net"
	"sync"
)

// Server answers each connection once, with its name.
type Server struct {
	Name string

	accepted sync.WaitGroup
}

// Serve answers until the listener is closed.
func (s *Server) Serve(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		s.accepted.Go(func() { s.answer(conn) })
	}
}

// Wait waits for the end of the connections that Serve has accepted. It may be called when Serve has returned.
func (s *Server) Wait() { s.accepted.Wait() }

func (s *Server) answer(conn net.Conn) {
	defer conn.Close()
	if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
		_, _ = conn.Write([]byte(s.Name + "\n")) // the client reports what it misses
	}
}
