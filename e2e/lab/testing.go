package lab

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Must ends the test at an error.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Limit is how long tests wait for what must happen: a daemon that was built with the race detector needs more than a minute for 10,000
// Services beside other work.
const Limit = 3 * time.Minute

// Eventually waits until try returns no error. After three minutes, its last error ends the test.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	var err error
	for late := time.Now().Add(Limit); time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("not within three minutes: %s: %v", what, err)
}

// New builds a world that ends with the test.
func New(t testing.TB) *World {
	t.Helper()
	w, err := NewWorld()
	Must(t, err)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// At is the place of that name. A name that does not exist ends the test.
func (w *World) At(t testing.TB, name string) *Namespace {
	t.Helper()
	n, err := w.Place(name)
	Must(t, err)
	return n
}

// Once makes a connection, closes it, and returns who answered. No answer ends the test.
func (n *Namespace) Once(t testing.TB, q Question) Answer {
	t.Helper()
	r := n.Ask(q)
	if r.Outcome != Answered {
		t.Fatalf("%s from %s: %s", q, n.Name, r)
	}
	return r.Answer
}

// Hold makes a connection that stays open until the test ends, and returns who answered. No answer ends the test.
func (n *Namespace) Hold(t testing.TB, q Question) (*Flow, Answer) {
	t.Helper()
	f, r := n.Open(q)
	if f == nil {
		t.Fatalf("%s from %s: %s", q, n.Name, r)
	}
	t.Cleanup(f.Close)
	return f, r.Answer
}

// UntilAccepted waits until the namespace has accepted some TCP connections since it was made.
func (n *Namespace) UntilAccepted(t testing.TB, connections int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s has accepted %d connections", n.Name, connections), func() error {
		accepted, err := n.accepted()
		if err == nil && accepted < connections {
			err = fmt.Errorf("it has accepted %d", accepted)
		}
		return err
	})
}

// accepted is how many TCP connections the kernel has accepted in the namespace.
func (n *Namespace) accepted() (count int, err error) {
	err = n.Do(func() error {
		fs, err := procfs.NewDefaultFS()
		if err != nil {
			return err
		}
		thread, err := fs.Thread(os.Getpid(), unix.Gettid())
		if err != nil {
			return err
		}
		counters, err := thread.Snmp()
		if err == nil {
			count = int(*counters.PassiveOpens)
		}
		return err
	})
	return count, err
}
