//go:build !nokernel

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/samples"
)

// TestSamplesOfKeepalived: what convert makes of each sample passes validate.
func TestSamplesOfKeepalived(t *testing.T) {
	for _, sample := range samples.Keepalived(t) {
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
		})
	}
}
