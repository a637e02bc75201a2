//go:build !nokernel

package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const going = "{key: karpenter.sh/disrupted, effect: NoSchedule}"

// leave runs the command beside a systemd that says how the system is; "": there is none.
func (p *passer) leave(system string, args ...string) *exec.Cmd {
	p.Helper()
	bin := p.TempDir()
	if system != "" {
		if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\necho "+system+"\n[ "+system+" = running ]\n"), 0o755); err != nil {
			p.Fatal(err)
		}
	}
	cmd, out := exec.Command(binary, append([]string{"leave"}, args...)...), &syncBuffer{}
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, []string{"PATH=" + bin}
	if err := p.Node.Start(cmd); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	return cmd
}

// says waits until the command has printed a text.
func (p *passer) says(cmd *exec.Cmd, text string) {
	p.Helper()
	for late := time.Now().Add(lab.Limit); !strings.Contains(printed(cmd), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			p.Fatalf("%v does not print %q, but\n%s", cmd.Args, text, printed(cmd))
		}
	}
}

func printed(cmd *exec.Cmd) string { return cmd.Stdout.(*syncBuffer).String() }

// ends waits until the command has ended with success, and a text as its last line.
func (p *passer) ends(cmd *exec.Cmd, last string) {
	p.Helper()
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(printed(cmd), last+"\n") {
		p.Errorf("%v ends with %v, and prints\n%swant %s", cmd.Args, err, printed(cmd), last)
	}
}

// TestLeave: the command waits for connections of clients outside to endpoints on other nodes, and for no others. New connections are
// served until it ends. Unless the node is leaving, it ends at once.
func TestLeave(t *testing.T) {
	const none, stays = "no client outside has an open connection through this node to another one", "this node stays; there is nothing to wait for"
	p := newPasser(t)
	flows := p.hold(2, "x", p.nodePort("c"))
	p.hold(1, "x", p.nodePort("a"))
	p.hold(1, "b", clusterIP("c"))
	p.hold(1, lab.Node, clusterIP("c"))
	for _, system := range []string{"", "running", "degraded"} {
		p.ends(p.leave(system, "--settle=1h", "--timeout=1h"), stays)
	}

	writeManifest(t, p.dir, "node.yaml", node(going))
	lab.Eventually(t, "the status names the taint", func() error {
		if _, text, _ := inside(t, p.Node.Namespace, "top", "--once", "--interval=100ms"); !strings.Contains(text, "this node is leaving") {
			return errors.New(text)
		}
		return nil
	})
	late := p.leave("running", "--settle=0s", "--timeout=0s")
	p.ends(late, "the time is over; clients outside have 2 open connections through this node to others")
	cmd := p.leave("", "--settle=0s", "--timeout=1h")
	p.says(cmd, "this node is leaving (the taint karpenter.sh/disrupted); clients outside have 2 open connections through this node to others\n")
	question := lab.Question{Protocol: lab.TCP, To: p.nodePort("c"), Patience: 10 * time.Second}
	if r := p.At(t, "x").Ask(question); r.Outcome != lab.Answered {
		t.Errorf("a new connection is %s", r)
	}
	for _, f := range flows {
		if r := f.Send(10 * time.Second); r.Outcome != lab.Answered {
			t.Errorf("an open connection is %s", r)
		}
		f.Close()
	}
	p.ends(cmd, none)

	cmd = p.leave("", "--settle=1h", "--timeout=1h")
	p.says(cmd, "0 open connections through this node to others; load balancers have time to notice\n")
	writeManifest(t, p.dir, "node.yaml", node(""))
	p.ends(cmd, stays)

	p.ends(p.leave("stopping", "--settle=0s", "--timeout=1h"), none)
	l := link{T: t, World: p.World}
	if code := l.ready(); code != 503 {
		t.Errorf("the system stops, and /readyz answers %d", code)
	}
	p.daemon.kill()
	if err := p.leave("stopping").Wait(); err == nil {
		t.Error("without a daemon, it succeeds")
	}
}

// TestLeaveReset: after the time is over, the connections that die with the node are reset with the next packet, whichever end sends it.
// All other connections go on, and new ones are served.
func TestLeaveReset(t *testing.T) {
	p := newPasser(t)
	accepted := make(chan net.Conn, 1)
	p.At(t, "c").MustDo(t, func() error {
		l, err := net.Listen("tcp4", lab.PodAddress(lab.IPv4, "c").String()+":9090")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			if conn, err := l.Accept(); err == nil {
				accepted <- conn
			}
		}()
		return nil
	})
	text, err := os.ReadFile(filepath.Join(p.dir, "c.yaml"))
	lab.Must(t, err)
	writeManifest(t, p.dir, "silent.yaml", strings.NewReplacer("to-c", "silent", "8080", "9090", "10.96.0.12", "10.96.0.13", "30082", "30083").
		Replace(string(text)))
	var silent net.Conn
	lab.Eventually(t, "the Service of the silent client is served", func() (err error) {
		silent, err = p.At(t, "x").DialContext(t.Context(), "tcp", strings.Replace(p.nodePort("c").String(), "30082", "30083", 1))
		return err
	})
	defer silent.Close()
	server := <-accepted
	defer server.Close()

	gone := p.hold(3, "x", p.nodePort("c"))
	stay := slices.Concat(p.hold(1, "x", p.nodePort("a")), p.hold(1, "b", clusterIP("c")), p.hold(1, "b", p.nodePort("c")), p.hold(1, lab.Node, clusterIP("c")))
	writeManifest(t, p.dir, "node.yaml", node(going))
	p.daemon.wait(t, `because="the taint karpenter.sh/disrupted"`)
	began, cmd, marked := time.Now(), p.leave("", "--settle=0s", "--timeout=0s", "--reset"), "4 connections will be reset with the next packet"
	p.says(cmd, marked)

	for _, f := range gone {
		if r := f.Send(10 * time.Second); r.Outcome != lab.Broken && r.Outcome != lab.Refused {
			t.Errorf("a connection of a client outside to another node is %s", r)
		}
	}
	if err := server.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = server.Write([]byte("hello")) // the answer to it is the reset
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint of a client that says nothing reads %v, want a reset", err)
	}
	if p.ends(cmd, marked); time.Since(began) < lastPackets {
		t.Errorf("the command ends after %s", time.Since(began))
	}
	for i, f := range stay {
		if r := f.Send(10 * time.Second); r.Outcome != lab.Answered {
			t.Errorf("connection %d, which stays, is %s", i, r)
		}
	}
	if r := p.At(t, "x").Ask(lab.Question{Protocol: lab.TCP, To: p.nodePort("c"), Patience: 10 * time.Second}); r.Outcome != lab.Answered {
		t.Errorf("a new connection is %s", r)
	}
}
