//go:build ipvs

package ipvs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/runner"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// files are those of the scenarios that run in a family. The emulated kernel is slow, so those are left out that look
// at what happens before an engine is chosen (selection, topology, health checks) or need thousands of connections; and
// in IPv6 those that look at little that differs between the families. With -short, those stay of which IPVS itself does a part.
func files(f lab.Family) []string {
	switch {
	case testing.Short() && f == lab.IPv6:
		return []string{"conntrack", "families"}
	case f == lab.IPv6:
		return []string{"affinity", "conntrack", "families", "policies"}
	case testing.Short():
		return []string{"affinity", "conntrack", "lifecycle", "localtraffic", "nodeports", "policies"}
	}
	return []string{"affinity", "affinity-more", "conditions", "conntrack", "families", "lifecycle", "loadbalancers", "localtraffic",
		"nodeports", "policies", "ranges"}
}

// TestScenarios runs scenarios with IPVS serving all Services.
func TestScenarios(t *testing.T) {
	list, err := scenario.Load(os.DirFS("../scenarios"))
	lab.Must(t, err)
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
	lab.Must(t, err)
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range list {
		if slices.Contains(files(f), s.File) && bed.Applies(s) {
			t.Run(s.File+"/"+s.Name, func(t *testing.T) {
				if _, err := bed.Run(s); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
