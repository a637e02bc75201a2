package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft"
)

// kernelCheck says what the kernel lacks, once, when the kernel has refused to take the tables as a whole. It is not a
// part of every start, because the kernel takes several milliseconds to undo a trial (BenchmarkProbe in package nft).
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
				"boot a kernel of version "+nft.MinimumKernel+" or newer that has them; Verdict tries again until then",
				"kernel", kernelRelease(), "missing", strings.Join(missing, "; "))
		case err != nil:
			k.log.Warn("cannot find out whether the kernel lacks a feature", "kernel", kernelRelease(), "error", err)
		}
	})
}

// missingFeatures describes each feature that the kernel refused, once for both families.
func missingFeatures(list []nft.Feature) (texts []string) {
	var names []string
	families := map[string][]string{}
	example := map[string]nft.Feature{}
	for _, f := range list {
		if f.Err == nil {
			continue
		}
		if len(families[f.Name]) == 0 {
			names, example[f.Name] = append(names, f.Name), f
		}
		families[f.Name] = append(families[f.Name], f.Family.String())
	}
	for _, name := range names {
		f := example[name]
		in := strings.Join(families[name], " and ")
		texts = append(texts, fmt.Sprintf("%s (modules %s) in family %s: %v", name, f.Module, in, f.Err))
	}
	return texts
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
