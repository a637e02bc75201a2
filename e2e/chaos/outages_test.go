//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/chaos/inject"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// daemonFaults are what happens to the daemon.
func daemonFaults() []fault {
	return []fault{
		{name: "daemon killed", weight: 10, begin: func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.daemon.start() }, b.daemon.kill()
		}},
		{name: "daemon stopped for a while", weight: 8, begin: func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.daemon.start() }, b.daemon.stop()
		}},
		{name: "daemon suspended", weight: 8, begin: suspended},
		{name: "other backend", weight: 6, begin: func(b *bed, r *rand.Rand) (func() error, error) {
			return nil, b.daemon.restart([]string{"--backend=" + objects.OneOf(r, backends()...)}, nil)
		}},
		{name: "other flags", weight: 6, begin: func(b *bed, r *rand.Rand) (func() error, error) {
			addresses := objects.OneOf(r, "primary", "all", "primary,localhost", "0.0.0.0/0,::/0")
			flags := []string{"--nodeport-addresses=" + addresses, fmt.Sprintf("--masquerade-all=%t", r.IntN(2) == 0)}
			return nil, b.daemon.restart(flags, []string{"--min-sync-period=" + objects.OneOf(r, "0s", "10ms", "200ms")})
		}},
		{name: "daemon without repair", weight: 3, begin: withFlag(withoutRepair)},
		{name: "daemon owns its tables", weight: 4, begin: withFlag("--table-owner=auto")},
		{name: otherVersion, weight: 6, begin: changeVersion},
		{name: "other clock", weight: 4, begin: otherClock},
		{name: "system calls fail", weight: 8, begin: systemCallsFail},
		{name: "second daemon", weight: 4, begin: secondDaemon},
		{name: "daemon replaced while it runs", weight: 6, begin: replace},
	}
}

// backends are those that are nft here.
func backends() []string {
	if hasIPVS() {
		return []string{"nft"}
	}
	return []string{"nft", "hybrid", "ipvs"}
}

// hasIPVS reports whether the kernel has IPVS. The rounds are made for nft then: IPVS would keep connections that a fault has moved away,
// and with them rules and guards that no fresh plan has. Package random has the other backends.
var hasIPVS = sync.OnceValue(func() bool {
	program, err := os.ReadFile("/proc/sys/kernel/modprobe")
	if err == nil {
		_ = exec.Command(strings.TrimSpace(string(program)), "ip_vs").Run() // many kernels have no such module
	}
	_, err = os.Stat("/proc/net/ip_vs")
	return err == nil
})

// withFlag has the daemon run with one more flag for a while.
func withFlag(flag string) func(*bed, *rand.Rand) (func() error, error) {
	return func(b *bed, _ *rand.Rand) (func() error, error) {
		return func() error { return b.daemon.restart(b.daemon.flags, nil) }, b.daemon.restart(b.daemon.flags, []string{flag})
	}
}

func suspended(b *bed, _ *rand.Rand) (func() error, error) {
	p := b.daemon.running()
	if p == nil {
		return nil, nil
	}
	b.daemon.troubled = true
	return func() error {
		b.daemon.troubled = false
		return send(p, syscall.SIGCONT)
	}, send(p, syscall.SIGSTOP)
}

// otherVersion is drawn only with the flag -other.
const otherVersion = "other version"

// changeVersion has another version of the program take over. In half of the cases it starts while the first one runs, as in
// a rolling update.
func changeVersion(b *bed, r *rand.Rand) (func() error, error) {
	next := &b.daemon.versions[r.IntN(len(b.daemon.versions))]
	b.daemon.binary, *next = *next, b.daemon.binary
	b.ledger.openForAffinity()
	b.ledger.note("the next version is %s", filepath.Base(b.daemon.binary))
	if r.IntN(2) == 0 {
		if end, err := replace(b, r); end != nil || err != nil {
			return end, err
		}
	}
	return nil, b.daemon.restart(b.daemon.flags, nil)
}

// otherClock starts the daemon in a time namespace, in which the machine seems to have started at another time.
func otherClock(b *bed, r *rand.Rand) (func() error, error) {
	if err := b.daemon.stop(); err != nil {
		return nil, err
	}
	seconds := fmt.Sprint(objects.OneOf(r, 3600, 30*86400, 10*365*86400))
	return nil, b.daemon.start("unshare", "--time", "--boottime", seconds, "--monotonic", seconds)
}

