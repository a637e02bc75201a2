//go:build !nokernel

package conntrack

import (
	"context"
	"encoding/hex"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var update = flag.Bool("update", false, "write testdata/answers.txt anew, from the kernel")

// TestRecorded: this kernel says the same about the same flows as the one that testdata/answers.txt is from, up to the numbers
// that it gives to flows. Tests without the kernel read that file.
func TestRecorded(t *testing.T) {
	n := newNamespace(t)
	for i, f := range []struct{ options, src, dst, dport, to string }{
		{"-p tcp --state ESTABLISHED -u ASSURED,SEEN_REPLY", "10.9.0.1", "10.96.0.10", "80", "10.0.0.1:8080"},
		{"-p tcp --state TIME_WAIT -u ASSURED,SEEN_REPLY", "10.9.0.1", "10.96.0.10", "80", "10.0.0.1:8080"},
		{"-p udp -u SEEN_REPLY", "10.9.0.1", "10.96.0.10", "53", "10.0.0.1:5353"},
		{"-p udp -u ASSURED,SEEN_REPLY", "10.9.0.1", "10.96.0.10", "53", "10.0.0.1:5353"},
		{"-p udp --zone 7", "10.9.0.1", "10.96.0.10", "53", "10.0.0.1:5353"},
		{"-p sctp --orig-vtag 1 --reply-vtag 2 --state ESTABLISHED", "10.9.0.1", "10.96.0.10", "90", "10.0.0.1:90"},
		{"-p tcp --state SYN_SENT", "10.9.0.1", "10.0.0.9", "80", ""},
		{"-p tcp --state ESTABLISHED", "fd00:9::1", "fd00:96::10", "80", "[fd00:a::1]:8080"},
		{"-p udp -u SEEN_REPLY", "fd00:9::1", "fd00:96::10", "53", "[fd00:a::1]:5353"},
	} {
		port := strconv.Itoa(1001 + i)
		args := append([]string{"-I"}, strings.Fields(f.options)...) // the protocol comes first
		args = append(args, "--timeout", "300", "--orig-src", f.src, "--orig-dst", f.dst, "--orig-port-src", port, "--orig-port-dst", f.dport,
			"--reply-src", f.dst, "--reply-dst", f.src, "--reply-port-src", f.dport, "--reply-port-dst", port)
		if f.to != "" {
			args = append(args, "--dst-nat", f.to)
		}
		n.Must(t, "", "conntrack", args...)
	}
	k := n.cleaner(t).table.(*kernel)
	var lines []string
	in := make([]byte, 1<<16)
	ask := func(what string, write func(*request)) {
		k.out.Buf = k.out.Buf[:0]
		write(&k.out)
		if err := k.Send(k.out.Buf); err != nil {
			t.Fatal(err)
		}
		for last := false; !last; {
			size, _, err := k.Recvfrom(context.Background(), in, 0)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, what+" "+hex.EncodeToString(in[:size]))
			for m := nlmsg.NewMessages(in[:size]); m.Next(); {
				_, last = m.Ack()
			}
		}
	}
	q := query(unix.IPPROTO_TCP, "10.9.0.1:1001", "10.96.0.10:80")
	ask("IPv4", func(r *request) { r.dump(state.IPv4, filter{}) })
	ask("IPv6", func(r *request) { r.dump(state.IPv6, filter{}) })
	ask("found", func(r *request) { r.flow(msgGet, q) })
	ask("deleted", func(r *request) { r.flow(msgDelete, q) })
	ask("none", func(r *request) { r.flow(msgDelete, q) })
	if *update {
		if err := os.WriteFile("testdata/answers.txt", []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Fatal("written; run the test again")
	}
	if diff := cmp.Diff(read(recorded(t)), read(lines)); diff != "" {
		t.Errorf("(- recorded, + this kernel):\n%s", diff)
	}
}
