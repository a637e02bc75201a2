//go:build !nokernel

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

const established = "net.netfilter.nf_conntrack_tcp_timeout_established"

// TestNodeSettings: the daemon sets what kube-proxy sets in the network namespace, and the OOM score of its process.
func TestNodeSettings(t *testing.T) {
	ns := netns.New(t)
	d := runDaemon(t, ns, t.TempDir(), "--conntrack-tcp-timeout-established=2h", "--conntrack-udp-timeout=17s", "--oom-score-adj=321")
	for name, want := range map[string]string{
		established: "7200",
		"net.netfilter.nf_conntrack_tcp_timeout_close_wait": "3600",
		"net.netfilter.nf_conntrack_udp_timeout":            "17",
	} {
		if got := strings.TrimSpace(ns.Must(t, "", "sysctl", "-n", name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", d.cmd.Process.Pid))
	if got := strings.TrimSpace(string(score)); err != nil || got != "321" {
		t.Errorf("the OOM score is %s, %v", got, err)
	}
}

// TestNodeSettingsRefused: a refused write is one line of the log, and the daemon runs.
func TestNodeSettingsRefused(t *testing.T) {
	ns := netns.New(t)
	d := &daemonProcess{Namespace: ns, log: &syncBuffer{}}
	d.cmd = exec.Command("unshare", "--mount", "sh", "-c", confined, binary, "run", "--manifests", t.TempDir(), "--backend=nft",
		"--healthz-bind-address=", "--metrics-bind-address=", "--conntrack-tcp-timeout-established=2h")
	d.cmd.Stderr = d.log
	if err := ns.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	d.wait(t, "tables written")
	if n := strings.Count(d.log.String(), "name="+established); n != 1 || !strings.Contains(d.log.String(), "consequence=") {
		t.Errorf("%d lines about the setting:\n%s", n, d.log)
	}
}
