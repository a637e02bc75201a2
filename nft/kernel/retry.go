package kernel

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel may fail to answer when memory is short, or while another process commits again and again. A daemon that
// ends for that leaves its node without changes until it is started again.
const (
	persistFor   = 5 * time.Second
	persistPause = 50 * time.Millisecond
	refusals     = 5 // after as many in a row, the process may not do it
)

// Retry calls a function until it succeeds, and returns its last error.
func Retry(call func() error) error {
	end, refused := time.Now().Add(persistFor), 0
	for {
		err := call()
		if err == nil {
			return nil
		}
		if refused++; !errors.Is(err, unix.EPERM) {
			refused = 0
		}
		if refused == refusals || time.Now().After(end) {
			return err
		}
		time.Sleep(persistPause)
	}
}

// withConn calls a function with a connection of its own until it succeeds. What the function does, it may do twice.
func withConn(o Options, call func(*Conn) error) error {
	return Retry(func() error { return With(o, call) })
}

// With calls a function with a connection of its own.
func With(o Options, call func(*Conn) error) error {
	c, err := Dial(o.NetNS)
	if err != nil {
		return err
	}
	err = call(c)
	return errors.Join(err, c.Close())
}
