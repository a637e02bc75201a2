//go:build !nokernel

package prober

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wants asks once, and compares the answer.
func (l *lab) wants(t *testing.T, what string, j job, want string) {
	t.Helper()
	j.Count, j.AtOnce = 1, 1
	if d := l.do(t, j); d.Answers[want] != 1 {
		t.Errorf("%s: %v, want %q", what, d.Answers, want)
	}
}

// TestNoSourcePort: a user of the node has as many connections to an endpoint as there are source ports. The question cannot be
// asked, which is nothing that the endpoint answers. With a free port, it can be asked.
func TestNoSourcePort(t *testing.T) {
	for _, f := range []state.Family{state.IPv4, state.IPv6} {
		l := newLab(t)
		at, dns := l.at(t, f, each(silent)), l.datagrams(t, f, answerDNS)
		if err := l.node.Sysctl("net.ipv4.ip_local_port_range=40000 40003"); err != nil {
			t.Fatal(err)
		}
		var taken []net.Conn
		take := func(network string, at netip.AddrPort) {
			for range 4 {
				c, err := l.node.DialContext(t.Context(), network, at.String())
				if err != nil {
					t.Fatal(err)
				}
				taken = append(taken, c)
			}
		}
		take("tcp", at)
		take("udp", dns)
		tcp, suspected, udp := questionOf(t, "tcp", at.String(), "tcp"), questionOf(t, "tcp", at.String(), "off"), questionOf(t, "udp", dns.String(), "dns")
		l.wants(t, "checked by TCP", job{Question: tcp}, "other: connect: cannot assign requested address")
		l.wants(t, "under suspicion", job{Question: suspected}, "other: connect: cannot assign requested address")
		l.wants(t, "checked by UDP", job{Question: udp}, "other: connect: resource temporarily unavailable")
		for _, c := range taken {
			if of, ok := c.(*net.TCPConn); ok {
				_ = of.SetLinger(0) // no TIME_WAIT has the port then
			}
			_ = c.Close() // it has done its work
		}
		for _, q := range []probe.Question{tcp, suspected, udp} {
			l.wants(t, "with free ports", job{Question: q}, "good: ")
		}
	}
}

// TestNoFiles: a process that may open no more files cannot ask.
func TestNoFiles(t *testing.T) {
	l := newLab(t)
	at := l.at(t, state.IPv4, each(silent)).String()
	for _, check := range []string{"tcp", "http", "off"} {
		j := job{Question: questionOf(t, "tcp", at, check), NoFiles: true}
		l.wants(t, check, j, "other: socket: too many open files")
	}
	l.wants(t, "with files", job{Question: questionOf(t, "tcp", at, "tcp")}, "good: ")
}

// TestNoWay: a route of this node that goes nowhere is met by packets of clients, too, so it counts. What a filter forbids this node
// to ask does not.
func TestNoWay(t *testing.T) {
	for f, bits := range map[state.Family]string{state.IPv4: "/32", state.IPv6: "/128"} {
		l := newLab(t)
		at := netip.AddrPortFrom(podAddresses[f], closedPort)
		for _, kind := range []string{"blackhole", "prohibit", "unreachable"} {
			l.node.Must(t, "", "ip", "route", "add", kind, at.Addr().String()+bits)
			l.wants(t, kind, job{Question: questionOf(t, "tcp", at.String(), "tcp")}, "no route: no route to it")
			l.node.Must(t, "", "ip", "route", "del", kind, at.Addr().String()+bits)
		}
		l.node.Must(t, "add rule inet t out meta l4proto udp drop", "nft", "-f", "-")
		l.wants(t, "dropped on its way out", job{Question: questionOf(t, "udp", at.String(), "dns")}, "other: write socket: operation not permitted")
	}
}

// TestErrors: what each error of the kernel means. Those that it returns for a reason of this node decide nothing.
func TestErrors(t *testing.T) {
	others := map[probe.Fault][]unix.Errno{
		probe.NoAnswer: {unix.ETIMEDOUT},
		probe.Refused:  {unix.ECONNREFUSED},
		probe.Reset:    {unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE},
		probe.NoRoute: { // as the kernel converts ICMP errors and kinds of routes
			unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENONET, unix.EACCES, unix.EPROTO, unix.ENOPROTOOPT,
			unix.EOPNOTSUPP, unix.EMSGSIZE, unix.EINVAL,
		},
	}
	want := map[unix.Errno]probe.Fault{}
	for fault, list := range others {
		for _, e := range list {
			want[e] = fault
		}
	}
	for e := unix.Errno(1); e < 200; e++ {
		fault, listed := want[e]
		if !listed {
			fault = probe.OtherFault
		}
		if a := answerOf(t.Context(), e, &state.HealthCheck{}); a.Fault != fault {
			t.Errorf("%s: %s, want %s", unix.ErrnoName(e), a.Fault, fault)
		}
		if a := answerOf(t.Context(), ownError{e}, &state.HealthCheck{}); a.Fault != probe.OtherFault {
			t.Errorf("%s before the question: %s", unix.ErrnoName(e), a.Fault)
		}
	}
}
