package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

const topHelp = `Show which Services get how many connections per second, from the counters of the kernel, and what
the daemon does.

  Conn/s      new connections per second, of all frontends of a service port together
  Refused/s   connections that were refused or dropped because no endpoint can take them
  Total       connections since the frontends were written

The first lines show the daemon, if it runs: its latest pass, what waits, and how many parts of objects are not
honored.

Keys: c, r, t and n sort by connections, refusals, total and name; q ends.

The counters of nft count at frontends. The kernel has no counter for each endpoint; "verdict list" counts the open
connections of endpoints.`

// topOptions are the flags of top.
type topOptions struct {
	interval time.Duration
	once     bool
	sort     string
	services []filter
}

// NewTop returns the command "top". usage marks an error as wrong usage.
func NewTop(usage func(error) error) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [NAMESPACE | NAMESPACE/SERVICE | NAMESPACE/SERVICE:PORT]...",
		Short: "Show connections per second of each Service, again and again",
		Long:  topHelp,
		Example: `  verdict top
  verdict top --sort refused default
  verdict top --once --interval 5s`,
		ValidArgsFunction: CompleteNames,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.services, err = parseFilters(args); err != nil {
				return usage(err)
			}
			if err := o.validate(); err != nil {
				return usage(err)
			}
			return o.run(cmd)
		},
	}
	cmd.Flags().DurationVar(&o.interval, "interval", time.Second, "count over this `TIME`")
	cmd.Flags().BoolVar(&o.once, "once", false, "print one table without a terminal, and end")
	cmd.Flags().StringVar(&o.sort, "sort", "connections", "sort by `COLUMN`: connections, refused, total or name")
	return cmd
}

// sortKeys are the columns by their keys.
func sortKeys() map[string]string {
	return map[string]string{"c": "connections", "r": "refused", "t": "total", "n": "name"}
}

func (o *topOptions) validate() error {
	known := false
	for _, column := range sortKeys() {
		known = known || column == o.sort
	}
	switch {
	case !known:
		return fmt.Errorf("--sort=%s: must be connections, refused, total or name", o.sort)
	case o.interval < 100*time.Millisecond || o.interval > maxRate:
		return fmt.Errorf("--interval=%s: must be between 100ms and %s", o.interval, maxRate)
	}
	return nil
}

func sortLoads(rows []Load, column string) {
	slices.SortFunc(rows, func(a, b Load) int {
		first := 0
		switch column {
		case "connections":
			first = cmp.Compare(b.Rate, a.Rate)
		case "refused":
			first = cmp.Compare(b.Refused, a.Refused)
		case "total":
			first = cmp.Compare(b.Total, a.Total)
		}
		return cmp.Or(first, cmp.Compare(a.Service, b.Service))
	})
}

// writeLoads writes the table, cut to a size; 0: not cut.
func writeLoads(w io.Writer, rows []Load, width, height int) {
	if height > 1 && len(rows) > height-1 {
		rows = rows[:height-1]
	}
	name := len("Service")
	for i := range rows {
		name = max(name, len(rows[i].Service))
	}
	if width > 0 {
		name = min(name, max(width-35, 10))
	}
	fmt.Fprintf(w, "%-*s %10s %10s %12s\n", name, "Service", "Conn/s", "Refused/s", "Total")
	for i := range rows {
		r := &rows[i]
		text := r.Service
		if len(text) > name {
			text = text[:name-1] + "~"
		}
		fmt.Fprintf(w, "%-*s %10.1f %10.1f %12d\n", name, text, r.Rate, r.Refused, r.Total)
	}
}

// daemonLines describe the daemon.
func daemonLines(c *socket.Client, now time.Time) []string {
	s, err := c.Status()
	if errors.Is(err, socket.ErrNotRunning) {
		return []string{"daemon: none answers"}
	}
	if err != nil {
		return []string{"daemon: " + err.Error()}
	}
	line := fmt.Sprintf("daemon: pid %d, %d passes, %d Services wait", s.PID, s.Passes, s.WaitingServices)
	if !s.Waiting.IsZero() {
		line += fmt.Sprintf(" since %s", now.Sub(s.Waiting).Round(time.Second))
	}
	if s.LastError != "" {
		line += "; the latest pass failed: " + s.LastError
	}
	return []string{line, latestPass(c, now)}
}

