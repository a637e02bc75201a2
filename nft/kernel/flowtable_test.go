package kernel

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestFlaws: the fast path stays off on the versions that have a flaw, and on no others.
func TestFlaws(t *testing.T) {
	for release, want := range map[string]string{
		"5.19.0": "", "6.1.0-44-amd64": "", "6.12.73+deb13-amd64": "", "6.13.12": "",
		"6.14.0": "ends connections", "6.18.5-200.fc43.x86_64": "ends connections", "6.19.0-rc1": "breaks TCP", "7.0.3": "ends connections",
		"7.1.0": "", "7.3-rc2": "", "10.0.0": "", "strange": "",
	} {
		if got := flawOf(release); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: the flaw is %q, want %q", release, got, want)
		}
	}
}

// TestFlowtable: the flowtable that is sent is the one that nft prints, with counters. Devices that come or go change nothing else of it.
func TestFlowtable(t *testing.T) {
	for _, devices := range [][]string{nil, {"eth0", "veth1"}} {
		var b Batch
		o := program.Operation{Kind: program.AddFlowtable, Family: program.IPv4, Name: program.FastPathTable, Devices: devices}
		b.flowtable(&o, unix.NFT_MSG_NEWFLOWTABLE)
		a := nlmsg.NewAttributes(b.Buf[unix.NLMSG_HDRLEN+4:])
		hook := a.Find(flowtableHook).Nested()
		var got []string
		for list := hook.Find(flowtableHookDevices).Nested(); list.Next(); {
			got = append(got, list.Text())
		}
		creates, flags := len(hook.Find(flowtableHookPriority).Value) > 0, a.Find(flowtableFlags).Value
		if !slices.Equal(got, devices) || a.Find(flowtableName).Text() != program.FastPathTable || creates != (devices == nil) || len(flags) > 0 != creates {
			t.Errorf("%q: devices %q, creates %t, flags %v", devices, got, creates, flags)
		}
		const counter = 2 // NFT_FLOWTABLE_COUNTER
		if creates && (a.Find(flowtableFlags).Uint32() != counter || !strings.Contains(o.String(), "counter;")) {
			t.Errorf("the flags are %v of %s", flags, &o)
		}
	}
}
