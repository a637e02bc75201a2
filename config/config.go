package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TableOwner says whether the process becomes the owner of its tables.
type TableOwner string

// The values of --table-owner.
const (
	TableOwnerAuto TableOwner = "auto" // if the kernel can
	TableOwnerOff  TableOwner = "off"
)

// OutlierDetection says what happens to endpoints that do not answer.
type OutlierDetection string

// The values of --outlier-detection.
const (
	OutlierOff     OutlierDetection = "off"     // nobody looks
	OutlierObserve OutlierDetection = "observe" // only report
	OutlierEject   OutlierDetection = "eject"   // they get no new connections
)

// Backend selects the engines.
type Backend string

// The backends.
const (
	BackendNFT    Backend = "nft"
	BackendIPVS   Backend = "ipvs"
	BackendHybrid Backend = "hybrid"
)

// DetectLocalMode selects how the proxy recognizes traffic from local pods (KubeProxyConfiguration.detectLocalMode).
type DetectLocalMode string

// The modes. ClusterCIDR without ranges recognizes nothing, like None.
const (
	DetectClusterCIDR         DetectLocalMode = "ClusterCIDR"
	DetectNodeCIDR            DetectLocalMode = "NodeCIDR"
	DetectBridgeInterface     DetectLocalMode = "BridgeInterface"
	DetectInterfaceNamePrefix DetectLocalMode = "InterfaceNamePrefix"
	DetectNone                DetectLocalMode = "None"
)

// Settings is the whole configuration of "verdict run".
type Settings struct {
	Kubeconfig string // empty: in-cluster
	Master     string // overrides the kubeconfig's server
	QPS        float32
	Burst      int
	Manifests  string // a folder with manifests, instead of an API server
	NodeName   string // --hostname-override, or else the name of the host

	Backend Backend
	// DefaultScheduler is the scheduler of Services that name none, unless the backend is ipvs. Empty: random.
	DefaultScheduler string
	Upstream         Upstream
	Node             Node

	IPVS          IPVS
	MinSyncPeriod time.Duration
	// Repair makes Verdict undo the changes of other processes to its tables. Otherwise it only reports them.
	Repair bool
	// TableOwner says whether the kernel is to let no other process change the tables.
	TableOwner TableOwner

	// OutlierDetection says what happens to endpoints that do not answer. MaxEjected is in percent of a pool.
	OutlierDetection OutlierDetection
	MaxEjected       int
	// HealthCheck is the active check of Services of a folder that ask for none. Empty: none.
	HealthCheck string
	// ActiveChecks lets Services have active checks. HealthCheckExclude are ranges whose addresses this node never asks
	// whether they serve.
	ActiveChecks       bool
	HealthCheckExclude []string
	// StateDir is the folder for what outlives the process, but not a restart of the machine. Empty: none.
	StateDir string

	ClusterCIDRs        []string
	DetectLocalMode     DetectLocalMode
	BridgeInterface     string
	InterfaceNamePrefix string
	NodePortAddresses   []string
	MasqueradeAll       bool
	// Fleet: other nodes have the same external addresses, and this node continues the connections of those that are gone.
	Fleet bool
	// ExternalIPs are the ranges in which the externalIPs of Services are served.
	ExternalIPs []string
	// ManageAddresses is the device that gets the external and load balancer IPs of a folder. Empty: none does.
	ManageAddresses string

	BindAddress        string // replaces this node's address of its family; empty or unspecified: no effect
	HealthzBindAddress string // empty: off
	MetricsBindAddress string // empty: off
	// BindAddressHardFail: the process ends if it cannot listen at one of these.
	BindAddressHardFail bool
	Profiling           bool   // serve /debug/pprof there
	UI                  bool   // serve the page /ui
	UIAddress           string // where; empty: on the port of MetricsBindAddress, at loopback addresses
	// CountedFrontends is how many frontends a node may have so that the metrics show connections of service ports.
	CountedFrontends int

	Budgets Budgets

	LogFormat string // text or json
	Verbosity int
}

// Default returns the settings without any flag.
func Default() Settings {
	return Settings{
		QPS:                50,
		Burst:              100,
		Backend:            BackendHybrid,
		Upstream:           Upstream{LocalhostNodePorts: true},
		Node:               defaultNode(),
		IPVS:               IPVS{Scheduler: "rr", Fallback: true, GracefulPeriod: 15 * time.Minute},
		MinSyncPeriod:      10 * time.Millisecond,
		Repair:             true,
		TableOwner:         TableOwnerAuto,
		OutlierDetection:   OutlierObserve,
		MaxEjected:         50,
		ActiveChecks:       true,
		HealthCheckExclude: neverAsked(),
		StateDir:           "/run/verdict",
		DetectLocalMode:    DetectClusterCIDR,
		NodePortAddresses:  []string{NodePortPrimary},
		ExternalIPs:        []string{"0.0.0.0/0", "::/0"},
		HealthzBindAddress: "0.0.0.0:10256",
		MetricsBindAddress: "127.0.0.1:10249",
		CountedFrontends:   2000,
		Budgets:            defaultBudgets(),
		LogFormat:          "text",
	}
}

