//go:build !nokernel

package conntrack

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// namespace is a network namespace together with what these tests do there.
type namespace struct{ *netns.Namespace }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{netns.New(t)}
}

func (n *namespace) cleaner(t testing.TB) *Cleaner {
	t.Helper()
	c, err := Open(Options{NetNS: n.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// flows lists the table as "protocol client:port destination:port endpoint:port", sorted.
func (n *namespace) flows(t testing.TB) (list []string) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, line := range strings.Split(n.Must(t, "", "conntrack", "-L", "-f", family), "\n") {
			if f := shortFlow(line); f != "" {
				list = append(list, f)
			}
		}
	}
	slices.Sort(list)
	return list
}

// shortFlow shortens a line of conntrack -L to what the tests compare.
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

// add puts flows into the table, each in the form that flows lists. The word "ipvs" at the end means that IPVS has
// balanced the flow, and it is not translated.
func (n *namespace) add(t testing.TB, flows ...string) {
	t.Helper()
	for _, f := range flows {
		w := strings.Fields(f)
		src, sport := split(w[1])
		dst, dport := split(w[2])
		from, fport := split(w[3])
		translated := w[2] != w[3] && (len(w) < 5 || w[4] != "ipvs")
		if translated {
			from, fport = dst, dport // as the kernel does it for IPVS
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
		n.Must(t, "", "conntrack", args...)
	}
}

func split(s string) (addr, port string) {
	at := strings.LastIndex(s, ":")
	return strings.Trim(s[:at], "[]"), s[at+1:]
}
