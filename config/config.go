package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
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

// FastPath says which connections take the fast path of the kernel.
type FastPath string

// The values of --fast-path.
const (
	FastPathOff      FastPath = "off"
	FastPathServices FastPath = "services" // those that Verdict has translated
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

// Settings is the whole configuration of "verdict run". The tags of its types are the flags:
//
//	flag   the name; short: the letter
//	usage  what the flag does; <VALUE> is what help calls its value
//	in     the group, for commands that have some of the flags
//	live   a change of the configuration file takes effect without a restart
//	must   what the value has to be: a word of check, or one of several values
type Settings struct {
	Kubeconfig string  `flag:"kubeconfig" usage:"<FILE> with the access to the API server; without it and --manifests, the service account of the pod"`
	Master     string  `flag:"master" usage:"<URL> of the API server; overrides the kubeconfig"`
	QPS        float32 `flag:"kube-api-qps" usage:"<NUMBER> of requests per second to the API server"`
	Burst      int     `flag:"kube-api-burst" usage:"<NUMBER> of requests to the API server in one burst"`
	Manifests  string  `flag:"manifests" usage:"read objects from the YAML and JSON files in <DIR> instead of an API server"`
	NodeName   string  `flag:"hostname-override" usage:"<NAME> of this node's Node object; empty: the name of the host"`

	Backend          Backend `flag:"backend" must:"nft|ipvs|hybrid" usage:"<ENGINE>: nft, ipvs, or hybrid, which is nft, and IPVS for Services that need it"`
	DefaultScheduler string  `flag:"default-scheduler" usage:"<NAME> of the scheduler of Services that name none, with --backend=hybrid and nft; empty: random"`
	Upstream         Upstream
	Node             Node
	IPVS             IPVS
	MinSyncPeriod    time.Duration `flag:"min-sync-period" live:"yes" must:"pause" usage:"<TIME> for which a stream of changes is gathered into one pass, such as 10ms, at most 10m; a change that arrives while the proxy is idle is applied at once"`
	Repair           bool          `flag:"repair" usage:"undo what other processes do to the tables of Verdict; false: only report it"`
	TableOwner       TableOwner    `flag:"table-owner" must:"auto|off" usage:"auto: on Linux 6.9 and newer, the kernel lets no other process change the tables; off: any process can"`

	OutlierDetection   OutlierDetection `flag:"outlier-detection" must:"off|observe|eject" usage:"<MODE>: what happens to endpoints that do not answer: off, observe (only report), or eject (they get no new connections)"`
	MaxEjected         int              `flag:"max-ejected" must:"percent" usage:"<PERCENT> of the endpoints of a service port that may be ejected; the last one never is"`
	HealthCheck        string           `flag:"health-check" usage:"with --manifests: the <CHECK> of Services without the annotation, such as \"tcp\" or \"http path=/healthz interval=5s\"; empty: none"`
	ActiveChecks       bool             `flag:"active-checks" usage:"let Services have active checks by the annotation verdict-proxy.github.io/health-check; =false: this node makes none"`
	HealthCheckExclude []string         `flag:"health-check-exclude-cidrs" must:"cidrs" usage:"<CIDRS> whose addresses this node never asks whether they serve; others that it never asks are its own, those of API servers, and cluster IPs"`
	// StateDir is for what outlives the process, but not a restart of the machine.
	StateDir string `flag:"state-dir" usage:"<FOLDER> in which a restart finds which endpoints had failed, and the last good manifests; empty: a restart takes all endpoints for good"`

	ClusterCIDRs        []string        `flag:"cluster-cidr" live:"yes" must:"cidrs" usage:"pod <RANGES> of the cluster, both families, separated by commas; traffic from other sources to cluster IPs is masqueraded"`
	DetectLocalMode     DetectLocalMode `flag:"detect-local-mode" live:"yes" must:"ClusterCIDR|NodeCIDR|BridgeInterface|InterfaceNamePrefix|None" usage:"<MODE> of recognizing traffic from local pods: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix or None"`
	BridgeInterface     string          `flag:"pod-bridge-interface" live:"yes" usage:"<NAME> of the bridge of the pods, with --detect-local-mode=BridgeInterface"`
	InterfaceNamePrefix string          `flag:"pod-interface-name-prefix" live:"yes" usage:"<PREFIX> of the interfaces of pods, with --detect-local-mode=InterfaceNamePrefix"`
	NodePortAddresses   []string        `flag:"nodeport-addresses" live:"yes" must:"places" usage:"addresses of node ports: a <LIST> of CIDRs and the words primary, localhost, all"`
	MasqueradeAll       bool            `flag:"masquerade-all" live:"yes" usage:"masquerade all traffic to cluster IPs"`
	DropInvalid         bool            `flag:"drop-invalid" live:"yes" usage:"drop packets of pods that connection tracking calls invalid, which otherwise pass without translation. With --proxy-mode=iptables, it is on unless the sysctl nf_conntrack_tcp_be_liberal is 1"`
	Fleet               bool            `flag:"fleet" usage:"other nodes have the same external addresses; continue the TCP connections of those that are gone"`
	FastPath            FastPath        `flag:"fast-path" live:"yes" must:"off|services" usage:"<WHICH> connections leave the rules of this node, and only their first packets pass them: off, or services, which are those that Verdict has translated"`
	FastPathAfter       int             `flag:"fast-path-after" live:"yes" must:"positive" usage:"<NUMBER> of packets after which a connection takes the fast path"`
	FastPathDevices     []string        `flag:"fast-path-devices" live:"yes" must:"globs" usage:"<NAMES> of the network devices of the fast path, separated by commas, each with or without * and ?; empty: all but lo and the ports of bridges and bonds"`
	ExternalIPs         []string        `flag:"external-ip-cidrs" must:"cidrs" usage:"<RANGES> in which externalIPs of Services are served; empty: nowhere"`
	LoadBalancerCIDRs   []string        `flag:"load-balancer-cidrs" live:"yes" must:"cidrs" usage:"<RANGES> that belong to Services alone: there, other ports of external and load balancer IPs refuse, and packets to addresses of nobody are dropped"`
	ManageAddresses     string          `flag:"manage-addresses" usage:"with --manifests: <DEVICE> that gets the external and load balancer IPs of Services while one of their endpoints is good, and announces them; empty: none does"`

	// BindAddress may be unspecified, which has no effect.
	BindAddress         string `flag:"bind-address" live:"yes" must:"address" usage:"<ADDRESS> of this node, instead of the address of the same family in the Node object; Verdict does not listen there"`
	HealthzBindAddress  string `flag:"healthz-bind-address" must:"listener" usage:"<ADDRESS:PORT> of /healthz, /livez and /readyz; empty: off"`
	ProbeBindAddress    string `flag:"probe-bind-address" must:"listener" usage:"<ADDRESS:PORT> that answers like --healthz-bind-address, unless that one does already: a place for probes that a configuration file does not move; empty: none"`
	MetricsBindAddress  string `flag:"metrics-bind-address" must:"listener" usage:"<ADDRESS:PORT> of /metrics, /proxyMode and /configz; empty: off"`
	BindAddressHardFail bool   `flag:"bind-address-hard-fail" usage:"end if Verdict cannot listen for health checks or metrics; without, it logs an error and tries again"`
	Profiling           bool   `flag:"profiling" usage:"serve /debug/pprof on --metrics-bind-address"`
	UI                  bool   `flag:"ui" usage:"serve a read-only page at /ui: Services, endpoints, connection rates, passes, explanations. It is on the port of --metrics-bind-address and answers only at loopback addresses"`
	UIAddress           string `flag:"ui-address" must:"listener" usage:"with --ui: serve the page at this <ADDRESS:PORT> instead; whoever can connect there can read it"`
	CountedFrontends    int    `flag:"max-counted-frontends" must:"natural" usage:"<NUMBER> of frontends up to which /metrics shows the connections of each service port; 0: never"`

	LeavingTaints []string `flag:"leaving-taints" usage:"<KEYS> of taints, separated by commas: a Node that has one is about to go, and /healthz answers 503"`

	Budgets Budgets

	LogFormat string `flag:"log-format" must:"text|json" in:"log" usage:"<FORMAT> of the log: text or json"`
	Verbosity int    `flag:"v" live:"yes" short:"v" in:"log" usage:"verbosity <LEVEL> of the log; from 4 on, every pass is logged"`
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
		FastPath:           FastPathOff,
		FastPathAfter:      20,
		NodePortAddresses:  []string{NodePortPrimary},
		ExternalIPs:        []string{"0.0.0.0/0", "::/0"},
		HealthzBindAddress: "0.0.0.0:10256",
		MetricsBindAddress: "127.0.0.1:10249",
		CountedFrontends:   2000,
		LeavingTaints:      leavingTaints(),
		Budgets:            defaultBudgets(),
		LogFormat:          "text",
	}
}

