package preflight

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// KubeProxy reports what kube-proxy has left, or serves. found are the names of it.
func KubeProxy(found []string, err error) []Finding {
	f := Finding{Check: "kube-proxy", Status: OK, Detail: "no rules"}
	if len(found) > 0 {
		f.Status, f.Detail = Warning, "found "+strings.Join(found, ", ")
		f.Remedy = "stop kube-proxy, and start Verdict with --take-over"
	}
	list := []Finding{f}
	if err != nil {
		list = append(list, Finding{
			Check: "kube-proxy", Status: Warning, Detail: "cannot look everywhere: " + err.Error(),
			Remedy: "check with iptables-save that there are no chains KUBE-SERVICES",
		})
	}
	return list
}

// devices of other proxies, and what to do about them.
var devices = []struct{ name, proxy, remedy string }{
	{
		"cilium_host", "Cilium",
		"check that kubeProxyReplacement is false in the configuration of Cilium: then nothing is wrong; otherwise do without Verdict",
	},
	{"kube-dummy-if", "kube-router", "run kube-router with --run-service-proxy=false, and once with --cleanup-config"},
}

// OtherProxies looks for devices of other Service proxies.
func OtherProxies() []Finding {
	var list []Finding
	for _, d := range devices {
		f := Finding{Check: d.proxy, Status: OK, Detail: "no device " + d.name}
		_, err := netlink.LinkByName(d.name)
		switch {
		case err == nil:
			f.Status, f.Detail, f.Remedy = Warning, "the device "+d.name+" exists, so it runs here or did, and may serve Services, too; its rules were not looked at", d.remedy
		case !errors.As(err, &netlink.LinkNotFoundError{}):
			f.Status, f.Detail, f.Remedy = Warning, "cannot look for its device: "+err.Error(), asRoot
		}
		list = append(list, f)
	}
	return list
}

// Holder says who may have the address of a listener besides strangers.
type Holder struct {
	PID       int  // the process of Verdict, or 0
	KubeProxy bool // kube-proxy serves this node, and ends before Verdict starts
}

// Listener checks that the address of a listener is free, or will be.
func Listener(flag, address string, holder Holder) Finding {
	f := Finding{Check: "--" + flag, Status: OK, Detail: address + " is free"}
	if address == "" {
		f.Detail = "off"
		return f
	}
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		_ = l.Close()
	case errors.Is(err, syscall.EADDRINUSE) && holder.PID != 0:
		f.Detail = fmt.Sprintf("%s: Verdict runs already (pid %d)", address, holder.PID)
	case errors.Is(err, syscall.EADDRINUSE) && holder.KubeProxy:
		f.Status, f.Detail = Warning, address+" is in use, probably by kube-proxy, whose rules are here"
		f.Remedy = "stop kube-proxy before Verdict starts"
	default:
		f.Status, f.Detail = Error, err.Error()
		f.Remedy = "stop the program that listens there, which may be kube-proxy, or choose another address"
	}
	return f
}
