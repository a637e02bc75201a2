//go:build !nokernel

package netns

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestNamespace: a namespace is apart from all others, and its loopback works.
func TestNamespace(t *testing.T) {
	a, b := New(t), New(t)
	var listener net.Listener
	a.MustDo(t, func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	defer listener.Close()
	connect := func() error {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	a.MustDo(t, connect)
	here := func(fn func() error) error { return fn() }
	for name, run := range map[string]func(func() error) error{"another namespace": b.Do, "this process's": here} {
		if run(connect) == nil {
			t.Errorf("a socket is reached from %s", name)
		}
	}
	if wanted := errors.New("wanted"); !errors.Is(a.Do(func() error { return wanted }), wanted) {
		t.Error("the error of the function is lost")
	}
}

func TestCommand(t *testing.T) {
	n := New(t)
	if out := n.Must(t, "one\ntwo\n", "tail", "-n", "1"); out != "two\n" {
		t.Errorf("got %q", out)
	}
	if out := n.Must(t, "", "ip", "-br", "link"); !strings.HasPrefix(out, "lo ") || strings.Count(out, "\n") != 1 {
		t.Errorf("links other than loopback:\n%s", out)
	}
	_, err := n.Command("ip", "link", "show", "nowhere")
	for _, part := range []string{"ip link show nowhere", "does not exist"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got error %v, want one with %q", err, part)
		}
	}
}
