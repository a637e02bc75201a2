package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestProcessesAreBounded: a process can call itself by ever new names.
func TestProcessesAreBounded(t *testing.T) {
	m, err := New(Options{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for i := range 100 {
			m.Interfered(fmt.Sprintf("p%d", i), "repaired", time.Millisecond)
		}
		m.Interfered("", "reported", 0)
		for process, want := range map[string]int{"p0": 1, "p15": 1, otherProcess: 84, unknownProcess: 1} {
			if got := testutil.ToFloat64(m.byProcess.WithLabelValues(process)); got != float64(want*(round+1)) {
				t.Errorf("process %s has %v changes, want %d", process, got, want*(round+1))
			}
		}
		if n := testutil.CollectAndCount(m.byProcess); n != maxProcesses+2 {
			t.Errorf("%d series, want %d", n, maxProcesses+2)
		}
	}
}
