//go:build !nokernel

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// netNamespaces is the number of network namespaces of the demo: the node, three backends and the shop.
const netNamespaces = 5

func TestDemo(t *testing.T) {
	for _, u := range users() {
		t.Run(u.name, func(t *testing.T) {
			s := start(t, u, []string{"LC_ALL=C.UTF-8"})
			s.until("3. 600")
			s.untilNamespaces(netNamespaces)
			code := s.end()
			if code != 0 || s.errs.Len() > 0 {
				t.Fatalf("exit %d, want 0:\n%s%s", code, s.output.String(), s.errs.String())
			}
			s.nothingLeft()
			checkOutput(t, s.output.String(), u.name == "root")
		})
	}
}

// checkOutput checks the output of a complete demo.
func checkOutput(t *testing.T, out string, asRoot bool) {
	t.Helper()
	sections := strings.Split(out, "\n3. ")
	if len(sections) != 2 {
		t.Fatalf("no third step:\n%s", out)
	}
	before, after, _ := strings.Cut(sections[1], "\n4. ")
	after, read, _ := strings.Cut(after, "\n5. ")
	checkBars(t, before, map[string]bool{"pod-a": true, "pod-b": true, "pod-c": true})
	checkBars(t, after, map[string]bool{"pod-a": true, "pod-b": false, "pod-c": true})
	if strings.Contains(out, "without root") == asRoot {
		t.Errorf("the output does not say whether the demo ran as root:\n%s", out)
	}
	for _, part := range []string{"# verdict list default/web\n", "-> 10.0.1.1:8080 ", "# verdict explain 10.0.1.2 10.96.0.10:80\n", "goes to one of 10.0.1.1:8080 or 10.0.1.3:8080", "nft list ruleset"} {
		if !strings.Contains(read, part) {
			t.Errorf("the last step lacks %q:\n%s", part, read)
		}
	}
	if made := regexp.MustCompile(`None of (\d+) connections failed`).FindStringSubmatch(after); made == nil || made[1] == "0" {
		t.Errorf("no connections were made during the change:\n%s", after)
	}
	for _, part := range []string{"transaction", "in the kernel", "No chain or rule changed", "verdict render", "Done in"} {
		if !strings.Contains(out, part) {
			t.Errorf("the output lacks %q:\n%s", part, out)
		}
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, os.TempDir()) {
			continue // contains the name of a folder, which may be long
		}
		if n := len([]rune(line)); n > 115 || strings.HasSuffix(line, " \n") {
			t.Errorf("line of %d columns, or with trailing space: %q", n, line)
		}
	}
}

var barLine = regexp.MustCompile(`(?m)^  (pod-.) +(\d+)(?:  (#+))?$`)

// checkBars expects 600 connections in each family, and a bar for exactly the pods that answer.
func checkBars(t *testing.T, text string, answers map[string]bool) {
	t.Helper()
	lines := barLine.FindAllStringSubmatch(text, -1)
	if len(lines) != 2*len(answers) {
		t.Fatalf("%d bars, want %d:\n%s", len(lines), 2*len(answers), text)
	}
	total := 0
	for _, l := range lines {
		n, _ := strconv.Atoi(l[2])
		total += n
		if want := answers[l[1]]; want != (l[3] != "") || want != (n > 0) {
			t.Errorf("%s should get connections: %v; bar %q", l[1], want, l[0])
		}
	}
	if want := 2 * connections; total != want {
		t.Errorf("the bars show %d connections, want %d:\n%s", total, want, text)
	}
}

// After the demo, the namespace from which it was started has neither a new link nor a table.
func TestDemoLeavesTheNetworkAlone(t *testing.T) {
	script := `"$DEMO" "$VERDICT" >/dev/null || exit; echo links:; ls /proc/sys/net/ipv4/neigh; echo rules:; nft list ruleset; echo end`
	u := users()[0]
	own := func() *syscall.SysProcAttr {
		a := u.attr()
		a.Cloneflags |= unix.CLONE_NEWNET
		return a
	}
	s := start(t, user{u.name, own}, nil, "sh", "-c", script)
	if code := s.end(); code != 0 {
		t.Fatalf("exit %d, want 0 (the test needs the nft program):\n%s%s", code, s.output.String(), s.errs.String())
	}
	if want := "links:\nlo\nrules:\nend\n"; s.output.String() != want {
		t.Errorf("afterwards there is\n%s\nwant\n%s", s.output.String(), want)
	}
	s.nothingLeft()
}

