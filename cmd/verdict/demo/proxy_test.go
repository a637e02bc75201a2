//go:build !nokernel

package demo

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProxyFails(t *testing.T) {
	for how, fails := range map[string]string{
		"ends at once":        "verdict run: verdict: --manifests: no such folder",
		"ends without a word": "verdict run ended before the rules were in the kernel",
		"reports an error":    "verdict run: pass not applied: operation not permitted",
	} {
		t.Run(how, func(t *testing.T) {
			t.Setenv(fault, how)
			p, err := startProxy([]string{"--manifests", "x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.untilChanged("the rules were in the kernel"); err == nil || err.Error() != fails {
				t.Errorf("untilChanged: %v, want %q", err, fails)
			}
			if err := p.stop(); err == nil || !strings.Contains(err.Error(), "stop verdict run") {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

// TestAskAndAnswer uses real sockets of both families on the loopback interface of the test.
func TestAskAndAnswer(t *testing.T) {
	here, err := newHost("pod-x", unix.CLONE_NEWNET)
	if err != nil {
		t.Fatal(err)
	}
	here.addresses = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	var visited sync.WaitGroup
	if err := here.serve(backendPort, &visited); err != nil {
		t.Fatal(err)
	}
	if err := here.serve(backendPort, &visited); err == nil || !strings.Contains(err.Error(), "listen in pod-x") {
		t.Errorf("serving twice: %v", err)
	}
	for _, a := range here.addresses {
		got, err := here.ask(netip.AddrPortFrom(a, backendPort), 20)
		if err != nil || len(got) != 1 || got["pod-x"] != 20 {
			t.Errorf("asked 20 times: %v, %v", got, err)
		}
	}
	visited.Wait()
	if err := here.exit(); err != nil {
		t.Error(err)
	}
	to := netip.AddrPortFrom(here.addresses[0], backendPort)
	if _, err := here.ask(to, 20); !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "connection 1 of 20 from pod-x to "+to.String()) {
		t.Errorf("asking a program that has exited: %v", err)
	}
}
