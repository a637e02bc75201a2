package conntrack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace without a name: it is gone when its last user is, even if the tests crash.
type namespace struct{ file *os.File }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("make a network namespace (these tests need root, in a user namespace at least): %v", err)
	}
	t.Cleanup(func() { n.file.Close() })
	n.must(t, "", "ip", "link", "set", "lo", "up")
	return n
}

// run calls fn on a thread inside the namespace. Sockets that fn opens stay in the namespace.
func (n *namespace) run(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// must runs a program that has to succeed inside the namespace.
func (n *namespace) must(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	err := n.run(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
		return cmd.Run()
	})
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

func (n *namespace) cleaner(t testing.TB) *Cleaner {
	t.Helper()
	c, err := Open(Options{NetNS: int(n.file.Fd())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// flows lists the table as "protocol source destination answerer", with :port where there is one, sorted.
func (n *namespace) flows(t testing.TB) (list []string) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, line := range strings.Split(n.must(t, "", "conntrack", "-L", "-f", family), "\n") {
			if f := shortFlow(line); f != "" {
				list = append(list, f)
			}
		}
	}
	slices.Sort(list)
	return list
}

// shortFlow cuts a line of conntrack -L down to what the tests are about.
func shortFlow(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return ""
	}
	values := map[string][]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			values[k] = append(values[k], v)
		}
	}
	end := func(addr, port string, i int) string {
		if strings.Contains(values[addr][i], ":") {
			return "[" + values[addr][i] + "]:" + values[port][i]
		}
		return values[addr][i] + ":" + values[port][i]
	}
	return fmt.Sprintf("%s %s %s %s", words[0], end("src", "sport", 0), end("dst", "dport", 0), end("src", "sport", 1))
}

// add puts flows into the table, each written as flows lists it; "ipvs" behind it: balanced by IPVS, not translated.
func (n *namespace) add(t testing.TB, flows ...string) {
	t.Helper()
	for _, f := range flows {
		w := strings.Fields(f)
		src, sport := split(w[1])
		dst, dport := split(w[2])
		from, fport := split(w[3])
		translated := w[2] != w[3] && (len(w) < 5 || w[4] != "ipvs")
		if translated {
			from, fport = dst, dport // the kernel puts the endpoint there
		}
		args := []string{"-I", "-p", w[0], "--timeout", "300",
			"--orig-src", src, "--orig-dst", dst, "--orig-port-src", sport, "--orig-port-dst", dport,
			"--reply-src", from, "--reply-dst", src, "--reply-port-src", fport, "--reply-port-dst", sport}
		switch w[0] {
		case "tcp":
			args = append(args, "--state", "ESTABLISHED")
		case "sctp":
			args = append(args, "--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "2")
		}
		if translated {
			args = append(args, "--dst-nat", w[3])
		}
		if len(w) > 4 && w[4] != "ipvs" {
			args = append(args, "--zone", w[4])
		}
		n.must(t, "", "conntrack", args...)
	}
}

func split(s string) (addr, port string) {
	at := strings.LastIndex(s, ":")
	return strings.Trim(s[:at], "[]"), s[at+1:]
}
