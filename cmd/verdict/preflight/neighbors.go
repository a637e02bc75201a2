package preflight

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/nftables"

	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
	"github.com/verdict-proxy/verdict/nft/inspect"
)

// Traces are what other software has on this node: "table", "chain", "ipset", "device", or "process" of this network namespace,
// and its name.
type Traces map[string]bool

// ReadTraces looks for them. Chains of iptables-legacy and processes of other process namespaces cannot be seen. With an
// error, it returns what it has found all the same. The root is /proc.
func ReadTraces(proc string) (Traces, error) {
	t := Traces{}
	sets, err := takeover.IPSets()
	for _, name := range sets {
		t["ipset "+name] = true
	}
	return t, errors.Join(err, t.readChains(), t.readDevices(), t.readProcesses(proc))
}

func (t Traces) readChains() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nf_tables: %w", err)
	}
	list, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("list the chains of nf_tables: %w", err)
	}
	for _, chain := range list {
		t["table "+chain.Table.Name], t["chain "+chain.Name] = true, true
	}
	return nil
}

func (t Traces) readDevices() error {
	list, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the devices: %w", err)
	}
	for _, device := range list {
		t["device "+device.Name] = true
	}
	return nil
}

// readProcesses reads the names of the processes that have this network.
func (t Traces) readProcesses(proc string) error {
	own, err := os.Readlink(filepath.Join(proc, "thread-self/ns/net"))
	if err != nil {
		return fmt.Errorf("find out which network this is: %w", err)
	}
	all, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, dir := range all {
		if network, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || network != own {
			continue // it has ended, or is not on this node's network
		}
		if name, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
			t["process "+strings.TrimSpace(string(name))] = true
		}
	}
	return err
}

// known is software that shares nodes with Verdict, and its traces. Each is one that nobody else leaves.
type known struct {
	name    string
	traces  []string
	matters string // what an operator has to know
	remedy  string // for what must not be here
}

const allowPods = "its forward chain must let the ranges of pods pass"

// neighbors are in the order of the table in config/deploy/README.md.
var neighbors = []known{
	{name: "firewalld", traces: []string{"table firewalld", "process firewalld"},
		matters: "the ranges of pods belong into the zone trusted; it drops first packets while it reloads"},
	{name: "ufw", traces: []string{"chain ufw-before-forward", "chain ufw6-before-forward"},
		matters: allowPods + ": ufw route allow"},
	{name: "Docker", traces: []string{"table docker-bridges", "chain DOCKER-FORWARD", "chain DOCKER-USER", "device docker0", "process dockerd"},
		matters: allowPods + ", in DOCKER-USER"},
	{name: "podman", traces: []string{"table netavark", "chain NETAVARK-HOSTPORT-DNAT", "chain NETAVARK_FORWARD", "device podman0"},
		matters: "nothing has to be set"},
	{name: "libvirt", traces: []string{"table libvirt_network", "chain LIBVIRT_FWI", "chain LIBVIRT_PRT", "device virbr0",
		"process libvirtd", "process virtnetworkd"},
		matters: "nothing has to be set"},
	{name: "keepalived", traces: []string{"process keepalived"}, matters: "nothing has to be set"},
	{name: "DNS cache on the node", traces: []string{"table nodelocaldns", "device nodelocaldns"},
		matters: "its rules must keep connection tracking away from its addresses"},
	{name: "CNI portmap", traces: []string{"table cni_hostport", "chain CNI-HOSTPORT-DNAT"},
		matters: "if a host port has the number of a node port, who registered its chain last gets the connections"},
	{name: "flannel", traces: []string{"table flannel-ipv4", "table flannel-ipv6", "chain FLANNEL-FWD", "chain FLANNEL-POSTRTG",
		"device flannel-v6.1", "device flannel-wg", "device flannel.1", "process flanneld"},
		matters: "nothing has to be set"},
	{name: "Calico", traces: []string{"table calico", "chain cali-FORWARD", "device vxlan.calico"},
		matters: "its eBPF data path must be off: it serves Services itself"},
	{name: "Cilium", traces: []string{"chain CILIUM_FORWARD", "chain CILIUM_PRE_nat", "device cilium_host"},
		matters: "it runs here or did, and may serve Services, too; its eBPF programs were not looked at",
		remedy:  "check that kubeProxyReplacement is false in the configuration of Cilium: then nothing is wrong; otherwise do without Verdict"},
	{name: "kube-router", traces: []string{"chain KUBE-ROUTER-HAIRPIN", "chain KUBE-ROUTER-SERVICES", "ipset inet6:kube-router-svip",
		"ipset inet6:kube-router-svip-prt", "ipset kube-router-svip", "ipset kube-router-svip-prt", "device kube-dummy-if"},
		matters: "it serves Services here or did",
		remedy:  "run kube-router with --run-service-proxy=false, and once with --cleanup-config"},
}

// Neighbors names the software that left traces on this node.
func Neighbors(t Traces, err error) []Finding {
	var list []Finding
	for i := range neighbors {
		if n := &neighbors[i]; len(n.found(t)) > 0 {
			f := Finding{Check: n.name, Status: OK, Detail: "found " + strings.Join(n.found(t), ", ") + ": " + n.matters, Remedy: n.remedy}
			if n.remedy != "" {
				f.Status = Warning
			}
			list = append(list, f)
		}
	}
	if err != nil {
		list = append(list, Finding{Check: "other software", Status: Warning, Detail: "cannot look everywhere: " + err.Error(), Remedy: asRoot})
	} else if len(list) == 0 {
		list = append(list, Finding{Check: "other software", Status: OK, Detail: "none that this command knows"})
	}
	return list
}

// found lists the traces of one neighbor.
func (n *known) found(t Traces) []string {
	return slices.DeleteFunc(slices.Clone(n.traces), func(trace string) bool { return !t[trace] })
}

// Forwarding reports chains of other tables that certainly stop each packet that the node forwards: those of all pods, and of all
// clients of Services from outside.
func Forwarding(chains []inspect.ForeignChain, err error) (list []Finding) {
	if err != nil {
		return []Finding{{Check: "forwarding", Status: Warning, Detail: "cannot read the chains of other tables: " + err.Error(), Remedy: asRoot}}
	}
	for i := range chains {
		if c := &chains[i]; c.Hook == "forward" && c.Certain() {
			list = append(list, Finding{
				Check: "forwarding", Status: Warning, Detail: "chain " + c.Ref() + " stops all packets that this node forwards",
				Remedy: "let it accept the ranges of pods and ct status dnat, or remove it; nft list chain " + c.Ref(),
			})
		}
	}
	return list
}

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
