package config

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultIsValid(t *testing.T) {
	s := Default()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.Complete(); err != nil || s.NodeName == "" {
		t.Fatalf("node name %q, error %v; want the host's name", s.NodeName, err)
	}
}

func TestCompleteNormalizesTheNodeName(t *testing.T) {
	s := Settings{NodeName: " Node-1.Example "}
	if err := s.Complete(); err != nil || s.NodeName != "node-1.example" {
		t.Errorf("got %q, %v; want node-1.example, as kube-proxy has it", s.NodeName, err)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Settings)
		want   string // part of the error; empty: valid
	}{
		{"listeners off", func(s *Settings) { s.HealthzBindAddress, s.MetricsBindAddress = "", "" }, ""},
		{"any address", func(s *Settings) { s.HealthzBindAddress = ":10256" }, ""},
		{"IPv6 listener", func(s *Settings) { s.MetricsBindAddress = "[::1]:10249" }, ""},
		{"listener without port", func(s *Settings) { s.MetricsBindAddress = "127.0.0.1" }, ""},
		{"listener without port or address", func(s *Settings) { s.MetricsBindAddress = "here" }, "--metrics-bind-address=here: must be"},
		{"proxy mode", func(s *Settings) { s.Upstream.Mode = "userspace" }, "--proxy-mode=userspace: must be"},
		{"bind address", func(s *Settings) { s.BindAddress = "here" }, "--bind-address=here: must be"},
		{"negative size", func(s *Settings) { s.Node.Conntrack.Min = -1 }, "--conntrack-min=-1: must not be negative"},
		{"OOM score", func(s *Settings) { s.Node.OOMScoreAdj = 1001 }, "--oom-score-adj=1001: must be between"},
		{"listener by name", func(s *Settings) { s.HealthzBindAddress = "localhost:1" }, `"localhost" is not an IP address`},
		{"port too large", func(s *Settings) { s.HealthzBindAddress = "127.0.0.1:70000" }, `"70000" is not a port`},
		{"two sources", func(s *Settings) { s.Manifests, s.Master = "/x", "https://127.0.0.1" }, "--manifests cannot be combined"},
		{"manifests alone", func(s *Settings) { s.Manifests = "/x" }, ""},
		{"backend", func(s *Settings) { s.Backend = "iptables" }, "--backend=iptables"},
		{"backend ipvs", func(s *Settings) { s.Backend = BackendIPVS }, ""},
		{"no IPVS scheduler", func(s *Settings) { s.Backend, s.IPVS.Scheduler = BackendIPVS, "" }, "--ipvs-scheduler: must not be empty"},
		{"excluded ranges", func(s *Settings) { s.IPVS.ExcludeCIDR = []string{"192.0.2.0/24", "x"} }, `--ipvs-exclude-cidrs: "x"`},
		{"external IPs", func(s *Settings) { s.ExternalIPs = []string{"192.0.2.0/24", "all"} }, `--external-ip-cidrs: "all"`},
		{"external ranges", func(s *Settings) { s.IPVS.ExternalCIDR = []string{"192.0.2.0/24", "x"} }, `--ipvs-external-cidrs: "x"`},
		{"no room", func(s *Settings) { s.Budgets.ServiceElements = 0 }, "--max-service-elements=0: must be at least 1"},
		{"IPVS timeout", func(s *Settings) { s.IPVS.UDPTimeout = -time.Second }, "--ipvs-udp-timeout=-1s"},
		{"IPVS timeout too long", func(s *Settings) { s.IPVS.TCPTimeout = 600 * time.Hour }, "--ipvs-tcp-timeout=600h0m0s"},
		{"IPVS graceful period", func(s *Settings) { s.IPVS.GracefulPeriod = -1 }, "--ipvs-graceful-period"},
		{"negative period", func(s *Settings) { s.MinSyncPeriod = -time.Second }, "--min-sync-period=-1s: must be a time from 0 to 10m"},
		{"long period", func(s *Settings) { s.MinSyncPeriod = 10 * time.Minute }, ""},
		{"longer period", func(s *Settings) { s.MinSyncPeriod = time.Hour }, "--min-sync-period=1h0m0s: must be a time from 0 to 10m"},
		{"pod ranges of both families", func(s *Settings) { s.ClusterCIDRs = []string{"10.0.0.0/8", "fd00::/8"} }, ""},
		{"pod range", func(s *Settings) { s.ClusterCIDRs = []string{"10.0.0.0"} }, `--cluster-cidr: "10.0.0.0"`},
		{"node port words", func(s *Settings) { s.NodePortAddresses = []string{"primary", "localhost", "all", "10.0.0.0/8"} }, ""},
		{"node port word", func(s *Settings) { s.NodePortAddresses = []string{"secondary"} }, `--nodeport-addresses: "secondary"`},
		{"mode", func(s *Settings) { s.DetectLocalMode = "Guess" }, "--detect-local-mode=Guess"},
		{"bridge without name", func(s *Settings) { s.DetectLocalMode = DetectBridgeInterface }, "--pod-bridge-interface: must be set"},
		{"bridge", func(s *Settings) { s.DetectLocalMode, s.BridgeInterface = DetectBridgeInterface, "cni0" }, ""},
		{"prefix with a star", func(s *Settings) { s.DetectLocalMode, s.InterfaceNamePrefix = DetectInterfaceNamePrefix, "veth*" }, "must be the name of an interface"},
		{"prefix too long", func(s *Settings) {
			s.DetectLocalMode, s.InterfaceNamePrefix = DetectInterfaceNamePrefix, "averyverylongname"
		}, "must be the name of an interface"},
		{"addresses in a cluster", func(s *Settings) { s.ManageAddresses = "eth0" }, "--manage-addresses needs --manifests"},
		{"addresses", func(s *Settings) { s.ManageAddresses, s.Manifests = "eth0", "/etc/verdict" }, ""},
		{"addresses on several devices", func(s *Settings) { s.ManageAddresses, s.Manifests = "eth*", "/etc/verdict" }, "must be the name of an interface"},
		{"log format", func(s *Settings) { s.LogFormat = "xml" }, "--log-format=xml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Default()
			tt.change(&s)
			err := s.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want valid", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateNamesEveryFlag(t *testing.T) {
	s := Default()
	s.Backend, s.LogFormat, s.ClusterCIDRs = "x", "y", []string{"z"}
	err := s.Validate()
	for _, flag := range []string{"--backend=x", "--log-format=y", "--cluster-cidr"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v does not name %s", err, flag)
		}
	}
}

