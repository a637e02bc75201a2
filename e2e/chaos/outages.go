package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// daemonFaults are what happens to the daemon.
func daemonFaults() []fault {
	return []fault{
		{"daemon killed", 10, func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.daemon.start() }, b.daemon.kill()
		}},
		{"daemon stopped for a while", 8, func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.daemon.start() }, b.daemon.stop()
		}},
		{"daemon suspended", 8, func(b *bed, _ *rand.Rand) (func() error, error) {
			p := b.daemon.running()
			if p == nil {
				return nil, nil
			}
			b.suspended = true
			return func() error {
				b.suspended = false
				return send(p, syscall.SIGCONT)
			}, send(p, syscall.SIGSTOP)
		}},
		{"other backend", 6, func(b *bed, r *rand.Rand) (func() error, error) {
			return nil, b.daemon.restart([]string{"--backend=" + oneOf(r, "nft", "hybrid", "ipvs")}, nil)
		}},
		{"other flags", 6, func(b *bed, r *rand.Rand) (func() error, error) {
			addresses := oneOf(r, "primary", "all", "primary,localhost", "0.0.0.0/0,::/0")
			flags := []string{"--nodeport-addresses=" + addresses, fmt.Sprintf("--masquerade-all=%t", r.IntN(2) == 0)}
			return nil, b.daemon.restart(flags, []string{"--min-sync-period=" + oneOf(r, "0s", "10ms", "200ms")})
		}},
		{"daemon without repair", 3, func(b *bed, _ *rand.Rand) (func() error, error) {
			back := func() error { return b.daemon.restart(b.daemon.flags, nil) }
			return back, b.daemon.restart(b.daemon.flags, []string{"--repair=false"})
		}},
		{"daemon owns its tables", 4, func(b *bed, _ *rand.Rand) (func() error, error) {
			back := func() error { return b.daemon.restart(b.daemon.flags, nil) }
			return back, b.daemon.restart(b.daemon.flags, []string{"--table-owner=auto"})
		}},
		{otherVersion, 6, (*bed).changeVersion},
		{"other clock", 4, (*bed).otherClock},
		{"system calls fail", 8, (*bed).systemCallsFail},
		{"second daemon", 4, (*bed).secondDaemon},
		{"daemon replaced while it runs", 6, (*bed).replace},
	}
}

// otherVersion is drawn only with the flag -other.
const otherVersion = "other version"

// changeVersion has the other version of the program take over. In half of the cases it starts while the first one runs,
// as in a rolling update.
func (b *bed) changeVersion(r *rand.Rand) (func() error, error) {
	b.daemon.binary, b.otherBinary = b.otherBinary, b.daemon.binary
	if r.IntN(2) == 0 {
		if end, err := b.replace(r); end != nil || err != nil {
			return end, err
		}
	}
	return nil, b.daemon.restart(b.daemon.flags, nil)
}

// otherClock starts the daemon in a time namespace, in which the machine seems to have started at another time.
func (b *bed) otherClock(r *rand.Rand) (func() error, error) {
	if err := b.daemon.stop(); err != nil {
		return nil, err
	}
	seconds := fmt.Sprint(oneOf(r, 3600, 30*86400, 10*365*86400))
	return nil, b.daemon.start("unshare", "--time", "--boottime", seconds, "--monotonic", seconds)
}

// secondDaemon starts another daemon, which must not touch the rules while the first one runs.
func (b *bed) secondDaemon(r *rand.Rand) (func() error, error) {
	first := b.daemon.serving()
	if first == nil {
		return nil, nil
	}
	began := time.Now()
	second, err := b.daemon.spawn()
	if err != nil {
		return nil, err
	}
	pause(r, time.Second)
	select {
	case <-second.Exited():
		err = fmt.Errorf("the second daemon ended early; its log ends:\n%s", second.Log(5))
	default:
		if b.monitor.wroteSince(began, second.PID()) {
			err = errors.New("the second daemon wrote rules while the first one ran")
		}
	}
	_ = second.Stop() // it ends with an error, because it was interrupted while it waited
	return nil, err
}

