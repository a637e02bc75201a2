package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/verdict-proxy/verdict/cmd/verdict/claim"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/objects"
	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether Verdict can serve this node",
		Long: `Check whether Verdict can serve this node with the flags of "verdict run": the kernel with each feature of nf_tables,
IPVS and its schedulers, rules of other proxies, sysctls, routes, the table of connections, and the access to the API server. It prints a line for each
check, with the remedy. It changes nothing: the kernel undoes trials at once. The exit status is 1 if there is an error;
Verdict can serve with warnings.`,
		Args: flags.None,
	}
	c := flags.New(cmd.Flags())
	addresses := cmd.Flags().StringSlice("real-server", nil, "check instead whether this machine can be a real server for `ADDRESSES` of Services, separated by commas; see ipvsctl/README.md")
	var o flags.Output
	o.Bind(cmd.Flags(), "table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.Resolve(); err != nil {
			return err
		}
		var list []preflight.Finding
		if len(*addresses) > 0 {
			var addrs []netip.Addr
			for _, text := range *addresses {
				a, err := netip.ParseAddr(strings.TrimSpace(text))
				if err != nil {
					return flags.Wrong(fmt.Errorf("--real-server: %w", err))
				}
				addrs = append(addrs, a)
			}
			list = preflight.RealServer(addrs, ipvsctl.ProcSys)
		} else {
			list = checkNode(cmd.Context(), &c.Settings)
		}
		if err := o.Write(cmd.OutOrStdout(), list, func(out io.Writer) error { return preflight.PrintTable(out, list) }); err != nil {
			return err
		}
		if n := preflight.Errors(list); n > 0 {
			return fmt.Errorf("%s failed; see the remedies above", state.Plural(n, "check"))
		}
		return nil
	}
	return cmd
}

// checkNode runs all checks.
func checkNode(ctx context.Context, s *config.Settings) []preflight.Finding {
	list := []preflight.Finding{preflight.Kernel(preflight.Release())}
	families := []program.Family{program.IPv4, program.IPv6}
	if !preflight.HasIPv6() {
		families = families[:1]
	}
	list = append(list, preflight.NFTables(kernel.Probe(kernel.Options{Families: families}))...)
	byIPVS, local := checkIPVS(s)
	list = append(list, byIPVS)
	found, err := takeover.Find()
	list = append(list, preflight.KubeProxy(found.Names(), err)...)
	list = append(list, preflight.Neighbors(preflight.ReadTraces("/proc"))...)
	for _, f := range families {
		list = append(list, preflight.Forwarding(inspect.Foreign(kernel.Options{}, f))...)
	}
	list = append(list, preflight.FastPath(s, families)...)
	pid, _ := claim.Holder()
	holder := preflight.Holder{PID: pid, KubeProxy: !found.Empty()}
	list = append(list,
		preflight.Listener("healthz-bind-address", s.HealthzBindAddress, holder),
		preflight.Listener("metrics-bind-address", s.MetricsBindAddress, holder))
	list = append(list, preflight.Sysctls(ipvsctl.ProcSys, preflight.IPv6Only(), pid == 0)...)
	list = append(list, preflight.Room(conntrack.ReadRoom("/proc")))
	findings, services := checkSource(ctx, s)
	if list = append(list, findings...); !local {
		list = append(list, preflight.Routes(services)...)
	}
	return list
}

// checkIPVS also reports whether IPVS makes all cluster IPs local: this host then needs no route to them.
func checkIPVS(s *config.Settings) (f preflight.Finding, local bool) {
	if s.Backend == config.BackendNFT {
		return preflight.IPVS(s, nil, nil), false
	}
	support, err := ipvsctl.Probe(ipvs.Options(s), ipvsctl.Schedulers())
	local = s.Backend == config.BackendIPVS && err == nil && support.Has(s.IPVS.Scheduler) && len(s.IPVS.ExcludeCIDR) == 0
	return preflight.IPVS(s, &support, err), local
}

// checkSource also returns an address of each range of Services that the API server names.
func checkSource(ctx context.Context, s *config.Settings) ([]preflight.Finding, []netip.Addr) {
	if s.Manifests != "" {
		return []preflight.Finding{preflight.Manifests(s.Manifests)}, nil
	}
	client, err := objects.NewClient(s, thisBuild().version, nil)
	if errors.Is(err, rest.ErrNotInCluster) {
		f := preflight.Finding{Check: "API server", Status: preflight.Warning, Detail: "not checked: this is no pod, and no flag says where the API server is"}
		f.Remedy = "repeat with --kubeconfig FILE or --manifests DIR, unless Verdict is to run in a pod"
		return []preflight.Finding{f}, nil
	}
	remedy, host := "set --kubeconfig FILE, or --manifests DIR", ""
	if err == nil {
		remedy = "correct --kubeconfig or --master"
		host, err = cluster.ServerHost(cluster.Config{Kubeconfig: s.Kubeconfig, Master: s.Master})
	}
	if err != nil {
		return []preflight.Finding{{Check: "API server", Status: preflight.Error, Detail: err.Error(), Remedy: remedy}}, nil
	}
	return preflight.Cluster(ctx, client, host)
}
