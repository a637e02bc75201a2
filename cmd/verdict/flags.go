package main

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/config"
)

// bindSource binds the flags that say where objects come from and what the node is.
func bindSource(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar(&s.Kubeconfig, "kubeconfig", s.Kubeconfig, "kubeconfig `FILE` for the API server; without it and without --manifests: the pod's service account")
	fs.StringVar(&s.Master, "master", s.Master, "`URL` of the API server, overrides the kubeconfig")
	fs.StringVar(&s.Manifests, "manifests", s.Manifests, "take objects from the YAML and JSON files in `DIR` instead of an API server")
	fs.StringVar(&s.NodeName, "hostname-override", s.NodeName, "`NAME` of the own Node (default: the host's name)")
	fs.StringSliceVar(&s.ClusterCIDRs, "cluster-cidr", s.ClusterCIDRs, "pod `RANGES` of the cluster, comma separated, both families: traffic from elsewhere to cluster IPs is masqueraded")
	fs.StringVar((*string)(&s.DetectLocalMode), "detect-local-mode", string(s.DetectLocalMode), "how traffic of local pods is recognized: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix or None")
	fs.StringVar(&s.BridgeInterface, "pod-bridge-interface", s.BridgeInterface, "`NAME` of the pods' bridge for BridgeInterface")
	fs.StringVar(&s.InterfaceNamePrefix, "pod-interface-name-prefix", s.InterfaceNamePrefix, "`PREFIX` of pod interfaces for InterfaceNamePrefix")
	fs.StringSliceVar(&s.NodePortAddresses, "nodeport-addresses", s.NodePortAddresses, "where node ports answer: `LIST` of CIDRs and the words primary, localhost, all")
	fs.BoolVar(&s.MasqueradeAll, "masquerade-all", s.MasqueradeAll, "masquerade all traffic to cluster IPs")
	fs.Float32Var(&s.QPS, "kube-api-qps", s.QPS, "requests per second to the API server")
	fs.IntVar(&s.Burst, "kube-api-burst", s.Burst, "requests to the API server in one burst")
}

// bindBackend binds the flags that choose engines.
func bindBackend(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar((*string)(&s.Backend), "backend", string(s.Backend), "engines: nft; ipvs; hybrid, which is nft, and IPVS for Services whose scheduler needs it")
	fs.StringVar(&s.IPVS.Scheduler, "ipvs-scheduler", s.IPVS.Scheduler, "`NAME` of the IPVS scheduler of Services that name none, with --backend=ipvs")
	fs.StringSliceVar(&s.IPVS.ExcludeCIDR, "ipvs-exclude-cidrs", s.IPVS.ExcludeCIDR, "`RANGES` in which IPVS belongs to others; Services there are served by nft")
}

// bindDaemon binds the flags that only the daemon has.
func bindDaemon(fs *pflag.FlagSet, s *config.Settings) {
	fs.BoolVar(&s.IPVS.Fallback, "ipvs-fallback", s.IPVS.Fallback, "with --backend=ipvs: serve by nft when the kernel has no IPVS, instead of giving up")
	fs.BoolVar(&s.IPVS.StrictARP, "ipvs-strict-arp", s.IPVS.StrictARP, "set arp_ignore=1 and arp_announce=2, as load balancers in layer 2 mode need it")
	fs.DurationVar(&s.IPVS.TCPTimeout, "ipvs-tcp-timeout", s.IPVS.TCPTimeout, "idle time of TCP connections in IPVS; 0: as the kernel has it")
	fs.DurationVar(&s.IPVS.TCPFinTimeout, "ipvs-tcpfin-timeout", s.IPVS.TCPFinTimeout, "the same after a FIN; 0: as the kernel has it")
	fs.DurationVar(&s.IPVS.UDPTimeout, "ipvs-udp-timeout", s.IPVS.UDPTimeout, "the same of UDP flows; 0: as the kernel has it")
	fs.DurationVar(&s.IPVS.GracefulPeriod, "ipvs-graceful-period", s.IPVS.GracefulPeriod, "how long connections in IPVS to an endpoint that is gone may go on")
	fs.DurationVar(&s.MinSyncPeriod, "min-sync-period", s.MinSyncPeriod, "changes in a stream are gathered no longer than this; a change that meets an idle proxy is applied at once")
	fs.StringVar(&s.HealthzBindAddress, "healthz-bind-address", s.HealthzBindAddress, "`ADDRESS:PORT` of /healthz and /livez; empty: off")
	fs.StringVar(&s.MetricsBindAddress, "metrics-bind-address", s.MetricsBindAddress, "`ADDRESS:PORT` of /metrics and /proxyMode; empty: off")
}

func bindLog(fs *pflag.FlagSet, s *config.Settings) {
	fs.StringVar(&s.LogFormat, "log-format", s.LogFormat, "text or json")
	fs.IntVarP(&s.Verbosity, "v", "v", s.Verbosity, "log verbosity; from 4 on every pass is logged")
}

// ignoredFlags are flags of kube-proxy on Linux that have no effect here. They are accepted, so that the arguments of
// an existing DaemonSet keep working, and each one that is given is answered by a warning.
type ignoredFlags struct{ names map[string]bool }

func bindIgnored(fs *pflag.FlagSet) *ignoredFlags {
	own := pflag.NewFlagSet("ignored", pflag.ContinueOnError)
	for _, name := range []string{
		"config", "write-config-to", "feature-gates", "kube-api-content-type", "bind-address", "proxy-mode",
		"show-hidden-metrics-for-version", "vmodule", "logging-format", "log-json-info-buffer-size", "log-text-info-buffer-size", "log-dir", "log-file",
	} {
		own.String(name, "", "")
	}
	for _, name := range []string{
		"bind-address-hard-fail", "iptables-localhost-nodeports", "conntrack-tcp-be-liberal", "profiling",
		"log-json-split-stream", "log-text-split-stream", "logtostderr", "alsologtostderr",
	} {
		own.Bool(name, false, "")
	}
	for _, name := range []string{
		"iptables-sync-period", "iptables-min-sync-period", "ipvs-sync-period", "ipvs-min-sync-period",
		"conntrack-tcp-timeout-established", "conntrack-tcp-timeout-close-wait",
		"conntrack-udp-timeout", "conntrack-udp-timeout-stream", "config-sync-period", "log-flush-frequency",
	} {
		own.Duration(name, time.Duration(0), "")
	}
	for _, name := range []string{
		"iptables-masquerade-bit", "oom-score-adj", "conntrack-max-per-core", "conntrack-min", "healthz-port", "metrics-port",
	} {
		own.Int(name, 0, "")
	}
	ignored := &ignoredFlags{names: map[string]bool{}}
	own.VisitAll(func(f *pflag.Flag) {
		f.Hidden = true
		ignored.names[f.Name] = true
	})
	fs.AddFlagSet(own)
	return ignored
}

// warn names each ignored flag that was given.
func (i *ignoredFlags) warn(fs *pflag.FlagSet, log *slog.Logger) {
	fs.Visit(func(f *pflag.Flag) {
		if i.names[f.Name] {
			log.Warn("flag of kube-proxy has no effect here", "flag", "--"+f.Name, "value", f.Value.String())
		}
	})
}