// replace starts a daemon beside the running one and then stops the running one, as a rolling update does.
func (b *bed) replace(r *rand.Rand) (func() error, error) {
	old := b.daemon.serving()
	if old == nil {
		return nil, nil
	}
	fresh, err := b.daemon.spawn()
	if err != nil {
		return nil, err
	}
	return func() error {
		pause(r, 300*time.Millisecond)
		if b.daemon.running() != old { // another fault has replaced it
			return fresh.Kill()
		}
		err := b.daemon.stop()
		b.daemon.adopt(fresh)
		return err
	}, nil
}

// outsideFaults are what happens to everything around the daemon.
func outsideFaults() []fault {
	return []fault{
		{"API server killed", 1, serverKilled(apiserver.Server)},
		{"etcd killed", 2, serverKilled(apiserver.Etcd)},
		{"API server stopped", 1, func(b *bed, _ *rand.Rand) (func() error, error) {
			b.plane.Stop(apiserver.Server)
			return func() error { return b.plane.Restart(apiserver.Server) }, nil
		}},
		{"API server suspended", 3, func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.plane.Signal(apiserver.Server, syscall.SIGCONT) },
				b.plane.Signal(apiserver.Server, syscall.SIGSTOP)
		}},
		{"etcd saved", 3, func(b *bed, _ *rand.Rand) (func() error, error) { return nil, b.plane.Save() }},
		{"etcd restored", 1, func(b *bed, _ *rand.Rand) (func() error, error) { return nil, b.plane.Restore() }},
		{"link to the API server down", 3, func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.world.PlugAttached(true) }, b.world.PlugAttached(false)
		}},
		{"endpoint's link down", 4, unplugged("b")},
		{"client's link down", 3, unplugged("y")},
		{"node address added", 4, addressAdded},
		{"node address removed", 4, addressRemoved},
		{"burst of changes", 4, func(b *bed, r *rand.Rand) (func() error, error) {
			b.churn.burst(r, 40)
			return nil, nil
		}},
		{"hostile objects", 8, func(b *bed, r *rand.Rand) (func() error, error) {
			b.attack(r)
			return nil, nil
		}},
	}
}

// serverKilled kills a part of the control plane, and starts it again in the end.
func serverKilled(p apiserver.Part) func(*bed, *rand.Rand) (func() error, error) {
	return func(b *bed, _ *rand.Rand) (func() error, error) {
		return func() error { return b.plane.Restart(p) }, b.plane.Kill(p)
	}
}

// unplugged takes the link to a place away. Neither judged clients nor endpoints of untouched Services are there.
func unplugged(place string) func(*bed, *rand.Rand) (func() error, error) {
	return func(b *bed, _ *rand.Rand) (func() error, error) {
		return func() error { return b.world.Plug(place, true) }, b.world.Plug(place, false)
	}
}

// addressAdded gives the node another address for a while.
func addressAdded(b *bed, r *rand.Rand) (func() error, error) {
	spare := network(oneOf(r, lab.Families()...), "SPARE")
	return func() error { return b.world.Node.RemoveAddress(lab.OutsideLink, spare) },
		b.world.Node.AddAddress(lab.OutsideLink, spare)
}

// addressRemoved takes an address of the node away for a while. No client of an untouched Service uses it.
func addressRemoved(b *bed, r *rand.Rand) (func() error, error) {
	second := network(oneOf(r, lab.Families()...), "NODE_SECOND")
	return func() error { return b.world.Node.AddAddress(lab.OutsideLink, second) },
		b.world.Node.RemoveAddress(lab.OutsideLink, second)
}

// network is an address of the node with the length of its network.
func network(f lab.Family, name string) netip.Prefix {
	return netip.PrefixFrom(named(f, name), map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64}[f])
}
