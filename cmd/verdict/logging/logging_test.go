package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/verdict-proxy/verdict/config"
)

// TestClientLog: what client-go logs comes in the form of the other lines, and -v N shows its level N.
func TestClientLog(t *testing.T) {
	for _, tt := range []struct {
		verbosity int
		want      []string
	}{{0, []string{"a request failed"}}, {3, []string{"a request failed", "detail on level 3"}}} {
		s := config.Default()
		s.LogFormat, s.Verbosity = "json", tt.verbosity
		var out bytes.Buffer
		klog.SetSlogLogger(New(&out, &s))
		utilruntime.HandleErrorWithContext(t.Context(), errors.New("no route"), "a request failed", "resource", "pods")
		klog.V(3).InfoS("detail on level 3")
		klog.V(5).InfoS("detail on level 5")
		var got []string
		for line := range strings.Lines(out.String()) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			got = append(got, fields["msg"].(string))
		}
		if strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("-v %d: %q, want %q", tt.verbosity, got, tt.want)
		}
		if !strings.Contains(out.String(), `"resource":"pods"`) || !strings.Contains(out.String(), `"error":"no route"`) {
			t.Errorf("the keys are lost: %s", out.String())
		}
	}
}

// TestVerbositySideBySide: the race detector sees that the level is set under a lock, also that of the log of client-go.
func TestVerbositySideBySide(t *testing.T) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { SetVerbosity(0) })
	}
	group.Wait()
}
