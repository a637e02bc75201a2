package preflight

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/nftables"

	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
)

// Traces are what other software has on this node: names of its tables, chains, ipsets and devices, and processes in this
// network namespace.
type Traces struct{ Tables, Chains, Sets, Devices, Processes map[string]bool }

// ReadTraces looks for them. Chains of iptables-legacy and processes of other process namespaces cannot be seen. With an
// error, it returns what it has found all the same. The root is /proc.
func ReadTraces(proc string) (Traces, error) {
	t := Traces{
		Tables: map[string]bool{}, Chains: map[string]bool{}, Sets: map[string]bool{}, Devices: map[string]bool{}, Processes: map[string]bool{},
	}
	sets, err := takeover.IPSets()
	for _, name := range sets {
		t.Sets[name] = true
	}
	return t, errors.Join(err, t.readChains(), t.readDevices(), t.readProcesses(proc))
}

func (t *Traces) readChains() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nf_tables: %w", err)
	}
	list, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("list the chains of nf_tables: %w", err)
	}
	for _, chain := range list {
		t.Tables[chain.Table.Name], t.Chains[chain.Name] = true, true
	}
	return nil
}

func (t *Traces) readDevices() error {
	list, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the devices: %w", err)
	}
	for _, device := range list {
		t.Devices[device.Name] = true
	}
	return nil
}

// readProcesses reads the names of the processes that have this network.
func (t *Traces) readProcesses(proc string) error {
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
			t.Processes[strings.TrimSpace(string(name))] = true
		}
	}
	return err
}

// known is software that shares nodes with Verdict, and how to recognize it. Each name is one that nobody else uses.
type known struct {
	name                                     string
	tables, chains, sets, devices, processes []string
	matters                                  string // what an operator has to know
	remedy                                   string // for what must not be here
}

const allowPods = "its forward chain must let the ranges of pods pass"

// neighbors are in the order of the table in config/deploy/README.md.
var neighbors = []known{
	{
		name: "firewalld", tables: []string{"firewalld"}, processes: []string{"firewalld"},
		matters: "the ranges of pods belong into the zone trusted; it drops first packets while it reloads",
	},
	{name: "ufw", chains: []string{"ufw-before-forward", "ufw6-before-forward"}, matters: allowPods + ": ufw route allow"},
	{name: "Docker", chains: []string{"DOCKER-USER", "DOCKER-FORWARD"}, tables: []string{"docker-bridges"}, devices: []string{"docker0"},
		processes: []string{"dockerd"}, matters: allowPods + ", in DOCKER-USER"},
	{name: "podman", chains: []string{"NETAVARK_FORWARD", "NETAVARK-HOSTPORT-DNAT"}, tables: []string{"netavark"}, devices: []string{"podman0"},
		matters: "nothing has to be set"},
	{name: "libvirt", chains: []string{"LIBVIRT_FWI", "LIBVIRT_PRT"}, tables: []string{"libvirt_network"}, devices: []string{"virbr0"},
		processes: []string{"libvirtd", "virtnetworkd"}, matters: "nothing has to be set"},
	{name: "keepalived", processes: []string{"keepalived"}, matters: "nothing has to be set"},
	{name: "DNS cache on the node", tables: []string{"nodelocaldns"}, devices: []string{"nodelocaldns"},
		matters: "its rules must keep connection tracking away from its addresses"},
	{
		name: "CNI portmap", chains: []string{"CNI-HOSTPORT-DNAT"}, tables: []string{"cni_hostport"},
		matters: "if a host port has the number of a node port, who registered its chain last gets the connections",
	},
	{name: "flannel", chains: []string{"FLANNEL-POSTRTG", "FLANNEL-FWD"}, tables: []string{"flannel-ipv4", "flannel-ipv6"},
		devices: []string{"flannel.1", "flannel-v6.1", "flannel-wg"}, processes: []string{"flanneld"}, matters: "nothing has to be set"},
	{name: "Calico", chains: []string{"cali-FORWARD"}, tables: []string{"calico"}, devices: []string{"vxlan.calico"},
		matters: "its eBPF data path must be off: it serves Services itself"},
	{
		name: "Cilium", chains: []string{"CILIUM_FORWARD", "CILIUM_PRE_nat"}, devices: []string{"cilium_host"},
		matters: "it runs here or did, and may serve Services, too; its eBPF programs were not looked at",
		remedy:  "check that kubeProxyReplacement is false in the configuration of Cilium: then nothing is wrong; otherwise do without Verdict",
	},
	{
		name: "kube-router", chains: []string{"KUBE-ROUTER-SERVICES", "KUBE-ROUTER-HAIRPIN"}, devices: []string{"kube-dummy-if"},
		sets:    []string{"kube-router-svip", "kube-router-svip-prt", "inet6:kube-router-svip", "inet6:kube-router-svip-prt"},
		matters: "it serves Services here or did",
		remedy:  "run kube-router with --run-service-proxy=false, and once with --cleanup-config",
	},
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

// found describes the traces of one neighbor.
func (n *known) found(t Traces) (names []string) {
	for _, kind := range []struct {
		what  string
		names []string
		have  map[string]bool
	}{
		{"table", n.tables, t.Tables}, {"chain", n.chains, t.Chains}, {"ipset", n.sets, t.Sets},
		{"device", n.devices, t.Devices}, {"process", n.processes, t.Processes},
	} {
		for _, name := range slices.Sorted(maps.Keys(kind.have)) {
			if slices.Contains(kind.names, name) {
				names = append(names, kind.what+" "+name)
			}
		}
	}
	return names
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
