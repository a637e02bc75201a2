package kubeproxyconfig

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// TestEveryFieldIsInTheTable walks the type of upstream, so a field that upstream adds fails here until the table says
// what Verdict makes of it.
func TestEveryFieldIsInTheTable(t *testing.T) {
	var c v1alpha1.KubeProxyConfiguration
	listed := map[string]bool{}
	for _, f := range Fields() {
		if listed[f.Path] {
			t.Errorf("%s is in the table twice", f.Path)
		}
		listed[f.Path] = true
		if (f.Flag == "") == (f.Why == "") {
			t.Errorf("%s must have either a flag or a reason", f.Path)
		}
	}
	found := leaves(&c)
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if !listed[path] {
			t.Errorf("the table does not have %s", path)
		}
		delete(listed, path)
	}
	for _, f := range Fields() {
		if listed[f.Path] != f.Gone {
			t.Errorf("%s: upstream has it: %v, and the table says that it is gone: %v", f.Path, !listed[f.Path], f.Gone)
		}
	}
}

// readConfigMap returns the content of config.conf in a ConfigMap of kubeadm.
func readConfigMap(t *testing.T, name string) *v1alpha1.KubeProxyConfiguration {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		t.Fatal(err)
	}
	c, _, err := Parse([]byte(m.Data["config.conf"]))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigMapsOfKubeadm(t *testing.T) {
	common := []string{
		"kubeconfig=/var/lib/kube-proxy/kubeconfig.conf", "bind-address=0.0.0.0", "cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
	}
	tests := map[string][]string{
		"kubeadm-1.37-configmap.yaml": append([]string{"proxy-mode=iptables"}, common...),
		"kubeadm-1.37-ipvs-configmap.yaml": append([]string{
			"proxy-mode=ipvs", "default-scheduler=lc", "ipvs-exclude-cidrs=192.0.2.0/24,2001:db8::/64", "ipvs-strict-arp=true",
		}, common...),
	}
	for name, want := range tests {
		c := readConfigMap(t, name)
		var got []string
		for _, v := range Values(c) {
			got = append(got, v.Flag+"="+v.Text)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s sets\n%q, want\n%q", name, got, want)
		}
		if unused := Unused(c); len(unused) > 0 {
			t.Errorf("%s: without meaning: %q", name, unused)
		}
	}
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// TestWrongFields: the error names the path of the wrong field.
func TestWrongFields(t *testing.T) {
	tests := map[string]string{
		header + "mode: ipvs\nmode: ipvs":                             `key "mode" already set`,
		header + "conntrack: {min: many}":                             "conntrack.min",
		header + "conntrack: {min: 1, tcpCloseWaitTimeout: 1 hour}":   "field conntrack.tcpCloseWaitTimeout",
		header + "logging: {flushFrequency: soon}":                    "field logging.flushFrequency",
		header + "logging: {options: {json: {infoBufferSize: many}}}": "field logging.options.json.infoBufferSize",
		header + "nodePortAddresses: primary":                         "nodePortAddresses",
		header + "iptables: true":                                     "iptables",
		"- 1":                                                         "must hold the fields",
		"kind: KubeProxyConfiguration":                                `apiVersion is ""`,
		"apiVersion: v1\nkind: Pod":                                   `kind is "Pod"`,
		header + "mode: [":                                            "yaml",
		strings.Replace(header, "v1a", "v9a", 1):                      "v9alpha1",
	}
	for text, want := range tests {
		_, _, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", strings.TrimPrefix(text, header), err, want)
		}
	}
}

// TestUnused: what has no meaning is named with its value and the reason.
func TestUnused(t *testing.T) {
	c, _, err := Parse([]byte(header + `mode: nftables
featureGates: {B: false, A: true}
iptables: {masqueradeBit: 0, masqueradeAll: true, minSyncPeriod: 1s}
nftables: {masqueradeAll: true, minSyncPeriod: 2s}
ipvs: {strictARP: true, excludeCIDRs: []}
winkernel: {enableDSR: true}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s}
logging: {flushFrequency: 5s, options: {json: {infoBufferSize: "0"}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"logging.flushFrequency=5s (", "iptables.masqueradeBit=0 (",
		"iptables.masqueradeAll=true (it belongs to mode iptables and ipvs)", "iptables.minSyncPeriod=1s (it belongs to",
		"ipvs.strictARP=true (it belongs to mode ipvs)", "winkernel.enableDSR=true (it is for Windows)",
	}
	got := Unused(c)
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	var values []string
	for _, v := range Values(c) {
		values = append(values, v.Flag+"="+v.Text)
	}
	if got, want := strings.Join(values, " "),
		"feature-gates=A=true,B=false proxy-mode=nftables masquerade-all=true min-sync-period=2s conntrack-max-per-core=0 conntrack-tcp-timeout-established=0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStrangeFields: a field that kube-proxy does not have stops nothing, as in kube-proxy.
func TestStrangeFields(t *testing.T) {
	c, strange, err := Parse([]byte(header + `mode: ipvs
ipvs: {strictArp: true, masqueradeAll: true, scheduler: lc}
conntrack: {max: 0, maxPerCor: 1, min: 5}
udpIdleTimeout: 250ms
resourceContainer: /kube-proxy
winkernels: {a: {b: 1}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.IPVS.Scheduler != "lc" || *c.Conntrack.Min != 5 {
		t.Errorf("the other fields are lost: %+v", c)
	}
	want := "conntrack.max conntrack.maxPerCor? ipvs.masqueradeAll ipvs.strictArp? resourceContainer udpIdleTimeout winkernels?"
	var got []string
	for _, f := range strange {
		if f.Why == "" {
			f.Path += "?"
		}
		got = append(got, f.Path)
	}
	slices.Sort(got)
	if strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzParse: nothing panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "conntrack: {min: 1}"))
	f.Add([]byte(header + "logging: {vmodule: [{filePattern: x, verbosity: 1}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Parse(data)
		if err != nil {
			return
		}
		Unused(c)
		Values(c)
	})
}
