package daemon

import (
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/kernelmetrics"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// scrapeKernel adds the metrics that are read from the kernel when someone asks for them.
func (o *observers) scrapeKernel(k *kernelSide) error {
	options := kernelmetrics.Options{
		Elements: k.engine.Elements,
		Affinity: func() ([]inspect.AffinityEntries, error) { return inspect.ReadAffinity(kernel.Options{}) },
		Traffic: func(within time.Duration) ([]inspect.Traffic, error) {
			return inspect.ReadTraffic(kernel.Options{}, within)
		},
		Room: func() (conntrack.Room, error) { return conntrack.ReadRoom(procRoot) },
		Most: o.settings.CountedFrontends, Log: o.log, Now: time.Now,
	}
	if k.balancer != nil {
		options.Servers = func(within time.Duration) ([]ipvsctl.Status, error) {
			return ipvsctl.ListWithin(ipvsctl.Options{}, within)
		}
	}
	if err := o.registry.Register(kernelmetrics.New(options)); err != nil {
		return fmt.Errorf("register metrics of the kernel: %w", err)
	}
	return nil
}
