package rate

import (
	"bufio"
	"net"
	"sync"
)

// Serve answers each connection once, with a name, until the listener is closed. It returns when all have ended.
func Serve(listener net.Listener, name string) error {
	var accepted sync.WaitGroup
	defer accepted.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		accepted.Go(func() {
			defer conn.Close()
			if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				_, _ = conn.Write([]byte(name + "\n")) // the client reports what it misses
			}
		})
	}
}