func TestInterrupt(t *testing.T) {
	tests := []struct {
		name   string
		at     string // output after which the signal is sent
		group  bool   // send it to the whole process group, like a terminal
		signal syscall.Signal
		exit   int
	}{
		{"while it builds", "", false, syscall.SIGINT, 130},
		{"before the proxy", "1. A node", false, syscall.SIGINT, 130},
		{"as the proxy starts", "2. The proxy", true, syscall.SIGINT, 130},
		{"between connections", "3. 600", false, syscall.SIGINT, 130},
		{"between connections from the terminal", "3. 600", true, syscall.SIGINT, 130},
		{"at the removal", "4. pod-b", true, syscall.SIGINT, 130},
		{"terminated", "3. 600", false, syscall.SIGTERM, 143},
	}
	for _, u := range users() {
		for _, tt := range tests {
			t.Run(u.name+" "+tt.name, func(t *testing.T) {
				s := start(t, u, nil)
				s.untilNamespaces(1)
				s.until(tt.at)
				if tt.group {
					if err := syscall.Kill(-s.cmd.Process.Pid, tt.signal); err != nil {
						t.Fatal(err)
					}
				} else {
					s.signal(tt.signal)
				}
				if code := s.end(); code != tt.exit {
					t.Errorf("exit %d, want %d:\n%s", code, tt.exit, s.output.String())
				}
				if want := "demo: interrupted; nothing of it is left\n"; s.errs.String() != want {
					t.Errorf("standard error %q, want %q", s.errs.String(), want)
				}
				if strings.Contains(s.output.String(), "Done") {
					t.Errorf("the demo ran to its end:\n%s", s.output.String())
				}
				s.nothingLeft()
			})
		}
	}
}

// After SIGKILL, only the kernel can clean up.
func TestKilled(t *testing.T) {
	for _, u := range users() {
		for _, at := range []string{"shop (10.0.1.9)", "3. 600", "4. pod-b"} {
			t.Run(u.name+" at "+at, func(t *testing.T) {
				s := start(t, u, nil)
				s.until(at)
				s.untilNamespaces(netNamespaces)
				s.signal(syscall.SIGKILL)
				if code := s.end(); code != -1 {
					t.Errorf("exit %d, want death by signal:\n%s", code, s.output.String())
				}
				s.nothingLeftAfter(patience)
			})
		}
	}
}

// The process inside is killed, and the process outside reports it.
func TestStageKilled(t *testing.T) {
	for _, u := range users() {
		t.Run(u.name, func(t *testing.T) {
			s := start(t, u, nil)
			s.until("3. 600")
			s.untilNamespaces(netNamespaces)
			s.signalStage(syscall.SIGKILL)
			if code := s.end(); code != 1 || s.errs.String() != "demo: ended early: signal: killed; nothing of it is left\n" {
				t.Errorf("exit %d, want 1; standard error %q", code, s.errs.String())
			}
			s.nothingLeft()
		})
	}
}

