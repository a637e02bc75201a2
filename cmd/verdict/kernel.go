package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft"
)

// kernelCheck says what the kernel lacks, once, when the kernel has refused to take the tables as a whole. A start tries
// only what IPv6 needs (kernelFamilies), because each trial costs the kernel milliseconds (BenchmarkProbe in package nft).
type kernelCheck struct {
	once  sync.Once
	probe func() ([]nft.Feature, error)
	log   *slog.Logger
}

func newKernelCheck(families []nft.Family, log *slog.Logger) *kernelCheck {
	return &kernelCheck{log: log, probe: func() ([]nft.Feature, error) {
		return nft.Probe(nft.Options{Families: families})
	}}
}

// explain logs one line if the kernel lacks something.
func (k *kernelCheck) explain() {
	k.once.Do(func() {
		list, err := k.probe()
		missing := missingFeatures(list)
		switch {
		case len(missing) > 0:
			k.log.Error("the kernel lacks what the tables of Verdict need, so it takes none of them; load the modules, or "+
				"boot a kernel of version 5.13 or newer that has them; Verdict tries again until then",
				"kernel", kernelRelease(), "missing", strings.Join(missing, "; "))
		case err != nil:
			k.log.Warn("cannot find out whether the kernel lacks a feature; Verdict writes its tables again until the "+
				"kernel takes them", "kernel", kernelRelease(), "error", err)
		}
	})
}

// missingFeatures describes each feature that the kernel refused, once for both families.
func missingFeatures(list []nft.Feature) (texts []string) {
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

// kernelFamilies returns the families that the kernel can serve. One transaction carries both tables, so a kernel that
// refuses the one of IPv6 would take none. A kernel that was started without IPv6 (ipv6.disable=1) has no IPv6 at all. If
// a sysctl turns IPv6 off, the tables work. Other kernels have IPv6 without NAT for it.
func kernelFamilies(ipv6 bool, probe func() ([]nft.Feature, error), log *slog.Logger) []nft.Family {
	if !ipv6 {
		log.Warn("the kernel has no IPv6; only IPv4 is served")
		return []nft.Family{nft.IPv4}
	}
	both := []nft.Family{nft.IPv4, nft.IPv6}
	list, err := probe()
	if err != nil {
		return both // the engine gets the same error, or says what the kernel refuses
	}
	if missing := missingFeatures(list); len(missing) > 0 {
		log.Error("the kernel lacks what the table for IPv6 needs; only IPv4 is served until Verdict starts again; "+
			"load the modules, or boot a kernel that has them", "kernel", kernelRelease(), "missing", strings.Join(missing, "; "))
		return []nft.Family{nft.IPv4}
	}
	return both
}

func probeIPv6() ([]nft.Feature, error) {
	return nft.Probe(nft.Options{Families: []nft.Family{nft.IPv6}})
}

// kernelRelease is what "uname -r" prints.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	release, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return string(release)
}
