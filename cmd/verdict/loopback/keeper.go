package loopback

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// guardPeriod is how often the guard of 127.0.0.0/8 and its sysctl are looked at. The kernel also tells of commits that
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
	open    bool      // node ports answer on 127.0.0.1
	said    time.Time // when a change was logged
	changes int       // since then
	reset   time.Time // when a change of the sysctl was logged
}

// NewKeeper returns a keeper without a guard. Set writes it.
func NewKeeper(log *slog.Logger) *Keeper {
	return &Keeper{log: log, changed: make(chan string, 1)}
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
	is, err := readRouteLocalnet()
	if err != nil || is != "0" {
		return err
	}
	next := "nothing, because of --repair=false"
	if g.repair {
		next = "it is set again"
		if err = writeRouteLocalnet("1", "node ports on 127.0.0.1", g.log); errors.Is(err, nodesetup.ErrRefused) {
			next, err = err.Error(), nil
		}
	}
	if now.Sub(g.reset) >= time.Minute {
		g.log.Warn("another process reset the sysctl that node ports on 127.0.0.1 need", "sysctl", routeLocalnet, "next", next)
		g.reset = now
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

// report logs a change, at most once a minute.
func (g *Keeper) report(process string, now time.Time) {
	if g.changes++; now.Sub(g.said) < time.Minute {
		return
	}
	next := "it is written again"
	if !g.repair {
		next = "nothing, because of --repair=false"
	}
	g.log.Warn("another process changed the guard of 127.0.0.0/8, which drops packets from other hosts", "guard", "table ip "+program.LoopbackTableName,
		"process", process, "changes", g.changes, "next", next)
	g.said, g.changes = now, 0
}
