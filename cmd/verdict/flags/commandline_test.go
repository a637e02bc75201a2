package flags

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
)

const testHeader = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// resolved returns the settings for a configuration file and a command line.
func resolved(t *testing.T, file string, args ...string) *CommandLine {
	t.Helper()
	c := New(pflag.NewFlagSet("test", pflag.ContinueOnError))
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.conf")
		if !strings.Contains(file, "apiVersion:") {
			file = testHeader + file
		}
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config="+path)
	}
	if err := c.flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := c.Resolve(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPrecedence: the command line wins over the file, the file over the defaults of the mode.
func TestPrecedence(t *testing.T) {
	liberal, _ := nodesetup.ReadSysctl("net.netfilter.nf_conntrack_tcp_be_liberal") // of the machine
	drops := fmt.Sprint("drop-invalid=", liberal != "1")
	tests := []struct {
		name, file, args string
		want             string // flags with their values
	}{
		{"nothing", "", "", "nodeport-addresses=primary default-scheduler= min-sync-period=10ms proxy-mode="},
		{"a file without mode", "mode: ''", "", "nodeport-addresses=all,localhost proxy-mode=iptables kube-api-qps=50"},
		{"iptables", "mode: iptables", "", "nodeport-addresses=all,localhost " + drops},
		{"iptables, liberal", "mode: iptables\nconntrack: {tcpBeLiberal: true}", "", "drop-invalid=false"},
		{"iptables in a fleet", "mode: iptables", "--fleet", "drop-invalid=false"},
		{"iptables, in a fleet by flag", "mode: iptables", "--fleet --drop-invalid", "drop-invalid=true"},
		{"iptables, not by flag", "mode: iptables", "--drop-invalid=false", "drop-invalid=false"},
		{"no localhost", "mode: iptables\niptables: {localhostNodePorts: false}", "", "nodeport-addresses=all"},
		{"addresses", "mode: iptables\nnodePortAddresses: [192.0.2.0/24]", "", "nodeport-addresses=192.0.2.0/24"},
		{"addresses by flag", "mode: iptables\nnodePortAddresses: [192.0.2.0/24]", "--nodeport-addresses=primary", "nodeport-addresses=primary"},
		{"nftables", "mode: nftables", "", "nodeport-addresses=primary drop-invalid=false"},
		{"mode by flag", "mode: iptables\nnftables: {minSyncPeriod: 3s}", "--proxy-mode=nftables", "nodeport-addresses=primary min-sync-period=3s"},
		{"mode without a file", "", "--proxy-mode=ipvs --ipvs-scheduler=sed", "default-scheduler=sed nodeport-addresses=all backend=hybrid"},
		{"ipvs", "mode: ipvs", "", "default-scheduler=rr nodeport-addresses=all backend=hybrid"},
		{"ipvs with a scheduler", "mode: ipvs\nipvs: {scheduler: lc}", "", "default-scheduler=lc"},
		{"scheduler by flag", "mode: ipvs\nipvs: {scheduler: lc}", "--default-scheduler=random", "default-scheduler=random"},
		{"another mode's scheduler", "mode: nftables\nipvs: {scheduler: lc}", "", "default-scheduler="},
		{"lists are replaced", "clusterCIDR: 10.0.0.0/8", "--cluster-cidr=192.0.2.0/24", "cluster-cidr=192.0.2.0/24"},
		{"a folder", "clientConnection: {kubeconfig: /x}", "--manifests=/y", "kubeconfig= manifests=/y"},
		{"zero is a value of a pointer", "conntrack: {maxPerCore: 0, min: null}", "", "conntrack-max-per-core=0 conntrack-min=131072"},
		{"IPv6", "bindAddress: '::'", "", "healthz-bind-address=[::]:10256 metrics-bind-address=[::1]:10249"},
		{"IPv6 with an address", "bindAddress: '::'\nhealthzBindAddress: 127.0.0.1", "", "healthz-bind-address=127.0.0.1:10256"},
		{"port 0", "", "--healthz-port=0 --metrics-port=0", "healthz-bind-address= metrics-bind-address="},
		{"port of an address", "", "--healthz-bind-address=192.0.2.1 --healthz-port=99", "healthz-bind-address=192.0.2.1:99"},
		{"port beside a port", "", "--healthz-port=99", "healthz-bind-address=0.0.0.0:10256"},
		{"log format", "", "--logging-format=json", "log-format=json"},
		{"sync period", "", "--iptables-min-sync-period=3s --ipvs-min-sync-period=4s", "min-sync-period=3s"},
		{"gates", "featureGates: {B: true, A: false}", "", "feature-gates=A=false,B=true"},
		{"gates of both", "featureGates: {A: false, B: true, C: true}", "--feature-gates=A=true,B=0 --feature-gates=D=T", "feature-gates=A=false,B=false,C=true,D=true"},
		{"sync period of ipvs", "mode: ipvs", "--iptables-min-sync-period=3s --ipvs-min-sync-period=4s", "min-sync-period=4s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := resolved(t, tt.file, strings.Fields(tt.args)...)
			for _, want := range strings.Fields(tt.want) {
				flag, value, _ := strings.Cut(want, "=")
				if got := valueOf(c.flags.Lookup(flag)); got != value {
					t.Errorf("--%s is %q, want %q", flag, got, value)
				}
			}
		})
	}
}

