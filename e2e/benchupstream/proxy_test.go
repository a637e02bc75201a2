package benchupstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// proxyKind is one of the proxies that are compared.
type proxyKind struct {
	name string
	id   string // in the names of benchmarks
	// command is the command line. The folder is for the configuration file.
	command func(dir, kubeconfig string) (command, env []string, err error)
	// synced finds the duration of the first synchronization in the log.
	synced *regexp.Regexp
	most   int  // the largest number of Services; with more it would take too long
	legacy bool // the proxy writes rules through the legacy iptables interface
	// quiet is how long the rules must stay unchanged before the proxy counts as idle. It is longer than any
	// synchronization, and longer than the pause between two of them.
	quiet time.Duration
}

// proxyKinds lists the proxies in the order of the table columns.
func proxyKinds() []*proxyKind {
	return []*proxyKind{
		{
			name: "Verdict", id: "verdict", command: verdict, synced: regexp.MustCompile(`msg="tables written".* duration=(\S+)`),
			most: 1 << 20, quiet: 100 * time.Millisecond,
		},
		{
			name: "kube-proxy nftables, defaults", id: "nftables", command: kubeProxy("nftables", ""), synced: upstreamSynced(),
			most: 10_000, quiet: 1500 * time.Millisecond,
		},
		{ // it reads what the kernel has through the program nft, as all versions before 1.37
			name: "kube-proxy nftables, NFTablesNetlink off", id: "nftables-netlink-off", command: kubeProxy("nftables", "featureGates: {NFTablesNetlink: false}\n"),
			synced: upstreamSynced(), most: 10_000, quiet: 1500 * time.Millisecond,
		},
		{ // as small as it may be: 0 is 1 s
			name: "kube-proxy nftables, minSyncPeriod 1ns", id: "nftables-minsync-1ns", command: kubeProxy("nftables", "nftables: {syncPeriod: 1h, minSyncPeriod: 1ns}\n"),
			synced: upstreamSynced(), most: 10_000, quiet: 1500 * time.Millisecond,
		},
		{
			name: "kube-proxy iptables, defaults", id: "iptables", command: kubeProxy("iptables", ""), synced: upstreamSynced(),
			most: 5_000, legacy: true, quiet: 3 * time.Second,
		},
	}
}

func upstreamSynced() *regexp.Regexp {
	return regexp.MustCompile(`"SyncProxyRules complete" ipFamily="IPv4" elapsed="(\S+)"`)
}

func verdict(_, kubeconfig string) (command, env []string, err error) {
	return []string{
		*binary, "run", "--profiling=" + strconv.FormatBool(*profile != ""), "--kubeconfig=" + kubeconfig, "--hostname-override=" + ownNode,
		"--cluster-cidr=" + podRange + "," + measure.ClientRange,
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
	}, nil, nil
}

// kubeProxyConfig leaves the connection tracking settings alone, because a process in a network namespace may not write
// them. Periodic synchronization runs only every hour, so that it does not disturb a measurement. Everything else has
// its default: kube-proxy follows a single change at once, and waits 1 s between synchronizations under a stream of
// changes.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: ` + ownNode + `
clusterCIDR: ` + podRange + `
detectLocalMode: ClusterCIDR
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection:
  kubeconfig: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
iptables: {syncPeriod: 1h}
`

// kubeProxy runs kube-proxy in a mode, with more lines of its configuration file; "": with its defaults.
func kubeProxy(mode, more string) func(string, string) ([]string, []string, error) {
	return func(dir, kubeconfig string) (command, env []string, err error) {
		config := filepath.Join(dir, mode+".yaml")
		if !strings.Contains(more, "nftables:") {
			more += "nftables: {syncPeriod: 1h}\n"
		}
		if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig+more, mode, kubeconfig), 0o644); err != nil {
			return nil, nil, err
		}
		path, err := legacyPath(dir)
		return []string{filepath.Join(*binaries, "kube-proxy"), "--config=" + config, "--v=2"}, []string{"PATH=" + path}, err
	}
}

// legacyPath makes a folder in which iptables is the legacy program, and returns a search path that begins with it. The
// default of the system may be iptables over nf_tables, which is quadratic in user space: comparing with it would be
// unfair.
func legacyPath(dir string) (string, error) {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	multi, err := exec.LookPath("xtables-legacy-multi")
	if err != nil {
		return "", fmt.Errorf("%w; install the package iptables", err)
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(multi, filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	return bin + ":" + os.Getenv("PATH"), nil
}

// running is a proxy that runs.
type running struct {
	kind    *proxyKind
	process *lab.Process
	log     string
	started time.Time
}

// start starts a proxy on a node.
func start(b testing.TB, k *proxyKind, node *lab.Namespace, dir, kubeconfig string) *running {
	b.Helper()
	command, env, err := k.command(dir, kubeconfig)
	lab.Must(b, err)
	r := &running{kind: k, log: filepath.Join(dir, k.id+".log"), started: time.Now()}
	r.process, err = lab.NewProcess(lab.ProcessOptions{Name: k.id, Namespace: node, Dir: dir, Command: command, Env: env})
	lab.Must(b, err)
	return r
}

// waitSynced waits until the log shows the first synchronization. It calls sample repeatedly.
func (r *running) waitSynced(sample func()) (took time.Duration, err error) {
	for end := time.Now().Add(*patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		sample()
		if took, ok := r.syncedAfter(); ok {
			return took, nil
		}
		select {
		case <-r.process.Exited():
			return 0, fmt.Errorf("%s exited before its first synchronization; its log ends:\n%s", r.kind.name, r.process.Log(10))
		default:
		}
	}
	return 0, fmt.Errorf("%s has not synchronized within %s: %w; its log ends:\n%s", r.kind.name, *patience, context.DeadlineExceeded, r.process.Log(10))
}

// syncedAfter returns how long the first synchronization took, if the log shows it.
func (r *running) syncedAfter() (time.Duration, bool) {
	f, err := os.Open(r.log)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := r.kind.synced.FindStringSubmatch(lines.Text()); m != nil {
			took, err := time.ParseDuration(m[1])
			return took, err == nil
		}
	}
	return 0, false
}

// usage returns the resources of the proxy, and the peak memory of its largest child of this moment.
func (r *running) usage() (own measure.Process, largestChild int64, err error) {
	own, err = measure.Inspect(r.process.PID())
	for _, pid := range measure.Children(r.process.PID()) {
		// The child may have exited, or may be a fork that is still a copy of the proxy.
		if child, err := measure.Inspect(pid); err == nil && child.Name != own.Name {
			largestChild = max(largestChild, child.Peak)
		}
	}
	return own, largestChild, err
}
