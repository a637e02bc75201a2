package proxier

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestFewLinesForDeletedConnections: what is not about one object is one line for some time.
func TestFewLinesForDeletedConnections(t *testing.T) { synctest.Test(t, testFewLines) }

func testFewLines(t *testing.T) {
	var text strings.Builder
	c := flowCleaner{log: slog.New(slog.NewTextHandler(&text, nil))}
	for range 1000 {
		c.noteCut([]conntrack.Result{{Unanswered: 2}})
		time.Sleep(10 * time.Millisecond) // of the test's own clock
	}
	for part, want := range map[string]int{"were deleted": 10, "connections=200": 9} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q in 10 seconds, want %d:\n%s", n, part, want, text.String())
		}
	}
}

// TestTenantLeavesLinesAboutIPVS: ever new failures of the virtual servers of one namespace do not fill the log.
func TestTenantLeavesLinesAboutIPVS(t *testing.T) {
	var text strings.Builder
	w := newWorldWith(func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&text, nil)) })
	fails := func(namespace string, n int) {
		w.errors.ipvs([]dataplane.Failure{{
			Service: state.Name{Namespace: namespace, Name: "x"}, Object: fmt.Sprint("virtual server ", netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})),
			Err: errors.New("injected"),
		}})
	}
	for i := range 1000 {
		fails("tenant", i)
	}
	fails("shop", 5000)
	for part, want := range map[string]int{"service=tenant/x": w.settings.Budgets.NamespaceLogLines, "service=shop/x": 1} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q, want %d", n, part, want)
		}
	}
}
