package takeover

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Found is what kube-proxy left in the network namespace of the process.
type Found struct {
	nft    *nftRules
	legacy []*legacyRules
	sets   []string // the ipsets of the mode ipvs
	// Device reports whether the device of the mode ipvs exists.
	Device bool
}

// Find looks for what kube-proxy left. It changes nothing. With an error, it returns what it has found all the same.
func Find() (*Found, error) {
	f := &Found{nft: &nftRules{}}
	n, nftErr := findNFT()
	if nftErr == nil {
		f.nft = n
	}
	var legacyErr error
	f.legacy, legacyErr = findLegacy()
	all, setErr := IPSets()
	f.sets = slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(sets(), name) })
	device, err := findDevice()
	f.Device = device != nil
	return f, errors.Join(nftErr, legacyErr, setErr, err)
}

// Empty reports whether nothing was found.
func (f *Found) Empty() bool { return len(f.Names()) == 0 }

// Names describes what was found.
func (f *Found) Names() (names []string) {
	for _, t := range f.nft.tables {
		names = append(names, "table "+families[t.Family]+" "+t.Name)
	}
	if n := len(f.nft.chains) + len(f.nft.full); n > 0 {
		names = append(names, fmt.Sprintf("%d chains of iptables-nft", n))
	}
	for _, r := range f.legacy {
		names = append(names, fmt.Sprintf("%d chains of %s", r.chains, r.programs.name))
	}
	if n := len(f.sets); n > 0 {
		names = append(names, fmt.Sprintf("%d ipsets", n))
	}
	if f.Device {
		names = append(names, "device "+Device)
	}
	return names
}

// Kept lists the chains of kube-proxy to which rules of other software lead. They have to stay. They stay empty, except for
// the one that only marks packets.
func (f *Found) Kept() []string {
	list := f.nft.kept
	for _, r := range f.legacy {
		list = append(list, r.kept...)
	}
	return list
}

// Remove removes what was found, except for the device of the mode ipvs: see RemoveDevice.
func (f *Found) Remove() error {
	errs := []error{f.nft.remove()}
	for _, r := range f.legacy {
		errs = append(errs, r.remove())
	}
	for _, name := range f.sets { // no rule uses them any more
		if err := netlink.IpsetDestroy(name); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the ipset %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// IPSets returns the names of the ipsets of the network namespace.
func IPSets() ([]string, error) {
	if _, err := os.Stat("/sys/module/ip_set"); err != nil {
		return nil, nil //nolint:nilerr // the kernel has no ipsets, and the question would load them
	}
	list, err := netlink.IpsetListAll()
	if err != nil {
		return nil, fmt.Errorf("list the ipsets: %w", err)
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].SetName
	}
	return slices.Compact(names), nil // a large set comes in several messages
}
