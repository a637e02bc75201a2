package flags

import (
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// BindSettings binds a flag for each setting.
func BindSettings(fs *pflag.FlagSet, s *config.Settings) {
	BindSource(fs, s)
	BindBackend(fs, s)
	bindUpstream(fs, s)
	BindBudgets(fs, s)
	BindOutliers(fs, s)
	bindChecks(fs, s)
	bindDaemon(fs, s)
	bindNode(fs, &s.Node)
	BindLog(fs, s)
}

// BindSource binds the flags for the source of objects and for properties of the node.
func BindSource(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar(&s.Kubeconfig, "kubeconfig", s.Kubeconfig,
		"`FILE` with the access to the API server; without it and --manifests, the service account of the pod")
	fs.StringVar(&s.Master, "master", s.Master, "`URL` of the API server; overrides the kubeconfig")
	fs.StringVar(&s.Manifests, "manifests", s.Manifests,
		"read objects from the YAML and JSON files in `DIR` instead of an API server")
	fs.StringVar(&s.NodeName, "hostname-override", s.NodeName,
		"`NAME` of this node's Node object; empty: the name of the host")
	fs.StringSliceVar(&s.ClusterCIDRs, "cluster-cidr", s.ClusterCIDRs,
		"pod `RANGES` of the cluster, both families, separated by commas; traffic from other sources to "+
			"cluster IPs is masqueraded")
	fs.StringVar((*string)(&s.DetectLocalMode), "detect-local-mode", string(s.DetectLocalMode),
		"`MODE` of recognizing traffic from local pods: ClusterCIDR, NodeCIDR, BridgeInterface, "+
			"InterfaceNamePrefix or None")
	fs.StringVar(&s.BridgeInterface, "pod-bridge-interface", s.BridgeInterface,
		"`NAME` of the bridge of the pods, with --detect-local-mode=BridgeInterface")
	fs.StringVar(&s.InterfaceNamePrefix, "pod-interface-name-prefix", s.InterfaceNamePrefix,
		"`PREFIX` of the interfaces of pods, with --detect-local-mode=InterfaceNamePrefix")
	fs.StringSliceVar(&s.NodePortAddresses, "nodeport-addresses", s.NodePortAddresses,
		"addresses of node ports: a `LIST` of CIDRs and the words primary, localhost, all")
	fs.StringSliceVar(&s.ExternalIPs, "external-ip-cidrs", s.ExternalIPs,
		"`RANGES` in which externalIPs of Services are served; empty: nowhere")
	fs.BoolVar(&s.Fleet, "fleet", s.Fleet, "other nodes have the same external addresses; continue the TCP connections of those that are gone")
	fs.BoolVar(&s.MasqueradeAll, "masquerade-all", s.MasqueradeAll, "masquerade all traffic to cluster IPs")
	fs.Float32Var(&s.QPS, "kube-api-qps", s.QPS, "`NUMBER` of requests per second to the API server")
	fs.IntVar(&s.Burst, "kube-api-burst", s.Burst, "`NUMBER` of requests to the API server in one burst")
}

// BindBackend binds the flags that select engines.
func BindBackend(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar((*string)(&s.Backend), "backend", string(s.Backend),
		"`ENGINE`: nft, ipvs, or hybrid, which is nft, and IPVS for Services that need it")
	fs.StringVar(&s.DefaultScheduler, "default-scheduler", s.DefaultScheduler,
		"`NAME` of the scheduler of Services that name none, with --backend=hybrid and nft; empty: random")
	fs.StringVar(&s.IPVS.Scheduler, "ipvs-scheduler", s.IPVS.Scheduler,
		"`NAME` of the scheduler of Services that name none, with --backend=ipvs or forwarding without NAT")
	fs.StringSliceVar(&s.IPVS.ExcludeCIDR, "ipvs-exclude-cidrs", s.IPVS.ExcludeCIDR,
		"`RANGES` in which other software uses IPVS; nft serves the Services there")
	fs.StringSliceVar(&s.IPVS.ExternalCIDR, "ipvs-external-cidrs", s.IPVS.ExternalCIDR,
		"`RANGES` of external and load balancer IPs that IPVS may make local addresses of the node; nft serves others. "+
			"No other host may have an address in them that the node talks to")
	fs.StringVar(&s.IPVS.SyncDaemon, "ipvs-sync-daemon", s.IPVS.SyncDaemon,
		"`ROLES` (master, backup) in which the kernel sends connections of IPVS to other balancers and takes over theirs, with "+
			"device=NAME and, unless the defaults fit, id=NUMBER, group=ADDRESS and port=NUMBER, separated by commas; empty: none")
}

// bindUpstream binds flags that exist because kube-proxy has them.
func bindUpstream(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar((*string)(&s.Upstream.Mode), "proxy-mode", string(s.Upstream.Mode),
		"`MODE` of the kube-proxy that Verdict replaces: iptables, ipvs or nftables; chooses defaults of other flags")
	fs.BoolVar(&s.Upstream.LocalhostNodePorts, "iptables-localhost-nodeports", s.Upstream.LocalhostNodePorts,
		"with --proxy-mode=iptables: node ports answer on 127.0.0.1 if --nodeport-addresses has that address")
	fs.StringVar(&s.BindAddress, "bind-address", s.BindAddress,
		"`ADDRESS` of this node, instead of the address of the same family in the Node object; Verdict does not listen there")
}

// bindNode binds the flags for what Verdict sets on the host.
func bindNode(fs *pflag.FlagSet, n *config.Node) {
	c := &n.Conntrack
	fs.IntVar(&c.MaxPerCore, "conntrack-max-per-core", c.MaxPerCore,
		"`NUMBER` of connections for each core that the kernel can track; a larger limit stays; 0: leave it as it is")
	fs.IntVar(&c.Min, "conntrack-min", c.Min, "`NUMBER` of connections that the kernel can track at least")
	fs.DurationVar(&c.TCPEstablished, "conntrack-tcp-timeout-established", c.TCPEstablished,
		"idle `TIME` of established TCP connections; 0: leave it as it is")
	fs.DurationVar(&c.TCPCloseWait, "conntrack-tcp-timeout-close-wait", c.TCPCloseWait,
		"idle `TIME` of TCP connections that only the server has closed; 0: leave it as it is")
	fs.DurationVar(&c.UDP, "conntrack-udp-timeout", c.UDP, "idle `TIME` of UDP flows without a reply; 0: leave it as it is")
	fs.DurationVar(&c.UDPStream, "conntrack-udp-timeout-stream", c.UDPStream,
		"idle `TIME` of UDP flows with replies; 0: leave it as it is")
	fs.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", c.TCPBeLiberal,
		"track TCP packets outside of the window as well, instead of passing them on without translation")
	fs.IntVar(&n.OOMScoreAdj, "oom-score-adj", n.OOMScoreAdj,
		"`NUMBER` from -1000 to 1000: how likely the kernel ends the process when memory is short")
}

