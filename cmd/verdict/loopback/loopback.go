// Package loopback has the sysctl that node ports on 127.0.0.1 need, and its guard: a table that drops packets for
// 127.0.0.0/8 from other hosts. Both stay while the daemon runs.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/report"
)

// Node ports on 127.0.0.1 need the sysctl net.ipv4.conf.all.route_localnet=1: the reply of a pod is addressed to
// 127.0.0.1, and without the sysctl the kernel drops it as a martian packet. With the sysctl, the kernel also accepts
// packets for 127.0.0.0/8 from other hosts (CVE-2020-8558), which the table ip verdict-loopback drops. The order is
// always:
//
//	write the table -> sysctl = 1 -> ... -> restore the sysctl -> delete the table
//
// A process that is killed between two of these steps leaves the table, not the sysctl without it. The comment of the
// table records the former value of the sysctl. The kernel keeps both for the same time: until the host restarts.
const (
	routeLocalnet = "net.ipv4.conf.all.route_localnet"
	recordPrefix  = routeLocalnet + " was " // of the table's comment
)

// Set brings the sysctl and its guard to what the settings need.
func Set(s *config.Settings, log *slog.Logger) error {
	if wantsLoopback(s.NodePortAddresses) {
		return open(log)
	}
	return Retire(log)
}

// setConfined does the same for the daemon, which may lack the right to write sysctls. If it cannot restore the
// sysctl, the guard stays.
func setConfined(s *config.Settings, log *slog.Logger) error {
	err := Set(s, log)
	if err == nil {
		warnOfLoopback(s, log)
	}
	if !errors.Is(err, nodesetup.ErrRefused) || wantsLoopback(s.NodePortAddresses) {
		return err
	}
	log.Error("cannot restore the sysctl that node ports on 127.0.0.1 needed; "+
		"a guard goes on dropping packets to 127.0.0.0/8 that come from outside", "guard", "table ip "+program.LoopbackTableName, "error", err)
	return nil
}

// warnOfLoopback logs that other hosts reach 127.0.0.0/8, which Set did not change: someone else has set the
// sysctl, or a flush of the ruleset took the record of Verdict.
func warnOfLoopback(s *config.Settings, log *slog.Logger) {
	if wantsLoopback(s.NodePortAddresses) {
		return
	}
	value, err1 := nodesetup.ReadSysctl(routeLocalnet)
	guard, err2 := kernel.ReadLoopbackGuard(kernel.Options{})
	switch err := errors.Join(err1, err2); {
	case err != nil:
		log.Warn("cannot tell whether other hosts reach services on 127.0.0.1 of this node; going on", "error", err)
	case value != "0" && !guard.Exists:
		log.Warn("hosts on the same link can reach services on 127.0.0.1 of this node (CVE-2020-8558): a sysctl allows it, "+
			"Verdict has no record of having set it, and leaves it", "sysctl", routeLocalnet+"="+value,
			"remedy", "sysctl -w "+routeLocalnet+"=0, unless other software needs it")
	}
}

func wantsLoopback(nodePortAddresses []string) bool {
	return slices.ContainsFunc(nodePortAddresses, func(word string) bool {
		p, err := netip.ParsePrefix(word)
		return word == config.NodePortLocalhost || err == nil && p.Addr().Is4() && p.Addr().IsLoopback()
	})
}

// open writes the guard and then sets the sysctl.
func open(log *slog.Logger) error {
	guard, err := kernel.ReadLoopbackGuard(kernel.Options{})
	if err != nil {
		return fmt.Errorf("prepare node ports on 127.0.0.1: %w", err)
	}
	was, err := nodesetup.ReadSysctl(routeLocalnet)
	if err != nil {
		return err
	}
	former := was
	if was != "0" {
		former = formerRouteLocalnet(guard)
	}
	if err := kernel.GuardLoopback(kernel.Options{}, recordPrefix+former); err != nil {
		return fmt.Errorf("prepare node ports on 127.0.0.1: %w", err)
	}
	if was != "0" {
		return nil
	}
	return nodesetup.WriteSysctl(routeLocalnet, "1", "node ports on 127.0.0.1", log)
}

// formerRouteLocalnet returns the value of the sysctl before Verdict set it, for when it is set now. Without a record
// but with the guard in the table ip verdict, a Verdict has set it and the record is lost: then it was most likely 0,
// the default. Without either, someone else has set it.
func formerRouteLocalnet(guard kernel.LoopbackGuard) string {
	former, recorded := strings.CutPrefix(guard.Record, recordPrefix)
	switch {
	case recorded:
		return former
	case guard.Exists || guard.Program:
		return "0"
	}
	return "1"
}

// Retire restores the sysctl if Verdict has set it, and then deletes the guard.
func Retire(log *slog.Logger) error {
	guard, err := kernel.ReadLoopbackGuard(kernel.Options{})
	if err != nil {
		return fmt.Errorf("look for the guard of 127.0.0.0/8: %w", err)
	}
	if !guard.Exists && !guard.Program {
		return nil
	}
	if err := restoreRouteLocalnet(guard, log); err != nil {
		return err
	}
	if err := kernel.UnguardLoopback(kernel.Options{}); err != nil {
		return fmt.Errorf("delete the guard of 127.0.0.0/8, which is not needed any more: %w", err)
	}
	return nil
}

