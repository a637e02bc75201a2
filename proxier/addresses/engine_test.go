//go:build !nokernel

package addresses

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

var virtual = []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}

// pair is a host with an Engine, and its neighbor on the link.
type pair struct {
	*testing.T
	host, neighbor *netns.Namespace
	engine         *Engine
	socket         int // of the neighbor
}

func newPair(t *testing.T) *pair {
	p := &pair{T: t, host: netns.New(t), neighbor: netns.New(t), engine: New("eth0", slog.New(slog.DiscardHandler))}
	if err := netns.Connect(p.host, "eth0", p.neighbor, "eth0"); err != nil {
		t.Fatal(err)
	}
	p.neighbor.MustDo(t, func() (err error) {
		p.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(bigEndian(unix.ETH_P_ALL)))
		return err
	})
	t.Cleanup(func() { _ = unix.Close(p.socket) })
	p.engine.Set(state.Name{Namespace: "default", Name: "web"}, virtual)
	return p
}

func (p *pair) carrier(on string) {
	p.Helper()
	if out, err := p.neighbor.Command("ip", "link", "set", "eth0", on); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
}

// tick returns how often the neighbor has heard of each address after a step of the Engine.
func (p *pair) tick(step func() []Failure) []int {
	p.Helper()
	p.host.MustDo(p.T, func() error {
		for _, f := range step() {
			p.Errorf("%s: %v", f.Object, f.Err)
		}
		return nil
	})
	heard := make([]int, len(virtual))
	for frame := make([]byte, 2048); ; {
		n, _, err := unix.Recvfrom(p.socket, frame, 0)
		if errors.Is(err, unix.EAGAIN) {
			return heard
		}
		if err != nil {
			p.Fatal(err)
		}
		for i, a := range virtual {
			if body := frame[:n]; a.Is4() && n == 28 && bytes.Equal(body[14:18], a.AsSlice()) || a.Is6() && n == 72 && bytes.Equal(body[48:64], a.AsSlice()) {
				heard[i]++
			}
		}
	}
}

func (p *pair) again() []Failure { return p.engine.Tick(time.Now()) }

// TestCarrier: what is announced while the link has no carrier would be lost, so the Engine waits. When the link has lost its
// carrier for a moment, it announces all addresses again.
func TestCarrier(t *testing.T) {
	p := newPair(t)
	p.carrier("down")
	expect := func(what string, got []int, want int) {
		t.Helper()
		if !slices.Equal(got, []int{want, want}) {
			t.Errorf("%s, the neighbor hears %d announcements, want %d of each address", what, got, want)
		}
	}
	expect("without a carrier", p.tick(p.engine.Add), 0)
	expect("still without a carrier", p.tick(p.again), 0)
	p.carrier("up")
	for range announcements {
		expect("with a carrier", p.tick(p.again), 1)
	}
	expect("announced", p.tick(p.again), 0)
	p.carrier("down")
	p.carrier("up")
	for range announcements {
		expect("after an interruption", p.tick(p.again), 1)
	}
	expect("announced again", p.tick(p.again), 0)
}

// TestLostAddress: an address that the host has lost, and that is not wanted any more, is never announced again: another host may
// have it.
func TestLostAddress(t *testing.T) {
	p := newPair(t)
	p.tick(p.engine.Add)
	for _, a := range virtual {
		if out, err := p.host.Command("ip", "address", "del", a.String(), "dev", "eth0"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	web := state.Name{Namespace: "default", Name: "web"}
	p.engine.Set(web, nil)
	p.tick(p.engine.Remove)
	p.engine.Set(web, []netip.Addr{netip.MustParseAddr("192.0.2.11")})
	for range announcements {
		if heard := p.tick(p.again); !slices.Equal(heard, []int{0, 0}) {
			t.Errorf("the neighbor hears %v announcements of lost addresses", heard)
		}
	}
}

// TestKernelWithoutMarks: a kernel that does not keep the mark gets no address, and the Engine says so once.
func TestKernelWithoutMarks(t *testing.T) {
	p := newPair(t)
	p.engine.host.list = func(family int) ([]Entry, error) { // of Linux before 5.18
		list, err := List(family)
		for i := range list {
			list[i].Ours = false
		}
		return list, err
	}
	p.host.MustDo(t, func() error {
		if f := p.engine.Add(); len(f) != 1 || !errors.Is(f[0].Err, errUnmarked) {
			t.Errorf("the first attempt fails with %v", f)
		}
		p.engine.Set(state.Name{Namespace: "default", Name: "more"}, virtual)
		if f := append(p.engine.Add(), p.engine.Tick(time.Now().Add(time.Hour))...); len(f) > 0 {
			t.Errorf("it tries again: %v", f)
		}
		list, err := List(unix.AF_UNSPEC)
		if slices.ContainsFunc(list, func(e Entry) bool { return slices.Contains(virtual, e.Addr) }) {
			t.Errorf("the host has %v", list)
		}
		return err
	})
}
