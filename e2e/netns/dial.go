package netns

import (
	"context"
	"net"
)

// DialContext connects from inside the namespace. It has the form that clients of HTTP ask for.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