// systemCallsFail starts the daemon anew, and lets a part of its netlink calls fail for a while.
func systemCallsFail(b *bed, r *rand.Rand) (func() error, error) {
	if err := b.daemon.stop(); err != nil {
		return nil, err
	}
	i, err := inject.Start(func(before ...string) (int, error) {
		if err := b.daemon.start(before...); err != nil {
			return 0, err
		}
		return b.daemon.running().PID(), nil
	})
	if err != nil {
		return nil, err
	}
	share := objects.OneOf(r, int64(20), 100, 300)
	// An error at the start would rightly end it. It may have to wait for the API server, and then they fail earlier.
	if err := b.daemon.firstPass(slower(claimPatience)); err != nil {
		b.ledger.note("system calls fail before the first pass: %v", err)
	}
	i.Fail(share)
	b.daemon.troubled = true
	return func() error {
		pause(r, time.Second)
		i.Fail(0)
		b.daemon.troubled = false
		b.ledger.failedCalls(i.Count())
		return nil
	}, nil
}

// claimWait is how long a daemon waits for another one to end.
const claimWait = 20 * time.Second

// secondDaemon starts another daemon, which must not touch the rules while the first one runs.
func secondDaemon(b *bed, r *rand.Rand) (func() error, error) {
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
		if b.editor.monitor.wroteSince(began, second.PID()) {
			err = errors.New("the second daemon wrote rules while the first one ran")
		}
	}
	_ = second.Stop() // it ends with an error, because it was interrupted while it waited
	return nil, err
}

// replace starts a daemon beside the running one and then stops the running one, as a rolling update does.
func replace(b *bed, r *rand.Rand) (func() error, error) {
	old := b.daemon.serving()
	if old == nil {
		return nil, nil
	}
	began := time.Now()
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
		select {
		case <-fresh.Exited():
			// It waits for 20 seconds. An API server that has to end first can take longer than that.
			if time.Since(began) < claimWait {
				err = errors.Join(err, fmt.Errorf("the next daemon ended early; its log ends:\n%s", fresh.Log(5)))
			}
			return errors.Join(err, b.daemon.start())
		default:
			b.daemon.process = fresh
		}
		return err
	}, nil
}

// outsideFaults are what happens to everything around the daemon.
func outsideFaults() []fault {
	return []fault{
		{name: "API server killed", weight: 1, api: true, begin: serverKilled(apiserver.Server)},
		{name: "etcd killed", weight: 2, api: true, begin: serverKilled(apiserver.Etcd)},
		{name: "API server stopped", weight: 1, api: true, begin: func(b *bed, _ *rand.Rand) (func() error, error) {
			b.plane.Stop(apiserver.Server)
			return func() error { return b.plane.Restart(apiserver.Server) }, nil
		}},
		{name: "API server suspended", weight: 3, api: true, begin: func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.plane.Signal(apiserver.Server, syscall.SIGCONT) },
				b.plane.Signal(apiserver.Server, syscall.SIGSTOP)
		}},
		{name: "etcd saved", weight: 3, api: true, begin: func(b *bed, _ *rand.Rand) (func() error, error) { return nil, b.plane.Save() }},
		{name: "etcd restored", weight: 1, api: true, begin: func(b *bed, _ *rand.Rand) (func() error, error) { return nil, b.plane.Restore() }},
		{name: "link to the API server down", weight: 3, api: true, begin: func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.world.PlugAttached(true) }, b.world.PlugAttached(false)
		}},
		{name: "client's link down", weight: 3, begin: func(b *bed, _ *rand.Rand) (func() error, error) {
			return func() error { return b.world.Plug("y", true) }, b.world.Plug("y", false) // no judged client is there
		}},
		{name: "addresses of the node change", weight: 12, begin: changeAddresses},
		{name: "devices come and go", weight: 4, begin: devicesComeAndGo},
		{name: "burst of changes", weight: 4, begin: func(b *bed, r *rand.Rand) (func() error, error) {
			b.churn.burst(r, 40)
			return nil, nil
		}},
		{name: "hostile objects", weight: 8, api: true, begin: func(b *bed, r *rand.Rand) (func() error, error) {
			b.churn.attack(r)
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

// changeAddresses gives the node further addresses for a while, or takes one away. No client of an untouched Service uses
// them.
func changeAddresses(b *bed, r *rand.Rand) (func() error, error) {
	change := func(add bool, link string, p netip.Prefix) error {
		if add {
			return b.world.Node.AddAddress(link, p)
		}
		return b.world.Node.RemoveAddress(link, p)
	}
	var ends []func() error
	for range 1 + r.IntN(4) {
		f := objects.OneOf(r, lab.Families()...)
		bits := map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64}[f]
		random := lab.Member(f, "PASSING", 1+r.IntN(200))
		what := objects.OneOf(r, []struct {
			link string
			addr netip.Prefix
			add  bool
		}{
			{"lo", netip.PrefixFrom(random, random.BitLen()), true},
			{lab.OutsideLink, netip.PrefixFrom(lab.Address(f, "SPARE"), bits), true},
			{lab.OutsideLink, netip.PrefixFrom(lab.Address(f, "NODE_SECOND"), bits), false},
		}...)
		if err := change(what.add, what.link, what.addr); err != nil {
			b.ledger.note("an address is as it should become: %v", err) // it was drawn twice
			continue
		}
		ends = append(ends, func() error { return change(!what.add, what.link, what.addr) })
	}
	return func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}, nil
}

