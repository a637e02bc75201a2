package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ExplainRefusal returns a function that says what the kernel lacks, once, when the kernel has refused to take the tables of
// these families as a whole. A start tries only what IPv6 needs (Families), because each trial costs the kernel milliseconds
// (BenchmarkProbe in package nft).
func ExplainRefusal(families []program.Family, log *slog.Logger) func() {
	return explainRefusal(func() ([]kernel.Feature, error) { return kernel.Probe(kernel.Options{Families: families}) }, log)
}

func explainRefusal(probe func() ([]kernel.Feature, error), log *slog.Logger) func() {
	return sync.OnceFunc(func() {
		list, err := probe()
		missing := missingFeatures(list)
		switch {
		case len(missing) > 0:
			log.Error("the kernel lacks what the tables of Verdict need, so it takes none of them; load the modules, or "+
				"boot a kernel of version 5.13 or newer that has them; Verdict tries again until then",
				"kernel", Release(), "missing", strings.Join(missing, "; "))
		case err != nil:
			log.Warn("cannot find out whether the kernel lacks a feature; Verdict writes its tables again until the "+
				"kernel takes them", "kernel", Release(), "error", err)
		}
	})
}

// missingFeatures describes each feature that the kernel refused, once for both families.
func missingFeatures(list []kernel.Feature) (texts []string) {
	var names []string
	families := map[string][]string{}
	modules := map[string][]string{}
	for _, f := range list {
		if f.Err == nil {
			continue
		}
		if len(families[f.Name]) == 0 {
			names = append(names, f.Name)
		}
		families[f.Name] = append(families[f.Name], f.Family.String())
		modules[f.Name] = append(modules[f.Name], f.Module)
	}
	for _, name := range names {
		needed := strings.Join(slices.Compact(modules[name]), ", ")
		texts = append(texts, fmt.Sprintf("%s (%s; modules %s)", name, strings.Join(families[name], ", "), needed))
	}
	return texts
}

// Families returns the families that the kernel can serve. One transaction carries both tables, so a kernel that
// refuses the one of IPv6 would take none. A kernel that was started without IPv6 (ipv6.disable=1) has no IPv6 at all. If
// a sysctl turns IPv6 off, the tables work. Other kernels have IPv6 without NAT for it.
func Families(ipv6 bool, probe func() ([]kernel.Feature, error), log *slog.Logger) []program.Family {
	if !ipv6 {
		log.Warn("the kernel has no IPv6; only IPv4 is served")
		return []program.Family{program.IPv4}
	}
	both := []program.Family{program.IPv4, program.IPv6}
	list, err := probe()
	if err != nil {
		return both // the engine gets the same error, or says what the kernel refuses
	}
	if missing := missingFeatures(list); len(missing) > 0 {
		log.Error("the kernel lacks what the table for IPv6 needs; only IPv4 is served until Verdict starts again; "+
			"load the modules, or boot a kernel that has them", "kernel", Release(), "missing", strings.Join(missing, "; "))
		return []program.Family{program.IPv4}
	}
	return both
}

// ProbeIPv6 tries what the table for IPv6 needs.
func ProbeIPv6() ([]kernel.Feature, error) {
	return kernel.Probe(kernel.Options{Families: []program.Family{program.IPv6}})
}

// Release is what "uname -r" prints.
func Release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	release, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return string(release)
}

// HasIPv6 reports whether the kernel was started with IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return !errors.Is(err, fs.ErrNotExist)
}