// BindBudgets binds the flags that bound what tenants may cost.
func BindBudgets(fs *pflag.FlagSet, s *config.Settings) {
	b := &s.Budgets
	fs.IntVar(&b.ServiceFrontends, "max-service-frontends", b.ServiceFrontends,
		"`NUMBER` of frontends (addresses x ports) that one Service may have; it is served without the others")
	fs.IntVar(&b.ServiceElements, "max-service-elements", b.ServiceElements,
		"`NUMBER` of endpoints (of all ports), slots for their weights, and source ranges that one Service may have")
	fs.IntVar(&b.NamespaceFrontends, "max-namespace-frontends", b.NamespaceFrontends,
		"`NUMBER` of frontends that the Services of one namespace may have")
	fs.IntVar(&b.NamespaceElements, "max-namespace-elements", b.NamespaceElements,
		"`NUMBER` of endpoints, slots of weights and hash tables, and source ranges that the Services of one namespace may have")
	fs.IntVar(&b.NamespaceChanges, "max-namespace-changes", b.NamespaceChanges,
		"`NUMBER` of changes of the kernel a second that large changes of one namespace may need in the long run; then they wait")
	fs.IntVar(&b.NamespaceLogLines, "max-namespace-log-lines", b.NamespaceLogLines,
		"`NUMBER` of lines a minute that the log has about problems of the objects of one namespace, about its endpoints, and about its "+
			"health check ports, each")
}