func TestCompleteAddsPorts(t *testing.T) {
	s := Settings{HealthzBindAddress: "192.0.2.1", MetricsBindAddress: "::"}
	if err := s.Complete(); err != nil || s.HealthzBindAddress != "192.0.2.1:10256" || s.MetricsBindAddress != "[::]:10249" {
		t.Errorf("got %q, %q, %v", s.HealthzBindAddress, s.MetricsBindAddress, err)
	}
}

// TestModeNodePortAddresses: node ports answer where they answer with kube-proxy.
func TestModeNodePortAddresses(t *testing.T) {
	tests := []struct {
		mode      ProxyMode
		localhost bool
		list      string
		want      string
	}{
		{"", true, "", "primary"},
		{ProxyModeNFTables, true, "", "primary"},
		{ProxyModeIPVS, true, "", "all"},
		{ProxyModeIPTables, true, "", "all localhost"},
		{ProxyModeIPTables, false, "", "all"},
		{ProxyModeIPTables, true, "192.0.2.0/24", "192.0.2.0/24"},
		{ProxyModeIPTables, true, "0.0.0.0/0", "0.0.0.0/0 localhost"},
		{ProxyModeIPTables, true, "127.0.0.0/8", "127.0.0.0/8"},
		{ProxyModeIPTables, false, "192.0.2.0/24 127.0.0.0/8 localhost", "192.0.2.0/24"},
		{ProxyModeNFTables, false, "localhost", "localhost"},
	}
	for _, tt := range tests {
		u := Upstream{Mode: tt.mode, LocalhostNodePorts: tt.localhost}
		got := strings.Join(u.ModeNodePortAddresses(strings.Fields(tt.list)), " ")
		if got != tt.want {
			t.Errorf("mode %q, localhost %t, %q: got %q, want %q", tt.mode, tt.localhost, tt.list, got, tt.want)
		}
		if again := strings.Join(u.ModeNodePortAddresses(strings.Fields(got)), " "); again != got {
			t.Errorf("mode %q, %q: the second time it is %q", tt.mode, got, again)
		}
	}
}

// TestExternalIPsGate: a closed gate has the last word, and other gates have none. Without the gate, externalIPs are
// served, as kube-proxy 1.37 does.
func TestExternalIPsGate(t *testing.T) {
	for _, tt := range []struct {
		gates map[string]bool
		want  int
	}{
		{nil, 2}, {map[string]bool{ExternalIPsGate: true}, 2}, {map[string]bool{ExternalIPsGate: false}, 0},
		{map[string]bool{"AllBeta": false}, 2},
	} {
		s := Default()
		s.Upstream.FeatureGates = tt.gates
		if got := s.ExternalIPRanges(); len(got) != tt.want {
			t.Errorf("%v: external IPs are served in %v, want %d ranges", tt.gates, got, tt.want)
		}
	}
}