func restoreRouteLocalnet(guard kernel.LoopbackGuard, log *slog.Logger) error {
	was, err := nodesetup.ReadSysctl(routeLocalnet)
	former := formerRouteLocalnet(guard)
	if err != nil || was == "0" || former != "0" {
		return err
	}
	if !guard.Exists {
		// The guard in the table ip verdict goes with that table, which the sysctl may outlive if it cannot be written.
		if err := kernel.GuardLoopback(kernel.Options{}, recordPrefix+former); err != nil {
			return fmt.Errorf("guard 127.0.0.0/8 until %s is restored: %w", routeLocalnet, err)
		}
	}
	return nodesetup.WriteSysctl(routeLocalnet, former, "no node ports on 127.0.0.1 any more", log)
}

// guardPeriod is how often the guard of 127.0.0.0/8 and its sysctl are looked at. The kernel also reports commits that
// change the guard.
const guardPeriod = 5 * time.Second

// Keeper keeps the table ip verdict-loopback and the sysctl route_localnet as they are after Set. What others do
// to the table could let packets from other hosts reach 127.0.0.0/8, or could drop all packets. Without the sysctl, node
// ports on 127.0.0.1 do not answer.
type Keeper struct {
	log     *slog.Logger
	changed chan string // the kernel told of a change by the process of this name

	mu      sync.Mutex // between Set and look
	repair  bool
	want    kernel.LoopbackGuard
	open    bool          // node ports answer on 127.0.0.1
	changes report.Tally  // of the guard
	said    report.Lately // that the sysctl was reset
}

// NewKeeper returns a keeper without a guard. Set writes it.
func NewKeeper(log *slog.Logger) *Keeper {
	return &Keeper{log: log, changed: make(chan string, 1), said: report.Lately{}}
}

// Set brings the sysctl and the guard to what the settings need, and notes the guard.
func (g *Keeper) Set(s *config.Settings) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := setConfined(s, g.log); err != nil {
		return err
	}
	want, err := kernel.ReadLoopbackGuard(kernel.Options{})
	g.want, g.repair, g.open = want, s.Repair, wantsLoopback(s.NodePortAddresses)
	return err
}

// Changed notifies the keeper that the guard may have changed. A notification that it has not read yet is merged with this one.
func (g *Keeper) Changed(process string) {
	select {
	case g.changed <- process:
	default:
	}
}

// Run looks at the guard until the context ends.
func (g *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(guardPeriod)
	defer tick.Stop()
	for {
		process := ""
		select {
		case <-ctx.Done():
			return nil
		case process = <-g.changed:
		case <-tick.C:
		}
		if err := g.look(process, time.Now()); err != nil {
			g.log.Warn("cannot look after the guard of 127.0.0.0/8; trying again", "every", guardPeriod, "error", err)
		}
	}
}

// look compares the guard and the sysctl with what is to be there, and writes again what differs. The guard comes first.
func (g *Keeper) look(process string, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.want.Exists {
		return nil
	}
	if err := g.lookAtGuard(process, now); err != nil || !g.open {
		return err
	}
	return g.lookAtSysctl(now)
}

// lookAtSysctl sets the sysctl again that another process has reset.
func (g *Keeper) lookAtSysctl(now time.Time) error {
	is, err := nodesetup.ReadSysctl(routeLocalnet)
	if err != nil || is != "0" {
		return err
	}
	next := "nothing, because of --repair=false"
	if g.repair {
		next = "it is set again"
		if err = nodesetup.WriteSysctl(routeLocalnet, "1", "node ports on 127.0.0.1", g.log); errors.Is(err, nodesetup.ErrRefused) {
			next, err = err.Error(), nil
		}
	}
	if g.said.Due(routeLocalnet, sayAgain, now) {
		g.log.Warn("another process reset the sysctl that node ports on 127.0.0.1 need", "sysctl", routeLocalnet, "next", next)
	}
	return err
}

func (g *Keeper) lookAtGuard(process string, now time.Time) error {
	is, err := kernel.ReadLoopbackGuard(kernel.Options{})
	if err != nil || is.Intact && is.Record == g.want.Record {
		return err
	}
	if g.repair { // first of all: the report may wait
		err = kernel.GuardLoopback(kernel.Options{}, g.want.Record)
	}
	if process == "" {
		process = g.author()
	}
	g.report(process, now)
	return err
}

// authorPatience is how long a change that the keeper found waits for the message of the kernel about it.
const authorPatience = 200 * time.Millisecond

// author names the process that made a change which the keeper found before the kernel told of it; "": the kernel does not
// tell.
func (g *Keeper) author() string {
	select {
	case process := <-g.changed:
		return process
	case <-time.After(authorPatience):
		return ""
	}
}

// sayAgain is how often it is logged that another process changes the guard or the sysctl.
const sayAgain = time.Minute

func (g *Keeper) report(process string, now time.Time) {
	changes := g.changes.Add(1, sayAgain, now)
	if changes == 0 {
		return
	}
	next := "it is written again"
	if !g.repair {
		next = "nothing, because of --repair=false"
	}
	g.log.Warn("another process changed the guard of 127.0.0.0/8, which drops packets from other hosts", "guard", "table ip "+program.LoopbackTableName,
		"process", process, "changes", changes, "next", next)
}
