package main

import (
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/kernelmetrics"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// scrapeKernel adds the metrics that are read from the kernel when someone asks for them.
func (o *observers) scrapeKernel(k *kernelSide) error {
	options := kernelmetrics.Options{
		Elements: k.engine.Elements,
		Affinity: func() ([]nft.AffinityEntries, error) { return nft.ReadAffinity(nft.Options{}) },
		Traffic:  func(within time.Duration) ([]nft.Traffic, error) { return nft.ReadTraffic(nft.Options{}, within) },
		Room:     func() (conntrack.Room, error) { return conntrack.ReadRoom(procRoot) },
		Most:     o.settings.CountedFrontends, Log: o.log, Now: time.Now,
	}
	if k.balancer != nil {
		options.Servers = func(within time.Duration) ([]ipvsctl.Status, error) {
			return ipvsctl.ListWithin(ipvsctl.Options{}, within)
		}
		options.Routed = func(within time.Duration) ([]nft.IPVSFrontend, error) {
			return nft.ReadIPVSFrontends(nft.Options{}, within)
		}
	}
	if err := o.registry.Register(kernelmetrics.New(options)); err != nil {
		return fmt.Errorf("register metrics of the kernel: %w", err)
	}
	return nil
}
