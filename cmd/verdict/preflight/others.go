package preflight

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
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
