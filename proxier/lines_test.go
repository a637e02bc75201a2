package proxier

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestTenantLeavesLinesAboutEndpoints: the endpoints of one namespace do not keep those of another, nor the network of this
// node, out of the log.
func TestTenantLeavesLinesAboutEndpoints(t *testing.T) {
	var text strings.Builder
	r := newOutlierRig(t, func(*config.Settings) {})
	r.Log = slog.New(slog.NewTextHandler(&text, nil))
	report := OutlierReport{}
	failed := func(namespace string) {
		report.Notes = append(report.Notes, outlier.Note{Kind: outlier.Failed, Status: outlier.Status{
			Endpoint: deadEndpoint, State: outlier.StateFailed, Answer: outlier.Silent, Services: []state.Name{{Namespace: namespace, Name: "x"}},
		}})
	}
	for range 1000 {
		failed("tenant")
	}
	failed("shop")
	report.Notes = append(report.Notes, outlier.Note{Kind: outlier.NetworkLost})
	r.write(&report)
	limit := r.Settings.Budgets.NamespaceLogLines
	for part, want := range map[string]int{"object=tenant/x": limit, "object=shop/x": 1, outlier.NetworkLost.String(): 1} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q, want %d", n, part, want)
		}
	}
}

// TestFewLinesForDeletedConnections: what is not about one object is one line for some time.
func TestFewLinesForDeletedConnections(t *testing.T) {
	var text strings.Builder
	s, now := outlierSums{log: slog.New(slog.NewTextHandler(&text, nil))}, time.Now()
	for i := range 1000 {
		s.add(&OutlierReport{Deleted: 2, Cut: 1, Left: 1, CutError: errors.New("injected")}, now.Add(time.Duration(i)*10*time.Millisecond))
	}
	for part, want := range map[string]int{"were deleted": 10, "under suspicion": 1, "injected": 1, "endpoints=100 connections=200": 9} {
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
