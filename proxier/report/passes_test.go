package report

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestPassLog: a pass that changed something is a line. Passes that follow within a second are summed up in one.
func TestPassLog(t *testing.T) {
	var out bytes.Buffer
	l := passLog{log: slog.New(slog.NewTextHandler(&out, nil))}
	began := time.Unix(1000, 0)
	pass := func(after time.Duration, added int) {
		l.add(&Pass{
			Started: began.Add(after), Duration: time.Millisecond, Services: 1,
			Result: dataplane.Result{Added: added, Kernel: time.Microsecond},
		})
	}
	lines := func() []string { return strings.Split(strings.TrimSpace(out.String()), "\n") }
	pass(0, 0)
	if out.Len() > 0 {
		t.Errorf("a pass that changed nothing: %s", out.String())
	}
	pass(0, 3)
	for i := range 100 {
		pass(time.Duration(i)*time.Millisecond, 2)
	}
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], `msg="changes applied" passes=1 services=1 added=3`) {
		t.Fatalf("the first pass: %q", got)
	}
	l.write(began.Add(500 * time.Millisecond))
	l.write(began.Add(1100 * time.Millisecond))
	const sum = "passes=100 services=100 added=200 deleted=0 virtualServers=0 kernel=100µs duration=100ms longest=1ms"
	if got := lines(); len(got) != 2 || !strings.Contains(got[1], sum) {
		t.Fatalf("100 passes: %q, want %s", got, sum)
	}
	l.write(began.Add(time.Hour))
	if got := lines(); len(got) != 2 {
		t.Errorf("nothing happened since: %q", got)
	}
}

// TestTenantLeavesLinesAboutIPVS: ever new failures of the virtual servers of one namespace do not fill the log.
func TestTenantLeavesLinesAboutIPVS(t *testing.T) {
	var text strings.Builder
	const quota = 100
	log := slog.New(slog.NewTextHandler(&text, nil))
	lines := NewLines(log, quota)
	l := NewLog(log, &lines)
	fails := func(namespace string, n int) {
		l.Failures([]dataplane.Failure{{
			Service: state.Name{Namespace: namespace, Name: "x"}, Object: fmt.Sprint("virtual server ", netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})),
			Err: errors.New("injected"),
		}})
	}
	for i := range 1000 {
		fails("tenant", i)
	}
	fails("shop", 5000)
	for part, want := range map[string]int{"service=tenant/x": quota, "service=shop/x": 1} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q, want %d", n, part, want)
		}
	}
}