// TestStrangeFields: files and flags of old installations start. The warning names what has no effect; --strict-config refuses
// only what no version of kube-proxy had.
func TestStrangeFields(t *testing.T) {
	const eks = "mode: iptables\niptables: {syncPeriod: 2m, minSyncPeriod: 1m}\nconntrack: {max: 0}\nresourceContainer: ''\nudpIdleTimeout: 250ms\n"
	var log strings.Builder
	c := resolved(t, eks+"ipvs: {strictArp: true}", "--udp-timeout=250ms", "--resource-container=/kube-proxy", "--conntrack-max=0",
		"--proxy-port-range=", "--skip-headers", "--stderrthreshold=2")
	c.Warn(slog.New(slog.NewTextHandler(&log, nil)))
	if c.Settings.MinSyncPeriod != time.Minute {
		t.Errorf("minSyncPeriod is %s", c.Settings.MinSyncPeriod)
	}
	for _, want := range []string{"conntrack.max (", "resourceContainer (", "udpIdleTimeout (it was for the mode userspace)",
		"ipvs.strictArp (no version of kube-proxy has it)", "--udp-timeout", "--resource-container", "--conntrack-max", "--skip-headers"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	resolved(t, eks, "--strict-config")
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(path, []byte(testHeader+eks+"ipvs: {strictArp: true}"), 0o644); err != nil {
		t.Fatal(err)
	}
	strict := New(pflag.NewFlagSet("test", pflag.ContinueOnError))
	strict.File, strict.Strict = path, true
	if err := strict.Resolve(); err == nil || !strings.Contains(err.Error(), "no version of kube-proxy has the field ipvs.strictArp") {
		t.Errorf("--strict-config: %v", err)
	}
}

// TestInstallations: what kubespray, the guide of EKS and k3s give kube-proxy starts Verdict, and the log names what it ignores and no more.
func TestInstallations(t *testing.T) {
	const syncs = "configSyncPeriod=15m0s (watches deliver each change of the cluster, so nothing is read again from time to time); " +
		"iptables.masqueradeBit=14 (Verdict marks no packets); iptables.syncPeriod=30s (RESYNC); ipvs.syncPeriod=30s (RESYNC)"
	const ignored = "clientConnection.contentType=application/vnd.kubernetes.protobuf (Verdict sends protobuf); " + syncs
	common := "kube-api-qps=5 kube-api-burst=10 conntrack-max-per-core=32768 conntrack-min=131072 conntrack-tcp-timeout-established=24h0m0s " +
		"healthz-bind-address=0.0.0.0:10256 proxy-mode=ipvs default-scheduler=rr nodeport-addresses=all backend=hybrid "
	tests := []struct{ name, file, key, want, warns string }{
		{"kubespray", "kubespray-configmap.yaml", "config.conf", common + "kubeconfig=/var/lib/kube-proxy/kubeconfig.conf hostname-override=node-2 " +
			"cluster-cidr=10.244.0.0/16,fd00:10:244::/56 metrics-bind-address=127.0.0.1:10249 oom-score-adj=-999", ignored},
		{"EKS", "eks-configmap.yaml", "config", common + "kubeconfig=/var/lib/kube-proxy/kubeconfig hostname-override=node-2 " +
			"cluster-cidr= metrics-bind-address=0.0.0.0:10249 oom-score-adj=-998", ignored + "; udpIdleTimeout (it was for the mode userspace)"},
		{"k3s", "k3s-flags.txt", "", "proxy-mode=iptables healthz-bind-address=127.0.0.1:10256 cluster-cidr=10.42.0.0/16 hostname-override=node-1 " +
			"conntrack-max-per-core=0 conntrack-tcp-timeout-established=0s nodeport-addresses=all,localhost kubeconfig=/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := os.ReadFile("../kubeproxyconfig/testdata/" + tt.file)
			if err != nil {
				t.Fatal(err)
			}
			var c *CommandLine
			if tt.key == "" {
				c = resolved(t, "", strings.Split(strings.TrimSpace(string(text)), "\n")[1:]...)
			}
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				var m corev1.ConfigMap
				if tt.key != "" && yaml.UnmarshalStrict([]byte(document), &m) == nil && m.Data[tt.key] != "" {
					c = resolved(t, m.Data[tt.key], "--hostname-override=node-2", "--strict-config")
				}
			}
			for _, want := range strings.Fields(tt.want) {
				flag, value, _ := strings.Cut(want, "=")
				if got := valueOf(c.flags.Lookup(flag)); got != value {
					t.Errorf("--%s is %q, want %q", flag, got, value)
				}
			}
			var log strings.Builder
			c.Warn(slog.New(slog.NewTextHandler(&log, nil)))
			_, fields, _ := strings.Cut(strings.TrimSuffix(log.String(), "\"\n"), "fields=\"")
			want := strings.ReplaceAll(tt.warns, "RESYNC", "the kernel reports each change of the tables to Verdict, so there is no periodic sync")
			if fields != want || strings.Count(log.String(), "\n") != min(len(want), 1) {
				t.Errorf("the log names\n%s\nwant\n%s", log.String(), want)
			}
		})
	}
}