// AsksForIPVS reports whether a flag asks for IPVS. With --backend=hybrid, nobody may need it: a Service that does gets a Problem.
func (s *Settings) AsksForIPVS() bool {
	byNFT := []string{"", "random", "sh", "mh"}
	return s.Backend == BackendIPVS || !slices.Contains(byNFT, s.DefaultScheduler) || s.IPVS.SyncDaemon != "" || s.IPVS.StrictARP ||
		len(s.IPVS.ExternalCIDR) > 0
}

// neverAsked are loopback and link-local addresses, and those of the metadata servers of clouds that are not link-local:
// Azure, Oracle, Alibaba, and over IPv6 AWS, Google, Oracle, Scaleway, Akamai (Linode) and Alibaba.
func neverAsked() []string {
	return []string{
		"127.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "192.0.0.192/32", "100.100.100.200/32", "::1/128", "fe80::/10",
		"fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128", "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128",
	}
}

// TaintUnschedulable is on each Node that somebody has cordoned.
const TaintUnschedulable = "node.kubernetes.io/unschedulable"

// leavingTaints are the taints by which others say that they end a node. Left out are those that say that they may
// (DeletionCandidateOfClusterAutoscaler, aws-node-termination-handler/rebalance-recommendation).
func leavingTaints() []string {
	return []string{
		"ToBeDeletedByClusterAutoscaler",                    // cluster-autoscaler/utils/taints
		"karpenter.sh/disrupted", "karpenter.sh/disruption", // sigs.k8s.io/karpenter/pkg/apis/v1, and before v1
		"aws-node-termination-handler/spot-itn",                  // aws/aws-node-termination-handler, pkg/node
		"aws-node-termination-handler/scheduled-maintenance",     // the same
		"aws-node-termination-handler/asg-lifecycle-termination", // the same
		"cloud.google.com/impending-node-termination",            // of GKE; cluster-autoscaler/utils/taints
		"remediator.kubernetes.azure.com/unschedulable",          // of AKS: learn.microsoft.com/azure/aks/node-auto-drain
		"node.cloudprovider.kubernetes.io/shutdown",              // k8s.io/cloud-provider/api
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
	s.ProbeBindAddress = withPort(s.ProbeBindAddress, HealthzPort)
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
		check(reflect.ValueOf(s).Elem()),
		s.validateSource(),
		s.validateChecks(),
		s.validateDetectLocal(),
		s.validateUI(),
	)
}

