package kubeproxyconfig

// Field says what Verdict makes of a field of the file.
type Field struct {
	Path  string
	Flag  string // which the field sets; empty: none
	Modes string // of kube-proxy in which the field counts, such as "iptables and ipvs"; empty: in all
	Why   string // the field has no meaning, if Flag is empty
	// Gone marks a field that the type lacks: older versions of kube-proxy, or guides to them, have it.
	Gone bool
	// Ignored is the flag of kube-proxy that has no meaning for the same reason; empty: none.
	Ignored string
}

// Reasons that several fields share.
const (
	whyMark       = "Verdict marks no packets"
	whyResync     = "the kernel reports each change of the tables to Verdict, so there is no periodic sync"
	whyWatched    = "watches deliver each change of the cluster, so nothing is read again from time to time"
	whyWindows    = "it is for Windows"
	whyUnbuffered = "the log is not buffered and not split"
	whyUserspace  = "it was for the mode userspace"
)

// Fields lists every field of the file, in the order of the type, and then those that are gone.
func Fields() []Field {
	return []Field{
		{Path: "featureGates", Flag: "feature-gates"},
		{Path: "clientConnection.kubeconfig", Flag: "kubeconfig"},
		{Path: "clientConnection.acceptContentTypes", Why: "Verdict asks for protobuf, and accepts JSON"},
		{Path: "clientConnection.contentType", Ignored: "kube-api-content-type", Why: "Verdict sends protobuf"},
		{Path: "clientConnection.qps", Flag: "kube-api-qps"},
		{Path: "clientConnection.burst", Flag: "kube-api-burst"},
		{Path: "logging.format", Flag: "log-format"},
		{Path: "logging.flushFrequency", Ignored: "log-flush-frequency", Why: whyUnbuffered},
		{Path: "logging.verbosity", Flag: "v"},
		{Path: "logging.vmodule", Ignored: "vmodule", Why: "the verbosity is the same in all source files"},
		{Path: "logging.options.text.splitStream", Ignored: "log-text-split-stream", Why: whyUnbuffered},
		{Path: "logging.options.text.infoBufferSize", Ignored: "log-text-info-buffer-size", Why: whyUnbuffered},
		{Path: "logging.options.json.splitStream", Ignored: "log-json-split-stream", Why: whyUnbuffered},
		{Path: "logging.options.json.infoBufferSize", Ignored: "log-json-info-buffer-size", Why: whyUnbuffered},
		{Path: "hostnameOverride", Flag: "hostname-override"},
		{Path: "bindAddress", Flag: "bind-address"},
		{Path: "healthzBindAddress", Flag: "healthz-bind-address"},
		{Path: "metricsBindAddress", Flag: "metrics-bind-address"},
		{Path: "bindAddressHardFail", Flag: "bind-address-hard-fail"},
		{Path: "enableProfiling", Flag: "profiling"},
		{Path: "showHiddenMetricsForVersion", Ignored: "show-hidden-metrics-for-version", Why: "Verdict has no hidden metrics"},
		{Path: "mode", Flag: "proxy-mode"},
		{Path: "iptables.masqueradeBit", Ignored: "iptables-masquerade-bit", Why: whyMark},
		{Path: "iptables.masqueradeAll", Flag: "masquerade-all", Modes: "iptables and ipvs"},
		{Path: "iptables.localhostNodePorts", Flag: "iptables-localhost-nodeports", Modes: "iptables"},
		{Path: "iptables.syncPeriod", Ignored: "iptables-sync-period", Why: whyResync},
		{Path: "iptables.minSyncPeriod", Flag: "min-sync-period", Modes: "iptables"},
		{Path: "ipvs.syncPeriod", Ignored: "ipvs-sync-period", Why: whyResync},
		{Path: "ipvs.minSyncPeriod", Flag: "min-sync-period", Modes: "ipvs"},
		{Path: "ipvs.scheduler", Flag: "default-scheduler", Modes: "ipvs"},
		{Path: "ipvs.excludeCIDRs", Flag: "ipvs-exclude-cidrs", Modes: "ipvs"},
		{Path: "ipvs.strictARP", Flag: "ipvs-strict-arp", Modes: "ipvs"},
		{Path: "ipvs.tcpTimeout", Flag: "ipvs-tcp-timeout", Modes: "ipvs"},
		{Path: "ipvs.tcpFinTimeout", Flag: "ipvs-tcpfin-timeout", Modes: "ipvs"},
		{Path: "ipvs.udpTimeout", Flag: "ipvs-udp-timeout", Modes: "ipvs"},
		{Path: "nftables.masqueradeBit", Why: whyMark},
		{Path: "nftables.masqueradeAll", Flag: "masquerade-all", Modes: "nftables"},
		{Path: "nftables.syncPeriod", Why: whyResync},
		{Path: "nftables.minSyncPeriod", Flag: "min-sync-period", Modes: "nftables"},
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
		{Path: "configSyncPeriod", Ignored: "config-sync-period", Why: whyWatched},
		{Path: "portRange", Ignored: "proxy-port-range", Why: whyUserspace},
		{Path: "windowsRunAsService", Why: whyWindows},
		{Path: "udpIdleTimeout", Gone: true, Ignored: "udp-timeout", Why: whyUserspace},
		{Path: "udpTimeoutMilliseconds", Gone: true, Why: whyUserspace},
		{Path: "resourceContainer", Gone: true, Ignored: "resource-container", Why: "whoever starts Verdict chooses its cgroup"},
		{Path: "conntrack.max", Gone: true, Ignored: "conntrack-max", Why: "conntrack.maxPerCore and conntrack.min took its place"},
		{Path: "ipvs.masqueradeAll", Gone: true, Why: "iptables.masqueradeAll counts in mode ipvs too"},
		{Path: "logging.sanitization", Gone: true, Why: "the log has no secrets"},
	}
}
