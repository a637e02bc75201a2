package kubeproxyconfig

// The modes of kube-proxy. An empty mode in a file means iptables.
const (
	modeIPTables = "iptables"
	modeIPVS     = "ipvs"
	modeNFTables = "nftables"
)

// Field says what Verdict makes of a field of the file.
type Field struct {
	Path  string
	Flag  string   // which the field sets; empty: none
	Modes []string // in which the field counts, as in kube-proxy; empty: in all
	Why   string   // the field has no meaning, if Flag is empty
}

// Reasons that several fields and flags share.
const (
	WhyMark       = "Verdict marks no packets"
	WhyResync     = "the kernel reports each change of the tables to Verdict, so there is no periodic sync"
	WhyWatched    = "watches deliver each change of the cluster, so nothing is read again from time to time"
	whyWindows    = "it is for Windows"
	WhyUnbuffered = "the log is not buffered and not split"
)

// Fields lists every field of the file, in the order of the type.
func Fields() []Field {
	iptables, notNFTables := []string{modeIPTables}, []string{modeIPTables, modeIPVS}
	ipvs, nftables := []string{modeIPVS}, []string{modeNFTables}
	return []Field{
		{Path: "featureGates", Why: "Verdict has no feature gates"},
		{Path: "clientConnection.kubeconfig", Flag: "kubeconfig"},
		{Path: "clientConnection.acceptContentTypes", Why: "Verdict asks for protobuf, and accepts JSON"},
		{Path: "clientConnection.contentType", Why: "Verdict sends protobuf"},
		{Path: "clientConnection.qps", Flag: "kube-api-qps"},
		{Path: "clientConnection.burst", Flag: "kube-api-burst"},
		{Path: "logging.format", Flag: "log-format"},
		{Path: "logging.flushFrequency", Why: WhyUnbuffered},
		{Path: "logging.verbosity", Flag: "v"},
		{Path: "logging.vmodule", Why: "the verbosity is the same in all source files"},
		{Path: "logging.options.text.splitStream", Why: WhyUnbuffered},
		{Path: "logging.options.text.infoBufferSize", Why: WhyUnbuffered},
		{Path: "logging.options.json.splitStream", Why: WhyUnbuffered},
		{Path: "logging.options.json.infoBufferSize", Why: WhyUnbuffered},
		{Path: "hostnameOverride", Flag: "hostname-override"},
		{Path: "bindAddress", Flag: "bind-address"},
		{Path: "healthzBindAddress", Flag: "healthz-bind-address"},
		{Path: "metricsBindAddress", Flag: "metrics-bind-address"},
		{Path: "bindAddressHardFail", Flag: "bind-address-hard-fail"},
		{Path: "enableProfiling", Flag: "profiling"},
		{Path: "showHiddenMetricsForVersion", Why: "Verdict has no hidden metrics"},
		{Path: "mode", Flag: "proxy-mode"},
		{Path: "iptables.masqueradeBit", Why: WhyMark},
		{Path: "iptables.masqueradeAll", Flag: "masquerade-all", Modes: notNFTables},
		{Path: "iptables.localhostNodePorts", Flag: "iptables-localhost-nodeports", Modes: iptables},
		{Path: "iptables.syncPeriod", Why: WhyResync},
		{Path: "iptables.minSyncPeriod", Flag: "min-sync-period", Modes: iptables},
		{Path: "ipvs.syncPeriod", Why: WhyResync},
		{Path: "ipvs.minSyncPeriod", Flag: "min-sync-period", Modes: ipvs},
		{Path: "ipvs.scheduler", Flag: "default-scheduler", Modes: ipvs},
		{Path: "ipvs.excludeCIDRs", Flag: "ipvs-exclude-cidrs", Modes: ipvs},
		{Path: "ipvs.strictARP", Flag: "ipvs-strict-arp", Modes: ipvs},
		{Path: "ipvs.tcpTimeout", Flag: "ipvs-tcp-timeout", Modes: ipvs},
		{Path: "ipvs.tcpFinTimeout", Flag: "ipvs-tcpfin-timeout", Modes: ipvs},
		{Path: "ipvs.udpTimeout", Flag: "ipvs-udp-timeout", Modes: ipvs},
		{Path: "nftables.masqueradeBit", Why: WhyMark},
		{Path: "nftables.masqueradeAll", Flag: "masquerade-all", Modes: nftables},
		{Path: "nftables.syncPeriod", Why: WhyResync},
		{Path: "nftables.minSyncPeriod", Flag: "min-sync-period", Modes: nftables},
		{Path: "winkernel.networkName", Why: whyWindows},
		{Path: "winkernel.sourceVip", Why: whyWindows},
		{Path: "winkernel.enableDSR", Why: whyWindows},
		{Path: "winkernel.rootHnsEndpointName", Why: whyWindows},
		{Path: "winkernel.forwardHealthCheckVip", Why: whyWindows},
		{Path: "detectLocalMode", Flag: "detect-local-mode"},
		{Path: "detectLocal.bridgeInterface", Flag: "pod-bridge-interface"},
		{Path: "detectLocal.interfaceNamePrefix", Flag: "pod-interface-name-prefix"},
		{Path: "clusterCIDR", Flag: "cluster-cidr"},
		{Path: "nodePortAddresses", Flag: "nodeport-addresses"},
		{Path: "oomScoreAdj", Flag: "oom-score-adj"},
		{Path: "conntrack.maxPerCore", Flag: "conntrack-max-per-core"},
		{Path: "conntrack.min", Flag: "conntrack-min"},
		{Path: "conntrack.tcpEstablishedTimeout", Flag: "conntrack-tcp-timeout-established"},
		{Path: "conntrack.tcpCloseWaitTimeout", Flag: "conntrack-tcp-timeout-close-wait"},
		{Path: "conntrack.tcpBeLiberal", Flag: "conntrack-tcp-be-liberal"},
		{Path: "conntrack.udpTimeout", Flag: "conntrack-udp-timeout"},
		{Path: "conntrack.udpStreamTimeout", Flag: "conntrack-udp-timeout-stream"},
		{Path: "configSyncPeriod", Why: WhyWatched},
		{Path: "portRange", Why: "it was for the mode userspace"},
		{Path: "windowsRunAsService", Why: whyWindows},
	}
}