// check returns what is wrong in settings according to their tags.
func check(settings reflect.Value) error {
	var errs []error
	for field, value := range settings.Fields() {
		if value.Kind() == reflect.Struct {
			errs = append(errs, check(value))
			continue
		}
		errs = append(errs, checkOne("--"+field.Tag.Get("flag"), field.Tag.Get("must"), value))
	}
	return errors.Join(errs...)
}

// checkOne returns what is wrong with the value of a flag.
func checkOne(flag, must string, value reflect.Value) error {
	switch must {
	case "":
		return nil
	case "cidrs":
		return validateEach(flag, value.Interface().([]string), isPrefix, aCIDR)
	case "places":
		return validateEach(flag, value.Interface().([]string), isNodePortAddress, "primary, localhost, all or "+aCIDR)
	case "globs":
		return validateEach(flag, value.Interface().([]string), isGlob, "the name of a network device, with or without * and ?")
	case "listener":
		return validateAddress(flag, value.String())
	case "address":
		if _, err := netip.ParseAddr(value.String()); !value.IsZero() && err != nil {
			return fmt.Errorf("%s=%s: must be an IP address", flag, value)
		}
		return nil
	case "set":
		if value.IsZero() {
			return fmt.Errorf("%s: must not be empty", flag)
		}
		return nil
	}
	if !value.CanInt() {
		return oneOf(flag, value.String(), strings.Split(must, "|"))
	}
	if l := limits[must]; value.Int() < l.least || value.Int() > l.most {
		return fmt.Errorf("%s=%v: %s", flag, value.Interface(), l.text)
	}
	return nil
}