// devicesComeAndGo gives the node further devices for a while, as pods that start and end do.
func devicesComeAndGo(b *bed, r *rand.Rand) (func() error, error) {
	n := 1 + r.IntN(5)
	each := func(do func(name string) error) error {
		var errs []error
		for i := range n {
			errs = append(errs, do(fmt.Sprintf("passing-%d", i)))
		}
		return errors.Join(errs...)
	}
	err := each(func(name string) error {
		_, err := b.world.Node.Command("ip", "link", "add", name, "up", "type", "veth", "peer", "name", name+"-peer")
		return err
	})
	pause(r, slower(3*time.Second)) // the fast path follows devices each second
	return func() error { return each(b.world.Node.DeleteLink) }, err
}

// objectFaults are changes that clients of the untouched Services must not notice.
func objectFaults() []fault {
	return []fault{
		{name: "classes of untouched Services change", weight: 8, begin: changeClasses},
		{name: "cleanup beside the daemon", weight: 2, begin: cleanUpBeside},
		{name: "damaged files at a restart", weight: 8, files: true, begin: damageFiles},
	}
}

// changeClasses changes how the endpoints of untouched Services are drawn, several times. Each endpoint stays one.
func changeClasses(b *bed, r *rand.Rand) (func() error, error) {
	for range 1 + r.IntN(6) {
		for _, s := range stableServices() {
			if s.sticky {
				continue // its clients must stay with their endpoints
			}
			svc := s.service()
			objects.Schedule(svc, objects.OneOf(r, "random", "rr", "wrr", "mh", "sh", ""))
			if r.IntN(2) == 0 {
				objects.Stick(svc, objects.OneOf[int32](r, 1, 5, 600))
			}
			ctx, cancel := context.WithTimeout(context.Background(), writePatience)
			if err := b.writer.put(ctx, svc); err != nil {
				b.ledger.note("a class stays: %v", err) // the API server may be down
			}
			cancel()
		}
		pause(r, 100*time.Millisecond)
	}
	return nil, nil
}

// cleanUpBeside runs "verdict cleanup" beside the daemon. It must fail and change nothing.
func cleanUpBeside(b *bed, _ *rand.Rand) (func() error, error) {
	if b.daemon.serving() == nil {
		return nil, nil
	}
	out, err := b.world.Node.Command(b.daemon.binary, "cleanup")
	switch {
	case err == nil:
		err = fmt.Errorf("verdict cleanup removed what a daemon serves: %s", out)
	case strings.Contains(err.Error(), "nothing was removed"):
		err = nil
	}
	return nil, err
}

// damageFiles kills the daemon, damages manifests or takes their folder away, and starts the daemon again: what the files
// had stays. Then the files are as they were.
func damageFiles(b *bed, r *rand.Rand) (_ func() error, err error) {
	b.churn.hold()
	defer b.churn.release()
	if err := b.daemon.kill(); err != nil {
		return nil, err
	}
	dir := string(b.writer.(manifestFolder)) // the daemon follows a folder
	repair, err := damage(dir, r)
	if err == nil {
		err = b.daemon.start()
	}
	if err == nil {
		err = b.daemon.firstPass(slower(settlePatience))
	}
	pause(r, quiet)
	return nil, errors.Join(err, repair())
}

// damage returns a function that gives the files back.
func damage(dir string, r *rand.Rand) (repair func() error, err error) {
	if r.IntN(4) == 0 {
		away := dir + ".away"
		return func() error { return errors.Join(os.RemoveAll(dir), os.Rename(away, dir)) }, os.Rename(dir, away)
	}
	texts := map[string][]byte{}
	repair = func() error {
		var errs []error
		for file, text := range texts {
			errs = append(errs, os.WriteFile(file, text, 0o644))
		}
		return errors.Join(errs...)
	}
	files, err := filepath.Glob(filepath.Join(dir, "[se]*.yaml")) // Services and EndpointSlices; the Node is not kept
	for _, file := range files {
		if r.IntN(4) == 0 {
			continue
		}
		text, readErr := os.ReadFile(file)
		texts[file] = text
		err = errors.Join(err, readErr, os.WriteFile(file, text[:1+r.IntN(len(text)/2)], 0o644))
	}
	return repair, err
}
