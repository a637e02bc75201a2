package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/kernel"
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
	return f
}
