package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/config"
)

// patience is how long the API server may take to answer a request.
const patience = 5 * time.Second

// Manifests checks a folder of manifests. Others must be able to read it: the daemon of the systemd unit is a user of its own.
func Manifests(dir string) Finding {
	f := Finding{Check: "manifests", Status: OK, Detail: dir + " can be read"}
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Finding{Check: f.Check, Status: Warning, Detail: err.Error(), Remedy: asRoot}
	case err != nil:
		return Finding{Check: f.Check, Status: Error, Detail: err.Error(), Remedy: "create the folder, or correct --manifests"}
	}
	closed := func(path string, need fs.FileMode) {
		if info, err := os.Stat(path); err == nil && info.Mode()&need != need {
			f.Status, f.Detail, f.Remedy = Warning, path+" can be read by its owner and group only", "chmod o+rX "+path+", unless the daemon runs as one of them"
		}
	}
	for _, e := range list {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			closed(filepath.Join(dir, e.Name()), 0o004)
		}
	}
	closed(dir, 0o005)
	return f
}

// Cluster checks that the API server lets Verdict read what it needs, and that the way to it does not lead through a
// Service. The host is the name or address to which the client connects. It also returns the first address of each range of Services.
func Cluster(ctx context.Context, client kubernetes.Interface, host string) (list []Finding, first []netip.Addr) {
	one := metav1.ListOptions{Limit: 1}
	requests := []struct {
		name    string
		list    func(context.Context) error
		without string // what happens without it; "": Verdict does not serve
	}{
		{"services", func(ctx context.Context) error { _, err := client.CoreV1().Services("").List(ctx, one); return err }, ""},
		{"nodes", func(ctx context.Context) error { _, err := client.CoreV1().Nodes().List(ctx, one); return err }, ""},
		{"endpointslices", func(ctx context.Context) error {
			_, err := client.DiscoveryV1().EndpointSlices("").List(ctx, one)
			return err
		}, ""},
		{"servicecidrs", func(ctx context.Context) error {
			all, err := client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(all.Items); i++ {
				for _, r := range config.Prefixes(all.Items[i].Spec.CIDRs) {
					first = append(first, r.Addr().Next())
				}
			}
			return err
		}, "packets to unallocated cluster IPs are not dropped"},
	}
	for _, r := range requests {
		request, cancel := context.WithTimeout(ctx, patience)
		err := r.list(request)
		cancel()
		f := Finding{Check: "API server", Detail: fmt.Sprintf("cannot list %s: %v", r.name, err)}
		switch {
		case err == nil:
		case r.without == "":
			f.Status, f.Remedy = Error, "check --kubeconfig, --master or KUBERNETES_SERVICE_HOST, and the ClusterRole in config/deploy"
			return append(list, f), nil
		default:
			f.Status, f.Remedy = Warning, "none before Kubernetes 1.33: "+r.without+"; otherwise, check the ClusterRole in config/deploy"
			list = append(list, f)
		}
	}
	list = append(list, Finding{Check: "API server", Status: OK, Detail: "it answers, and lets Verdict list what it needs"})
	return append(list, way(ctx, client, host)), first
}

// way checks that no address of the API server is the cluster IP of its Service.
func way(ctx context.Context, client kubernetes.Interface, host string) Finding {
	f := Finding{Check: "way to the API server", Status: OK, Detail: host}
	request, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	servers, err := addresses(request, host)
	if err != nil {
		f.Status, f.Detail = Warning, err.Error()
		f.Remedy = "make sure that the name has an address before a proxy runs, and that this is no cluster IP"
		return f
	}
	if servers[0].String() != host {
		f.Detail = fmt.Sprintf("%s, which is %v", host, servers)
	}
	// Verdict may list Services and need not have the right to get one.
	options := metav1.ListOptions{FieldSelector: "metadata.name=kubernetes"}
	services, err := client.CoreV1().Services(metav1.NamespaceDefault).List(request, options)
	if err != nil {
		f.Status, f.Detail, f.Remedy = Warning, "cannot read the Service default/kubernetes: "+err.Error(),
			"make sure that the API server is not reached through its cluster IP"
		return f
	}
	for i := range services.Items {
		for _, text := range services.Items[i].Spec.ClusterIPs {
			if addr, err := netip.ParseAddr(text); err == nil && slices.Contains(servers, addr) {
				f.Status, f.Detail = Error, text+" is the cluster IP of the API server. It works only while a proxy serves it: "+
					"after a restart of the node, Verdict could not start"
				f.Remedy = "name the API server itself, by --kubeconfig, " +
					"or by KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT in the DaemonSet"
			}
		}
	}
	return f
}

// addresses are those of a host, which is an address or has a name.
func addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(list) == 0 {
		err = errors.New("it has none")
	}
	if err != nil {
		return nil, fmt.Errorf("find the addresses of %s: %w", host, err)
	}
	for i := range list {
		list[i] = list[i].Unmap() // the resolver gives IPv4 addresses in the form of IPv6
	}
	return list, nil
}