// BindOutliers binds the flags about endpoints that do not answer.
func BindOutliers(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar((*string)(&s.OutlierDetection), "outlier-detection", string(s.OutlierDetection),
		"`MODE`: what happens to endpoints that do not answer: off, observe (it is told), or eject (they get no new connections)")
	fs.IntVar(&s.MaxEjected, "max-ejected", s.MaxEjected,
		"`PERCENT` of the endpoints of a service port that may be ejected; the last one never is")
}

// bindChecks binds the flags about active checks.
func bindChecks(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar(&s.HealthCheck, "health-check", s.HealthCheck,
		"with --manifests: the `CHECK` of Services without the annotation, such as \"tcp\" or \"http path=/healthz interval=5s\"; "+
			"empty: none")
	fs.BoolVar(&s.ActiveChecks, "active-checks", s.ActiveChecks,
		"let Services have active checks by the annotation verdict-proxy.github.io/health-check; =false: this node makes none")
	fs.StringSliceVar(&s.HealthCheckExclude, "health-check-exclude-cidrs", s.HealthCheckExclude,
		"`CIDRS` whose addresses this node never asks whether they serve; others that it never asks are its own, those of API "+
			"servers, and cluster IPs")
	fs.StringVar(&s.StateDir, "state-dir", s.StateDir,
		"`FOLDER` in which a restart finds which endpoints had failed; empty: a restart takes all endpoints for good")
}

// bindDaemon binds the flags that only the daemon has.
func bindDaemon(fs *pflag.FlagSet, s *config.Settings) {
	fs.BoolVar(&s.IPVS.Fallback, "ipvs-fallback", s.IPVS.Fallback,
		"with --backend=ipvs: let nft serve Services if the kernel has no IPVS, instead of failing at the start")
	fs.BoolVar(&s.IPVS.StrictARP, "ipvs-strict-arp", s.IPVS.StrictARP,
		"set arp_ignore=1 and arp_announce=2, which load balancers in layer 2 mode need")
	fs.DurationVar(&s.IPVS.TCPTimeout, "ipvs-tcp-timeout", s.IPVS.TCPTimeout,
		"idle `TIME` of TCP connections in IPVS; 0: the value of the kernel")
	fs.DurationVar(&s.IPVS.TCPFinTimeout, "ipvs-tcpfin-timeout", s.IPVS.TCPFinTimeout,
		"idle `TIME` of TCP connections in IPVS after a FIN; 0: the value of the kernel")
	fs.DurationVar(&s.IPVS.UDPTimeout, "ipvs-udp-timeout", s.IPVS.UDPTimeout,
		"idle `TIME` of UDP flows in IPVS; 0: the value of the kernel")
	fs.DurationVar(&s.IPVS.GracefulPeriod, "ipvs-graceful-period", s.IPVS.GracefulPeriod,
		"`TIME` for which connections in IPVS to a removed endpoint may continue")
	fs.StringVar(&s.ManageAddresses, "manage-addresses", s.ManageAddresses,
		"with --manifests: `DEVICE` that gets the external and load balancer IPs of Services while one of their endpoints is good, "+
			"and announces them; empty: none does")
	fs.BoolVar(&s.Repair, "repair", s.Repair,
		"undo what other processes do to the tables of Verdict; false: only report it")
	fs.StringVar((*string)(&s.TableOwner), "table-owner", string(s.TableOwner),
		"auto: on Linux 6.9 and newer, the kernel lets no other process change the tables; off: any process can")
	fs.DurationVar(&s.MinSyncPeriod, "min-sync-period", s.MinSyncPeriod,
		"`TIME` for which a stream of changes is gathered into one pass, such as 10ms, at most 30s; a change that arrives while "+
			"the proxy is idle is applied at once")
	fs.StringVar(&s.HealthzBindAddress, "healthz-bind-address", s.HealthzBindAddress,
		"`ADDRESS:PORT` of /healthz, /livez and /readyz; empty: off")
	fs.StringVar(&s.MetricsBindAddress, "metrics-bind-address", s.MetricsBindAddress,
		"`ADDRESS:PORT` of /metrics, /proxyMode and /configz; empty: off")
	fs.BoolVar(&s.BindAddressHardFail, "bind-address-hard-fail", s.BindAddressHardFail,
		"end if Verdict cannot listen for health checks or metrics; without, it logs an error and tries again")
	fs.BoolVar(&s.Profiling, "profiling", s.Profiling, "serve /debug/pprof on --metrics-bind-address")
	fs.BoolVar(&s.UI, "ui", s.UI, "serve a read-only page at /ui: Services, endpoints, connection rates, passes, explanations. "+
		"It is on the port of --metrics-bind-address and answers only at loopback addresses")
	fs.StringVar(&s.UIAddress, "ui-address", s.UIAddress,
		"with --ui: serve the page at this `ADDRESS:PORT` instead; whoever can connect there can read it")
	fs.IntVar(&s.CountedFrontends, "max-counted-frontends", s.CountedFrontends,
		"`NUMBER` of frontends up to which /metrics shows the connections of each service port; 0: never")
}