// neverAsked are loopback and link-local addresses, and those of the metadata servers of clouds that are not link-local:
// Azure, Oracle, Alibaba, and AWS.
func neverAsked() []string {
	return []string{
		"127.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "192.0.0.192/32", "100.100.100.200/32", "::1/128", "fe80::/10",
		"fd00:ec2::/32",
	}
}

// The words that --nodeport-addresses accepts beside CIDRs. They are those of kube-proxy 1.37.
const (
	NodePortPrimary   = "primary"
	NodePortLocalhost = "localhost"
	NodePortAll       = "all"
)

// The ports of kube-proxy.
const (
	HealthzPort = "10256"
	MetricsPort = "10249"
)

// Complete adds default ports to addresses that have none. It sets the node's name if it is empty, and normalizes it.
func (s *Settings) Complete() error {
	s.HealthzBindAddress = withPort(s.HealthzBindAddress, HealthzPort)
	s.MetricsBindAddress = withPort(s.MetricsBindAddress, MetricsPort)
	s.UIAddress = withPort(s.UIAddress, MetricsPort)
	s.NodeName = strings.ToLower(strings.TrimSpace(s.NodeName))
	if s.NodeName != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the name of this host, to find its Node object: %w; set it with --hostname-override", err)
	}
	s.NodeName = strings.ToLower(name)
	return nil
}

// Validate returns all errors in the settings, one line for each flag.
func (s *Settings) Validate() error {
	return errors.Join(
		s.validateSource(),
		s.validateBackend(),
		s.validateTableOwner(),
		s.validateOutliers(),
		s.validateChecks(),
		s.validateDetectLocal(),
		validateAddress("--healthz-bind-address", s.HealthzBindAddress),
		validateAddress("--metrics-bind-address", s.MetricsBindAddress),
		s.validateUI(),
		validateEach("--health-check-exclude-cidrs", s.HealthCheckExclude, isPrefix),
		validateEach("--external-ip-cidrs", s.ExternalIPs, isPrefix),
		validateEach("--nodeport-addresses", s.NodePortAddresses, isNodePortAddress),
		validateEach("--cluster-cidr", s.ClusterCIDRs, isPrefix),
		s.Budgets.validate(),
		s.Upstream.validate(),
		s.Node.validate(),
		s.validateRest(),
	)
}

func (s *Settings) validateSource() error {
	if s.Manifests != "" && (s.Kubeconfig != "" || s.Master != "") {
		return errors.New("--manifests cannot be combined with --kubeconfig or --master: objects come from a folder or from an API server")
	}
	if s.ManageAddresses == "" {
		return nil
	}
	if s.Manifests == "" {
		return errors.New("--manage-addresses needs --manifests: in a cluster, several nodes would have the same address")
	}
	return interfaceFlag("--manage-addresses", s.ManageAddresses)
}

func (s *Settings) validateTableOwner() error {
	if s.TableOwner != TableOwnerAuto && s.TableOwner != TableOwnerOff {
		return fmt.Errorf("--table-owner=%s: must be auto or off", s.TableOwner)
	}
	return nil
}

func (s *Settings) validateOutliers() error {
	switch s.OutlierDetection {
	case OutlierOff, OutlierObserve, OutlierEject:
	default:
		return fmt.Errorf("--outlier-detection=%s: must be off, observe or eject", s.OutlierDetection)
	}
	if s.MaxEjected < 0 || s.MaxEjected > 100 {
		return fmt.Errorf("--max-ejected=%d: must be a percentage from 0 to 100", s.MaxEjected)
	}
	return nil
}

func (s *Settings) validateUI() error {
	if s.UIAddress != "" && !s.UI {
		return fmt.Errorf("--ui-address=%s has no effect without --ui", s.UIAddress)
	}
	return validateAddress("--ui-address", s.UIAddress)
}

// validateChecks leaves the grammar to the daemon.
func (s *Settings) validateChecks() error {
	if s.HealthCheck != "" && s.Manifests == "" {
		return errors.New("--health-check needs --manifests: on a cluster, the kubelet checks endpoints; a Service can ask for " +
			"more with the annotation verdict-proxy.github.io/health-check")
	}
	if s.StateDir != "" && !filepath.IsAbs(s.StateDir) {
		return fmt.Errorf("--state-dir=%s: must be an absolute path, or empty", s.StateDir)
	}
	return nil
}

func (s *Settings) validateBackend() error {
	switch s.Backend {
	case BackendNFT, BackendIPVS, BackendHybrid:
		return s.IPVS.validate()
	}
	return fmt.Errorf("--backend=%s: must be nft, ipvs or hybrid", s.Backend)
}