// latestPass describes the latest pass and what is not honored.
func latestPass(c *socket.Client, now time.Time) string {
	problems, err := c.Problems("")
	passes, passErr := c.Passes()
	if err = errors.Join(err, passErr); err != nil || len(passes) == 0 {
		return "latest pass: none"
	}
	p := passes[0]
	return fmt.Sprintf("latest pass: %s ago, %.1f ms (kernel %.1f ms), +%d -%d elements; not honored: %d",
		now.Sub(p.Started).Round(time.Second), 1000*p.Seconds, 1000*p.InKernel, p.Added, p.Deleted, len(problems))
}

func (o *topOptions) run(cmd *cobra.Command) error {
	match := (&options{services: o.services}).match()
	before, err := readCounts(match)
	if err != nil {
		return err
	}
	if o.once {
		return o.printOnce(cmd, before, match)
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return errors.New("top needs a terminal; without one, use --once")
	}
	return o.live(cmd.Context(), cmd.OutOrStdout(), before, match)
}

func (o *topOptions) printOnce(cmd *cobra.Command, before counts, match func(string) bool) error {
	if err := pause(cmd.Context(), o.interval); err != nil {
		return err
	}
	now, err := readCounts(match)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, line := range daemonLines(socket.NewClient(), time.Now()) {
		fmt.Fprintln(out, line)
	}
	rows := loads(before, now)
	sortLoads(rows, o.sort)
	writeLoads(out, rows, 0, 0)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sequences of terminals (ECMA-48, xterm).
const (
	screenOn  = "\x1b[?1049h\x1b[?25l"
	screenOff = "\x1b[?25h\x1b[?1049l"
	screenTop = "\x1b[H\x1b[J"
)

// live draws until q or the end of the context.
func (o *topOptions) live(ctx context.Context, out io.Writer, before counts, match func(string) bool) error {
	was, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return fmt.Errorf("prepare the terminal: %w", err)
	}
	fmt.Fprint(out, screenOn)
	defer func() {
		fmt.Fprint(out, screenOff)
		_ = term.Restore(int(os.Stdin.Fd()), was) // there is nobody to tell
	}()
	keys := make(chan string)
	go readKeys(ctx, keys)
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	rows, daemon := []Load(nil), daemonLines(socket.NewClient(), time.Now())
	for {
		o.draw(out, rows, daemon)
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if key == "q" || key == "\x03" {
				return nil
			}
			if column, ok := sortKeys()[key]; ok {
				o.sort = column
			}
		case <-tick.C:
			now, err := readCounts(match)
			if err != nil {
				return err
			}
			rows, daemon, before = loads(before, now), daemonLines(socket.NewClient(), time.Now()), now
		}
	}
}

func readKeys(ctx context.Context, keys chan<- string) {
	b := make([]byte, 1)
	for {
		if n, err := os.Stdin.Read(b); err != nil || n == 0 {
			return
		}
		select {
		case keys <- string(b):
		case <-ctx.Done():
			return
		}
	}
}

// draw fills the screen.
func (o *topOptions) draw(out io.Writer, rows []Load, daemon []string) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	fmt.Fprint(out, screenTop+strings.ReplaceAll(o.screen(rows, daemon, width, height), "\n", "\r\n"))
}

// screen is what the terminal shows, without a line feed at the end.
func (o *topOptions) screen(rows []Load, daemon []string, width, height int) string {
	var b strings.Builder
	head := append(slices.Clone(daemon), fmt.Sprintf("%s; every %s; sorted by %s (keys c r t n, q ends)",
		count(len(rows), "service port"), o.interval, o.sort))
	for _, line := range head {
		if len(line) > width {
			line = line[:width]
		}
		fmt.Fprintln(&b, line)
	}
	sortLoads(rows, o.sort)
	writeLoads(&b, rows, width, height-len(head))
	return strings.TrimSuffix(b.String(), "\n")
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