// BindLog binds the flags of the log.
func BindLog(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar(&s.LogFormat, "log-format", s.LogFormat, "`FORMAT` of the log: text or json")
	fs.IntVarP(&s.Verbosity, "v", "v", s.Verbosity, "verbosity `LEVEL` of the log; from 4 on, every pass is logged")
}

// ignoredFlags are flags of kube-proxy on Linux that have no effect in Verdict. Verdict accepts them, so that the
// arguments of an existing DaemonSet keep working, and logs a warning for each one that is set.
type ignoredFlags map[string]string // why, by the name of the flag

const whyLogFiles = "the log goes to standard error"

func bindIgnored(fs *pflag.FlagSet) ignoredFlags {
	ignored := ignoredFlags{
		"feature-gates":                   "Verdict has no feature gates",
		"kube-api-content-type":           "Verdict sends protobuf",
		"show-hidden-metrics-for-version": "Verdict has no hidden metrics",
		"vmodule":                         "the verbosity is the same in all source files",
		"log-json-info-buffer-size":       kubeproxyconfig.WhyUnbuffered,
		"log-text-info-buffer-size":       kubeproxyconfig.WhyUnbuffered,
		"log-json-split-stream":           kubeproxyconfig.WhyUnbuffered,
		"log-text-split-stream":           kubeproxyconfig.WhyUnbuffered,
		"log-flush-frequency":             kubeproxyconfig.WhyUnbuffered,
		"log-dir":                         whyLogFiles,
		"log-file":                        whyLogFiles,
		"logtostderr":                     whyLogFiles,
		"alsologtostderr":                 whyLogFiles,
		"iptables-masquerade-bit":         kubeproxyconfig.WhyMark,
		"iptables-sync-period":            kubeproxyconfig.WhyResync,
		"ipvs-sync-period":                kubeproxyconfig.WhyResync,
		"config-sync-period":              kubeproxyconfig.WhyWatched,
	}
	for name, why := range ignored {
		f := fs.VarPF(new(ignoredValue), name, "", "has no effect: "+why)
		f.Hidden = true
	}
	for _, name := range []string{
		"log-json-split-stream", "log-text-split-stream", "logtostderr", "alsologtostderr",
	} {
		fs.Lookup(name).NoOptDefVal = "true" // a switch needs no value
	}
	return ignored
}

// ignoredValue is the value of a flag without effect. It may be anything.
type ignoredValue string

func (v *ignoredValue) String() string     { return string(*v) }
func (v *ignoredValue) Set(s string) error { *v = ignoredValue(s); return nil }
func (v *ignoredValue) Type() string       { return "string" }

// Warn logs a warning for each ignored flag of the command line.
func (i ignoredFlags) warn(given []*pflag.Flag, log *slog.Logger) {
	for _, f := range given {
		if why := i[f.Name]; why != "" {
			log.Warn("this flag of kube-proxy has no effect", "flag", "--"+f.Name, "value", f.Value.String(), "reason", why)
		}
	}
}

// CompleteValues has the shell offer the values of flags: schedulers, and what annotations have as well.
func CompleteValues(cmd *cobra.Command) {
	words := map[string][]string{
		"default-scheduler": append(ipvsctl.Schedulers(), "random"), "ipvs-scheduler": ipvsctl.Schedulers(),
	}
	for _, a := range state.Annotations() {
		if a.Flag != "" {
			words[a.Flag] = a.Words
		}
	}
	for flag, list := range words {
		if cmd.Flags().Lookup(flag) != nil {
			complete := cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists, so there is no error
		}
	}
}