// limits of numbers and times, by the word in the tag.
var limits = map[string]struct {
	least, most int64
	text        string
}{
	"positive": {1, math.MaxInt64, "must be at least 1"},
	"natural":  {0, math.MaxInt64, "must not be negative"},
	"percent":  {0, 100, "must be a percentage from 0 to 100"},
	"score":    {-1000, 1000, "must be between -1000 and 1000"}, // what the kernel accepts
	"pause":    {0, int64(10 * time.Minute), "must be a time from 0 to 10m, such as 10ms"},
	// The longest time that the kernel can count in jiffies (signed 32 bits at 1000 Hz).
	"timeout": {0, int64(24 * 24 * time.Hour), "must be between 0 and 576h0m0s"},
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

func (s *Settings) validateUI() error {
	if s.UIAddress != "" && !s.UI {
		return fmt.Errorf("--ui-address=%s has no effect without --ui", s.UIAddress)
	}
	return nil
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

func (s *Settings) validateDetectLocal() error {
	switch s.DetectLocalMode {
	case DetectBridgeInterface:
		return interfaceFlag("--pod-bridge-interface", s.BridgeInterface)
	case DetectInterfaceNamePrefix:
		return interfaceFlag("--pod-interface-name-prefix", s.InterfaceNamePrefix)
	}
	return nil
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

// oneOf returns an error if a flag has none of the words that it takes.
func oneOf(flag, value string, words []string) error {
	if slices.Contains(words, value) {
		return nil
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	last := len(words) - 1
	return fmt.Errorf("%s=%s: must be %s or %s", flag, value, strings.Join(words[:last], ", "), words[last])
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

const aCIDR = "a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32"

func validateEach(flag string, values []string, ok func(string) bool, must string) error {
	var errs []error
	for _, v := range values {
		if !ok(v) {
			errs = append(errs, fmt.Errorf("%s: %q is not %s", flag, v, must))
		}
	}
	return errors.Join(errs...)
}

func isPrefix(v string) bool {
	_, err := netip.ParsePrefix(v)
	return err == nil
}

func isGlob(v string) bool {
	_, err := path.Match(v, "")
	return err == nil && v != "" && !strings.ContainsAny(v, "/ \"\\")
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
	Scheduler      string        `flag:"ipvs-scheduler" must:"set" usage:"<NAME> of the scheduler of Services that name none, with --backend=ipvs or forwarding without NAT"`
	Fallback       bool          `flag:"ipvs-fallback" usage:"with --backend=ipvs: let nft serve Services if the kernel has no IPVS, instead of failing at the start"`
	ExcludeCIDR    []string      `flag:"ipvs-exclude-cidrs" must:"cidrs" usage:"<RANGES> in which other software uses IPVS; nft serves the Services there"`
	ExternalCIDR   []string      `flag:"ipvs-external-cidrs" must:"cidrs" usage:"<RANGES> of external and load balancer IPs that IPVS may make local addresses of the node; nft serves others. No other host may have an address in them that the node talks to"`
	StrictARP      bool          `flag:"ipvs-strict-arp" usage:"set arp_ignore=1 and arp_announce=2, which load balancers in layer 2 mode need"`
	TCPTimeout     time.Duration `flag:"ipvs-tcp-timeout" must:"timeout" usage:"idle <TIME> of TCP connections in IPVS; 0: the value of the kernel"`
	TCPFinTimeout  time.Duration `flag:"ipvs-tcpfin-timeout" must:"timeout" usage:"idle <TIME> of TCP connections in IPVS after a FIN; 0: the value of the kernel"`
	UDPTimeout     time.Duration `flag:"ipvs-udp-timeout" must:"timeout" usage:"idle <TIME> of UDP flows in IPVS; 0: the value of the kernel"`
	GracefulPeriod time.Duration `flag:"ipvs-graceful-period" must:"timeout" usage:"<TIME> for which connections in IPVS to a removed endpoint may continue"`
	// SyncDaemon is as wire.ParseDaemons reads it.
	SyncDaemon string `flag:"ipvs-sync-daemon" usage:"<ROLES> (master, backup) in which the kernel sends connections of IPVS to other balancers and takes over theirs, with device=NAME and, unless the defaults fit, id=NUMBER, group=ADDRESS and port=NUMBER, separated by commas; empty: none"`
}

// Budgets bound what one Service and one namespace may cost.
type Budgets struct {
	// Slots of hash tables count for the namespace only.
	ServiceFrontends   int `flag:"max-service-frontends" must:"positive" usage:"<NUMBER> of frontends (addresses x ports) that one Service may have; it is served without the others"`
	ServiceElements    int `flag:"max-service-elements" must:"positive" usage:"<NUMBER> of endpoints (of all ports), slots for their weights, and source ranges that one Service may have"`
	NamespaceFrontends int `flag:"max-namespace-frontends" must:"positive" usage:"<NUMBER> of frontends that the Services of one namespace may have"`
	NamespaceElements  int `flag:"max-namespace-elements" must:"positive" usage:"<NUMBER> of endpoints, slots of weights and hash tables, and source ranges that the Services of one namespace may have"`
	// The worst change of port ranges takes the kernel about 10 ms with the defaults.
	RangeFrontends          int `flag:"max-range-frontends" must:"positive" usage:"<NUMBER> of frontends with port ranges on this node; the oldest Services get them"`
	NamespaceRangeFrontends int `flag:"max-namespace-range-frontends" must:"positive" usage:"<NUMBER> of frontends with port ranges that the Services of one namespace may have"`
	// A namespace may have as many at once as NamespaceElements.
	NamespaceChanges  int `flag:"max-namespace-changes" must:"positive" usage:"<NUMBER> of changes of the kernel a second, each of 5 µs of processor time or less, that large changes of one namespace may need in the long run; then they wait"`
	NamespaceLogLines int `flag:"max-namespace-log-lines" must:"positive" usage:"<NUMBER> of lines a minute that the log has about problems of the objects of one namespace, about its endpoints, and about its health check ports, each"`
}

// defaultBudgets are far beyond what a cluster needs: a Service with 100 ports, dual stack, with node ports and load
// balancer IPs, has 600 frontends.
func defaultBudgets() Budgets {
	return Budgets{
		ServiceFrontends: 4096, ServiceElements: 100_000, NamespaceFrontends: 250_000, NamespaceElements: 1_000_000,
		RangeFrontends: 32, NamespaceRangeFrontends: 12,
		NamespaceChanges: 1000, NamespaceLogLines: 100,
	}
}