// TestEveryFieldSetsAFlag: the flags in the table of fields exist.
func TestEveryFieldSetsAFlag(t *testing.T) {
	c := New(pflag.NewFlagSet("test", pflag.ContinueOnError))
	for _, f := range kubeproxyconfig.Fields() {
		if f.Flag != "" && c.flags.Lookup(f.Flag) == nil {
			t.Errorf("%s sets --%s, which does not exist", f.Path, f.Flag)
		}
	}
}

// TestWriteConfigTo: who reads what was written gets the same settings, except for what the comments say.
func TestWriteConfigTo(t *testing.T) {
	tests := map[string]string{
		"--cluster-cidr=10.0.0.0/8,fd00::/8 --masquerade-all --min-sync-period=3s --oom-score-adj=7 --proxy-mode=nftables": "",
		"--proxy-mode=ipvs --ipvs-scheduler=lc --ipvs-exclude-cidrs=192.0.2.0/24 --ipvs-strict-arp --ipvs-tcp-timeout=2m":  "#   --ipvs-scheduler=lc\n",
		"--proxy-mode=iptables --conntrack-min=5 --conntrack-udp-timeout=3s --bind-address=192.0.2.1 -v=3":                 "",
		"--backend=nft --healthz-bind-address= --log-format=json --detect-local-mode=None":                                 "#   --backend=nft\n#   --healthz-bind-address=\n",
		"--proxy-mode=nftables --feature-gates=AllowServiceExternalIPs=false,A=true":                                       "",
		"--proxy-mode=nftables --min-sync-period=0":                                                                        "#   --min-sync-period=0s\n",
	}
	for args, comments := range tests {
		c := resolved(t, "logging: {flushFrequency: 5s}", strings.Fields(args)...)
		c.WriteTo = filepath.Join(t.TempDir(), "out")
		if err := c.Write(); err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		data, err := os.ReadFile(c.WriteTo)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "# Further flags of verdict run:\n")
		if diff := cmp.Diff(comments, rest); diff != "" {
			t.Errorf("%s: comments (-want +got)\n%s", args, diff)
		}
		if comments != "" {
			continue
		}
		read := New(pflag.NewFlagSet("test", pflag.ContinueOnError))
		if err := read.flags.Parse([]string{"--config=" + c.WriteTo}); err != nil {
			t.Fatal(err)
		}
		if err := read.Resolve(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if diff := cmp.Diff(c.Settings, read.Settings); diff != "" {
			t.Errorf("%s: (-written +read)\n%s", args, diff)
		}
		if read.config.Logging.FlushFrequency.Duration.Seconds() != 5 {
			t.Errorf("%s: a field without meaning is lost", args)
		}
	}
}