func (s *Settings) validateDetectLocal() error {
	switch s.DetectLocalMode {
	case DetectClusterCIDR, DetectNodeCIDR, DetectNone:
		return nil
	case DetectBridgeInterface:
		return interfaceFlag("--pod-bridge-interface", s.BridgeInterface)
	case DetectInterfaceNamePrefix:
		return interfaceFlag("--pod-interface-name-prefix", s.InterfaceNamePrefix)
	}
	return fmt.Errorf("--detect-local-mode=%s: must be ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix or None", s.DetectLocalMode)
}

// maxInterfaceName is IFNAMSIZ without the terminating zero.
const maxInterfaceName = 15

func interfaceFlag(flag, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("%s: must be set with this --detect-local-mode", flag)
	case len(value) > maxInterfaceName || strings.ContainsAny(value, "*/ \"\\"):
		return fmt.Errorf("%s=%s: must be the name of an interface or the beginning of one", flag, value)
	}
	return nil
}

// maxMinSyncPeriod is below the minute for which a change may wait until /healthz fails.
const maxMinSyncPeriod = 30 * time.Second

func (s *Settings) validateRest() error {
	if s.CountedFrontends < 0 {
		return fmt.Errorf("--max-counted-frontends=%d: must not be negative", s.CountedFrontends)
	}
	if s.MinSyncPeriod < 0 || s.MinSyncPeriod > maxMinSyncPeriod {
		return fmt.Errorf("--min-sync-period=%s: must be a time from 0 to %s, such as 10ms", s.MinSyncPeriod, maxMinSyncPeriod)
	}
	if _, err := netip.ParseAddr(s.BindAddress); s.BindAddress != "" && err != nil {
		return fmt.Errorf("--bind-address=%s: must be an IP address", s.BindAddress)
	}
	if s.LogFormat != "text" && s.LogFormat != "json" {
		return fmt.Errorf("--log-format=%s: must be text or json", s.LogFormat)
	}
	return nil
}

func validateAddress(flag, value string) error {
	if value == "" {
		return nil
	}
	if _, err := netip.ParseAddr(value); err == nil {
		return nil // Complete adds the port
	}
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("%s=%s: must be ADDRESS:PORT, or empty, which turns the listener off", flag, value)
	}
	if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return fmt.Errorf("%s=%s: %q is not an IP address", flag, value, host)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%s=%s: %q is not a port", flag, value, port)
	}
	return nil
}

func validateEach(flag string, values []string, ok func(string) bool) error {
	var errs []error
	for _, v := range values {
		if !ok(v) {
			errs = append(errs, fmt.Errorf("%s: %q is not valid", flag, v))
		}
	}
	return errors.Join(errs...)
}

func isPrefix(v string) bool {
	_, err := netip.ParsePrefix(v)
	return err == nil
}

func isNodePortAddress(v string) bool {
	return v == NodePortPrimary || v == NodePortLocalhost || v == NodePortAll || isPrefix(v)
}

// Prefixes parses ranges. Validate has accepted them before.
func Prefixes(values []string) []netip.Prefix {
	var out []netip.Prefix
	for _, v := range values {
		if p, err := netip.ParsePrefix(v); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// IPVS holds the settings of the IPVS engine (backends ipvs and hybrid).
type IPVS struct {
	Scheduler   string   // the scheduler of Services in IPVS that name none
	Fallback    bool     // serve Services by nft when the kernel has no IPVS, instead of failing at the start
	ExcludeCIDR []string // ranges in which IPVS belongs to other software
	// ExternalCIDR are the ranges in which IPVS may serve external and load balancer IPs, which then are local addresses.
	ExternalCIDR []string
	StrictARP    bool
	// The idle timeouts of connections. 0 leaves the value of the kernel unchanged.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
	// GracefulPeriod is how long connections to a removed endpoint may continue.
	GracefulPeriod time.Duration
	// SyncDaemon are the roles and the device of the synchronization daemons, as wire.ParseDaemons reads them. Empty: none.
	SyncDaemon string
}

func (i *IPVS) validate() error {
	errs := []error{
		validateEach("--ipvs-exclude-cidrs", i.ExcludeCIDR, isPrefix),
		validateEach("--ipvs-external-cidrs", i.ExternalCIDR, isPrefix),
	}
	if i.Scheduler == "" {
		errs = append(errs, errors.New("--ipvs-scheduler: must not be empty"))
	}
	errs = append(errs,
		validateTimeout("--ipvs-tcp-timeout", i.TCPTimeout),
		validateTimeout("--ipvs-tcpfin-timeout", i.TCPFinTimeout),
		validateTimeout("--ipvs-udp-timeout", i.UDPTimeout),
		validateTimeout("--ipvs-graceful-period", i.GracefulPeriod),
	)
	return errors.Join(errs...)
}

// maxTimeout is the longest time that the kernel can count in jiffies (signed 32 bits at 1000 Hz).
const maxTimeout = 24 * 24 * time.Hour

func validateTimeout(flag string, d time.Duration) error {
	if d < 0 || d > maxTimeout {
		return fmt.Errorf("%s=%s: must be between 0 and %s", flag, d, maxTimeout)
	}
	return nil
}
