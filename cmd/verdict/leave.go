package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// leaver waits for connections.
type leaver struct {
	settle, timeout time.Duration
	reset           bool
	out             io.Writer
	client          *socket.Client
	printed         string
}

func newLeave() *cobra.Command {
	l := leaver{settle: 30 * time.Second, timeout: 5 * time.Minute, client: socket.NewClient()}
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Hold a node that leaves until no connection goes through it to another one",
		Long: `If this node is leaving, wait until no client outside has an open connection through it to an endpoint on another node: such
connections die with this node, and nothing else keeps it for them. New connections are served as before. The node is leaving
if its Node has a taint of --leaving-taints, is being deleted or is gone, if its kubelet shuts it down, or if the system stops
(systemctl is-system-running). Otherwise the command ends at once, so that whatever stops Verdict can call it: an update or a
restart never waits.

With --reset, connections that are still open after --timeout end: whoever sends the next packet, client or endpoint, gets a
reset, so that clients connect anew at once instead of waiting for their own timeouts. The command then goes on for 5 seconds,
because whoever stops the node may end it as soon as the command ends. A connection without packets in this time cannot be ended
from here, and neither can UDP flows, what IPVS carries, and what is not masqueraded.`,
		Args: flags.None,
	}
	cmd.Flags().DurationVar(&l.settle, "settle", l.settle, "`TIME` that load balancers have to notice, from when the node began to leave; new connections may come until then")
	cmd.Flags().DurationVar(&l.timeout, "timeout", l.timeout, "`TIME` after which the command ends nevertheless")
	cmd.Flags().BoolVar(&l.reset, "reset", false, "after --timeout, reset TCP connections that are still open, and wait 5 seconds for their packets")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if l.settle < 0 || l.timeout < 0 {
			return flags.Wrong(errors.New("--settle and --timeout must not be negative"))
		}
		l.out = cmd.OutOrStdout()
		if err := l.run(cmd.Context()); err != nil {
			return fmt.Errorf("leave: %w", err)
		}
		return nil
	}
	return cmd
}

// leavePeriod is how often the daemon is asked.
const leavePeriod = time.Second

func (l *leaver) run(ctx context.Context) error {
	deadline := time.Now().Add(l.timeout)
	stops, known := systemStops(ctx)
	if stops {
		if err := l.client.Leave(); err != nil {
			return err
		}
	}
	for again := false; ; again = true {
		status, err := l.client.Status()
		switch {
		case err != nil:
			return err
		case status.Leaving == "" && (known || again): // a kubelet ends its pods and tells the API server about it at the same time
			l.print("this node stays; there is nothing to wait for")
			return nil
		case status.Leaving != "":
			if done, err := l.look(ctx, &status, deadline); done || err != nil {
				return err
			}
		}
		select {
		case <-time.After(leavePeriod):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look counts the connections, and reports whether there is nothing left to wait for.
func (l *leaver) look(ctx context.Context, status *socket.Status, deadline time.Time) (done bool, err error) {
	rows, err := l.client.Passing(leavePeriod / 2)
	if err != nil {
		return false, err
	}
	n, settling := socket.Stranded(rows), l.settle-time.Since(status.LeavingSince)
	text := "clients outside have " + state.Plural(n, "open connection") + " through this node to others"
	switch {
	case n == 0 && settling <= 0:
		l.print("no client outside has an open connection through this node to another one")
		return true, nil
	case !time.Now().Before(deadline):
		l.print("the time is over; " + text)
		if l.reset {
			return true, l.end(ctx, l.client.End)
		}
		return true, nil
	case n == 0:
		text += "; load balancers have time to notice"
	}
	l.print("this node is leaving (" + status.Leaving + "); " + text)
	return false, nil
}

// lastPackets is how long connections that the daemon has ended may still send the packet that is reset. A kubelet that shuts the node
// down ends the machine as soon as the command ends.
const lastPackets = 5 * time.Second

// end resets the open connections, and waits for their next packets.
func (l *leaver) end(ctx context.Context, mark func() (int, error)) error {
	ended, err := mark()
	l.print(state.Plural(ended, "connection") + " will be reset with the next packet")
	if ended == 0 {
		return err
	}
	select {
	case <-time.After(lastPackets):
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

func (l *leaver) print(text string) {
	if text != l.printed {
		fmt.Fprintln(l.out, text)
	}
	l.printed = text
}

// systemStops asks systemd whether it shuts the system down. It is unknown without systemd, as in a container.
func systemStops(ctx context.Context) (stops, known bool) {
	out, err := exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran { // it fails in all states but one
		return false, false
	}
	is := strings.TrimSpace(string(out))
	return is == "stopping", is != "" && is != "unknown" && is != "offline"
}
