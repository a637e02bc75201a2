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
	a.Do(t, func() (err error) {
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
	a.Do(t, connect)
	for name, run := range map[string]func(func() error) error{"another namespace": b.Run, "this process's": func(fn func() error) error { return fn() }} {
		if connect := run(connect); connect == nil {
			t.Errorf("a socket is reached from %s", name)
		}
	}
	if wanted := errors.New("wanted"); !errors.Is(a.Run(func() error { return wanted }), wanted) {
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
	_, err := n.Command("", "ip", "link", "show", "nowhere")
	if err == nil || !strings.Contains(err.Error(), "ip link show nowhere") || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got error %v", err)
	}
}
