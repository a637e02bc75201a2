//go:build ipvs

package ipvs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/runner"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// TestScenarios runs the scenarios with IPVS serving all Services.
func TestScenarios(t *testing.T) {
	list, err := scenario.Load(os.DirFS("../scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) { runScenarios(t, list, f) })
	}
}

func runScenarios(t *testing.T, list []*scenario.Scenario, f lab.Family) {
	proxy := verdict()
	proxy.IPVS = true
	bed, err := runner.NewBed(runner.Options{
		Family: f, Source: runner.FromManifests, Proxy: proxy, Dir: filepath.Join(t.TempDir(), f.String()),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range list {
		if bed.Applies(s) {
			t.Run(s.File+"/"+s.Name, func(t *testing.T) {
				if _, err := bed.Run(s); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
