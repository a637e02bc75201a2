//go:build !nokernel

package main

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProxyFails(t *testing.T) {
	for how, fails := range map[string]string{
		"ends at once":        "verdict run: verdict: --manifests: no such folder",
		"ends without a word": "verdict run ended before the rules were in the kernel",
		"reports an error":    `verdict run: time=2026-01-01T00:00:00Z level=ERROR msg="pass not applied" error="operation not permitted"`,
	} {
		t.Run(how, func(t *testing.T) {
			t.Setenv(fault, how)
			log, err := startProxy("/proc/self/exe", []string{"run", "--manifests", "x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := untilChanged(log, "the rules were in the kernel"); err == nil || err.Error() != fails {
				t.Errorf("untilChanged: %v, want %q", err, fails)
			}
		})
	}
}

// TestAskAndAnswer uses real sockets of both families on the loopback interface of the test.
func TestAskAndAnswer(t *testing.T) {
	here, err := newHost("pod-x", unix.CLONE_NEWNET, perFamily("127.0.0.1", "::1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := here.serve(backendPort); err != nil {
		t.Fatal(err)
	}
	if err := here.serve(backendPort); err == nil || !strings.Contains(err.Error(), "listen in pod-x") {
		t.Errorf("serving twice: %v", err)
	}
	for _, a := range here.addresses {
		got, err := here.ask(netip.AddrPortFrom(a, backendPort), 20)
		if err != nil || len(got) != 1 || got["pod-x"] != 20 {
			t.Errorf("asked 20 times: %v, %v", got, err)
		}
	}
	to := netip.AddrPortFrom(here.addresses[0], backendPort+1)
	if _, err := here.ask(to, 20); !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "connection 1 of 20 from pod-x to "+to.String()) {
		t.Errorf("asking at a port that nobody serves: %v", err)
	}
}
