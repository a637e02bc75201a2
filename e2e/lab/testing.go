package lab

import "testing"

// New builds a world that ends with the test.
func New(t testing.TB) *World {
	t.Helper()
	w, err := NewWorld()
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
