package dryrun

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Diff prints what differs between the kernel and what objects ask for, and reports whether anything does.
func (r *Renderer) Diff(ctx context.Context, stdout, stderr io.Writer) (bool, error) {
	have, err := inKernel(stderr)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(have.lines, inspect.Line.NoticesRefusals) {
		r.loop = r.NewLoop(refusing{r.Memory})
	}
	want, err := r.wanted(ctx)
	if err != nil {
		return false, err
	}
	fmt.Fprint(stderr, r.problems.take())
	differs, err := have.differences(want, stdout)
	if err != nil {
		return false, fmt.Errorf("write the differences: %w", err)
	}
	return differs, nil
}

// refusing has the kernel notice which endpoints refuse, although no Service may ask for it. A daemon does not take the
// rules for that out again, so a kernel that has them has what is wanted.
type refusing struct{ *dataplane.Memory }

func (d refusing) SetEnvironment(env dataplane.Environment) []state.Name {
	env.Refusing = env.Unanswered
	return d.Memory.SetEnvironment(env)
}

// contents is what both engines have.
type contents struct {
	lines   []inspect.Line
	servers []string // commands of ipvsadm, sorted
}

// wanted runs a pass in memory.
func (r *Renderer) wanted(ctx context.Context) (c contents, err error) {
	if err := r.load(ctx, r.folder()); err != nil {
		return c, err
	}
	if err := r.loop.Once(); err != nil {
		return c, err
	}
	if c.lines, err = r.Memory.Ruleset.Content(); err != nil {
		return c, err
	}
	c.lines = slices.DeleteFunc(c.lines, func(l inspect.Line) bool { return l.Family == program.IPv6 && !preflight.HasIPv6() })
	if r.Memory.Servers != nil {
		servers, err := r.Memory.Servers.List()
		c.servers = commandsOf(servers)
		return c, err
	}
	return c, nil
}

// inKernel reads both engines of this host.
func inKernel(stderr io.Writer) (c contents, err error) {
	lines, torn, err := inspect.Content(kernel.Options{})
	if err != nil {
		return c, snapshot.AsRoot(err)
	}
	if torn {
		fmt.Fprintln(stderr, "verdict: the tables changed during every attempt to read them, so some differences may be gone")
	}
	c.lines = lines
	servers, err := snapshot.VirtualServers()
	c.servers = commandsOf(servers)
	return c, err
}

func commandsOf(servers []ipvsctl.Status) (out []string) {
	for i := range servers {
		out = append(out, servers[i].Commands()...)
	}
	slices.Sort(out)
	return out
}

// differences prints what only one of the two has, and reports whether there is anything.
func (c *contents) differences(want contents, out io.Writer) (bool, error) {
	lines := inspect.Difference(c.lines, want.lines)
	differs := len(lines) > 0 || !slices.Equal(c.servers, want.servers)
	w := bufio.NewWriter(out)
	if differs {
		fmt.Fprintln(w, "--- kernel\n+++ wanted")
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	writeServers(w, c.servers, want.servers)
	return differs, w.Flush()
}

func writeServers(w io.Writer, have, want []string) {
	for _, side := range []struct {
		mark      string
		from, not []string
	}{{"-", have, want}, {"+", want, have}} {
		for _, line := range side.from {
			if _, found := slices.BinarySearch(side.not, line); !found {
				fmt.Fprintln(w, side.mark+line)
			}
		}
	}
}