// A fault while the demo runs makes it fail.
func TestDemoFails(t *testing.T) {
	tests := []struct {
		name string
		harm func(s *session)
		says string
	}{
		// Slot 1 of the three leads to pod-a, like slot 0. The proxy is stopped, because it would repair the element.
		{"uneven", func(s *session) {
			s.signalChild(s.child(s.cmd.Process.Pid), syscall.SIGSTOP)
			inNode(s, "delete element ip verdict endpoints { 0:2 . 1 }; add element ip verdict endpoints { 0:2 . 1 : 10.0.1.1 . 8080 }")
		}, "demo: connections to 10.96.0.10:80 are not spread evenly over [pod-a pod-b pod-c]: map["},
		{"reset", func(s *session) {
			inNode(s, "add table ip harm; add chain ip harm forward { type filter hook forward priority 10; }; "+
				"add rule ip harm forward tcp dport 8080 reject with tcp reset")
		}, " of 600 from "},
		{"proxy killed", func(s *session) {
			s.signalChild(s.child(s.cmd.Process.Pid), syscall.SIGKILL)
		}, "demo: verdict run ended before the change was in the kernel"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, users()[0], nil)
			s.until("were in the kernel")
			s.untilNamespaces(netNamespaces)
			tt.harm(s)
			if code := s.end(); code != 1 || !strings.Contains(s.errs.String(), tt.says) || strings.Count(s.errs.String(), "\n") != 1 {
				t.Errorf("exit %d, want 1 and one line with %q:\n%s%s", code, tt.says, s.output.String(), s.errs.String())
			}
			s.nothingLeft()
		})
	}
}

// inNode changes the rules in the node with nft. It enters the namespace of the proxy's process. The first thread of
// the demo may be in the namespace of a pod, from which it made connections.
func inNode(s *session, commands string) {
	s.t.Helper()
	proxy := s.child(s.child(s.cmd.Process.Pid))
	args := []string{"--target", strconv.Itoa(proxy), "--net", "nft", commands}
	if os.Geteuid() != 0 {
		args = append([]string{"--user", "--preserve-credentials"}, args...)
	}
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("nsenter %v (the test needs nft and nsenter): %v: %s", args, err, out)
	}
}

// TestReaderGoesAway: the reader closes the pipe before the demo ends.
func TestReaderGoesAway(t *testing.T) {
	s := start(t, users()[0], nil, "sh", "-c", `"$DEMO" "$VERDICT" | head -n 3; exit 0`)
	if code := s.end(); code != 0 || strings.Count(s.output.String(), "\n") != 3 {
		t.Errorf("exit %d:\n%s%s", code, s.output.String(), s.errs.String())
	}
	s.nothingLeftAfter(patience)
}

func TestRefusals(t *testing.T) {
	// The test runs as root of a user namespace, without capabilities, and further user namespaces are not allowed.
	helpless := `echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$DEMO" "$VERDICT"`
	tests := []struct {
		name, script string
		exit         int
		says         []string
	}{
		{"no namespaces", helpless, 1, []string{"cannot create network namespaces", "in a user namespace: fork/exec /proc/self/exe: no space left on device", "run it as root, or allow user namespaces"}},
		{"no folder for temporary files", `TMPDIR=/does/not/exist exec "$DEMO" "$VERDICT"`, 1, []string{"/does/not/exist", "no such file"}},
		{"no such program", `exec "$DEMO" /does/not/exist`, 1, []string{"open /does/not/exist: no such file"}},
		{"inside, outside of nothing", `exec "$DEMO" "$VERDICT" inside "" how`, 1, []string{"only the demo itself may start the process inside"}},
		{"inside the machine's namespaces", `exec "$DEMO" "$VERDICT" inside "$(readlink /proc/self/ns/mnt)" how`, 1, []string{"only the demo itself may start the process inside"}},
		{"inside elsewhere", `exec "$DEMO" "$VERDICT" inside elsewhere how`, 1, []string{"only the demo itself may start the process inside"}},
		{"no program", `exec "$DEMO"`, 2, []string{"usage: demo VERDICT"}},
		{"argument", `exec "$DEMO" "$VERDICT" loudly`, 2, []string{"usage: demo VERDICT"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, user{"root of a user namespace", rootOfUserNamespace}, nil, "sh", "-c", tt.script)
			code, said := s.end(), s.errs.String()
			if code != tt.exit || strings.Count(said, "\n") != 1 || s.output.String() != "" {
				t.Errorf("exit %d, want %d and one line:\n%s%s", code, tt.exit, s.output.String(), said)
			}
			for _, part := range tt.says {
				if !strings.Contains(said, part) {
					t.Errorf("the error is %q, want it to contain %q", said, part)
				}
			}
			s.nothingLeft()
		})
	}
}
