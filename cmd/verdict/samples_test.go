//go:build !nokernel

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/samples"
)

// complaints are what "keepalived -t" writes about shapes. It writes nothing about the others.
var complaints = map[string]string{
	"all-ports":         "zero port only valid for persistent services - setting",
	"api-servers":       "Invalid lvs_scheduler|Unknown keyword 'net_mask'|outside range|persistence_timeout invalid|nb_get_retry is deprecated|no scheduler set",
	"byte-order-mark":   "Unknown keyword|Unexpected '{'",
	"definitions":       "Invalid real server ip address/port $NOWHERE/80 - skipping",
	"dr-other-port":     "ports don't match - resetting",
	"failover-only":     "cannot use a loopback interface (lo) for vrrp|Unknown interface!",
	"host-names":        "Invalid virtual server IP address|Invalid real server ip address",
	"lower-case":        "Invalid lvs_scheduler|unknown [dr] routing method|invalid number|is outside range|no scheduler set|no forwarding method set",
	"no-protocol":       "no protocol set - defaulting to UDP",
	"parts":             "Config files missing",
	"sctp":              "is duplicated - removing second rs|exceeds total weight|setting hysteresis",
	"sorry-on-loopback": "nb_get_retry is deprecated",
	"tunnel-other-port": "ports don't match - resetting",
	"web-nat":           "cannot use a loopback interface (lo) for vrrp|Unknown interface!",
	"web-options":       "url has no path - ignoring|has no urls specified - ignoring",
}

// TestSamplesOfKeepalived: what convert makes of each sample and each shape passes validate. Each shape is what keepalived
// takes, or what it says more about.
func TestSamplesOfKeepalived(t *testing.T) {
	for _, sample := range append(samples.Keepalived(t), samples.Shapes(t)...) {
		t.Run(filepath.Base(sample), func(t *testing.T) {
			code, balancers, stderr := inProcess("convert", sample)
			if code != 0 {
				t.Fatalf("convert: exit code %d\n%s", code, stderr)
			}
			file := filepath.Join(t.TempDir(), "a.yaml")
			if err := os.WriteFile(file, []byte(balancers), 0o644); err != nil {
				t.Fatal(err)
			}
			if code, stdout, stderr := inProcess("validate", file); code != 0 || stdout+stderr != "" {
				t.Errorf("validate: exit code %d\n%s%s\n%s", code, stdout, stderr, balancers)
			}
			if name, isShape := strings.CutSuffix(filepath.Base(sample), ".conf"); isShape {
				expectComplaints(t, sample, complaints[name])
			}
		})
	}
}

// expectComplaints: each line of "keepalived -t" has one of the texts, and each text is in a line.
func expectComplaints(t *testing.T, file, texts string) {
	t.Helper()
	out, _ := exec.Command("keepalived", "-t", "-f", file).CombinedOutput() // it fails if it says anything
	want := strings.Split(texts, "|")
	for _, text := range want {
		if !strings.Contains(string(out), text) {
			t.Errorf("keepalived does not say %q:\n%s", text, out)
		}
	}
	for line := range strings.Lines(string(out)) {
		known := false
		for _, text := range want {
			known = known || text != "" && strings.Contains(line, text)
		}
		if !known {
			t.Errorf("keepalived says %q", line)
		}
	}
}
