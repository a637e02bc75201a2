package config

import (
	"errors"
	"fmt"
	"time"
)

// IPVS are the settings of the IPVS engine (backends ipvs and hybrid).
type IPVS struct {
	Scheduler   string   // of Services that name none, with backend ipvs
	Fallback    bool     // serve by nft when the kernel has no IPVS, instead of giving up
	ExcludeCIDR []string // ranges in which IPVS belongs to others
	StrictARP   bool
	// Timeouts of connections; 0 leaves the kernel's as they are.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
	// GracefulPeriod is how long connections to an endpoint that is gone may go on.
	GracefulPeriod time.Duration
}

func defaultIPVS() IPVS {
	return IPVS{Scheduler: "rr", Fallback: true, GracefulPeriod: 15 * time.Minute}
}

func (i *IPVS) validate() error {
	errs := []error{validateEach("--ipvs-exclude-cidrs", i.ExcludeCIDR, isPrefix)}
	if i.Scheduler == "" {
		errs = append(errs, errors.New("--ipvs-scheduler: must not be empty"))
	}
	for flag, d := range map[string]time.Duration{
		"--ipvs-tcp-timeout": i.TCPTimeout, "--ipvs-tcpfin-timeout": i.TCPFinTimeout, "--ipvs-udp-timeout": i.UDPTimeout,
		"--ipvs-graceful-period": i.GracefulPeriod,
	} {
		if d < 0 || d > maxTimeout {
			errs = append(errs, fmt.Errorf("%s=%s: must be between 0 and %s", flag, d, maxTimeout))
		}
	}
	return errors.Join(errs...)
}

// maxTimeout is what the kernel can count in jiffies (signed 32 bits at 1000 Hz).
const maxTimeout = 24 * 24 * time.Hour
