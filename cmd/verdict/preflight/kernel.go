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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// The oldest kernel that Verdict supports.
const oldestMajor, oldestMinor = 5, 13

// Kernel checks the version of the kernel.
func Kernel(release string) Finding {
	f := Finding{Check: "kernel", Status: OK, Detail: "Linux " + release}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		f.Status, f.Remedy = Warning, fmt.Sprintf("check that it is Linux %d.%d or newer", oldestMajor, oldestMinor)
	} else if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		f.Status, f.Remedy = Error, fmt.Sprintf("boot Linux %d.%d or newer", oldestMajor, oldestMinor)
	}
	return f
}

const asRoot = "run this command as root, in the network namespace of the host"

// NFTables reports what the kernel refuses of what the program needs.
func NFTables(features []kernel.Feature, err error) []Finding {
	if err != nil {
		f := Finding{Check: "nf_tables", Status: Error, Detail: err.Error(), Remedy: "load the module nf_tables, or boot a kernel that has it"}
		if errors.Is(err, fs.ErrPermission) {
			f.Remedy = asRoot
		}
		return []Finding{f}
	}
	var list []Finding
	for _, x := range features {
		if x.Err == nil {
			continue
		}
		f := Finding{
			Check: fmt.Sprintf("nf_tables %s: %s", x.Family, x.Name), Status: Error, Detail: x.Err.Error(),
			Remedy: "load the modules " + x.Module + ", or boot a kernel that has them",
		}
		if errors.Is(x.Err, fs.ErrPermission) {
			return []Finding{{Check: "nf_tables", Status: Error, Detail: x.Err.Error(), Remedy: asRoot}}
		}
		list = append(list, f)
	}
	if len(list) == 0 {
		return []Finding{{Check: "nf_tables", Status: OK, Detail: fmt.Sprintf("the kernel took a trial of all %d features", len(features))}}
	}
	return list
}

// IPVS reports what IPVS can do, and whether that is enough for the settings.
func IPVS(s *config.Settings, support *ipvsctl.Support, err error) Finding {
	f := Finding{Check: "IPVS", Status: OK}
	switch {
	case s.Backend == config.BackendNFT:
		f.Detail = "not needed with --backend=nft"
	case err != nil:
		f.Status, f.Detail = Warning, "nft serves all Services: "+err.Error()
		f.Remedy = "load the module ip_vs, or set --backend=nft, if Services need no scheduler with state"
		if s.Backend == config.BackendIPVS && !s.IPVS.Fallback {
			f.Status, f.Remedy = Error, "load the module ip_vs, or set --ipvs-fallback"
		}
		if errors.Is(err, syscall.EPERM) {
			f.Remedy = asRoot
		}
	case len(support.Missing) > 0:
		f.Status, f.Detail = Warning, support.String()
		f.Remedy = "load the modules if Services ask for these schedulers; such Services get another one until then"
	default:
		f.Detail = "schedulers: " + strings.Join(support.Schedulers, " ")
	}
	if f.Status == Warning && !s.AsksForIPVS() && !errors.Is(err, syscall.EPERM) {
		f.Status, f.Remedy = OK, "" // a Service that asks for more than nft has gets a Problem
	}
	return f
}

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
