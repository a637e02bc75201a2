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

Keys: c, r, t and n sort by connections, refusals, total and name; e shows endpoints, and again Services; q ends.

With --endpoints or the key e, each row is an endpoint. IPVS has a counter for each endpoint. nft has counters for
frontends only, so the command counts the messages of connection tracking about new connections, which name the
endpoint that was picked. Each new connection of the host then costs the kernel about a microsecond more, for as long as
the command runs. If the kernel has to drop messages, a line says so, and the rates are too low.`

// topOptions are the flags of top.
type topOptions struct {
	interval time.Duration
	once     bool
	ends     bool // rows are endpoints
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
  verdict top --endpoints default/web
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
	cmd.Flags().BoolVar(&o.ends, "endpoints", false, "show a row for each endpoint")
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
		fmt.Fprintf(w, "%-*s %10.1f %10.1f %12d\n", name, cut(r.Service, name), r.Rate, r.Refused, r.Total)
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
	t := &top{topOptions: *o, match: (&options{services: o.services}).match()}
	defer t.close()
	if err := t.begin(); err != nil {
		return err
	}
	if o.once {
		return t.printOnce(cmd)
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return errors.New("top needs a terminal; without one, use --once")
	}
	return t.live(cmd)
}

// top is what the command has measured.
type top struct {
	topOptions
	match  func(string) bool
	before counts
	meter  *endpointMeter // nil: rows are Services
	rows   []Load
	loads  []endpointLoad
	daemon []string
}

// begin begins an interval.
func (t *top) begin() (err error) {
	if t.ends && t.meter == nil {
		if t.meter, err = openEndpointMeter(); err != nil {
			return err
		}
	}
	if !t.ends {
		t.close()
	}
	t.before, err = readCounts(t.match)
	return err
}

func (t *top) close() {
	if t.meter != nil {
		t.meter.close()
		t.meter = nil
	}
}

// measure ends an interval and begins the next one.
func (t *top) measure() error {
	now, err := readCounts(t.match)
	if err != nil {
		return err
	}
	t.rows = loads(t.before, now)
	if t.meter != nil {
		if t.loads, err = t.meter.take(t.before, now); err != nil {
			return err
		}
	}
	t.before, t.daemon = now, daemonLines(socket.NewClient(), time.Now())
	return nil
}

func (t *top) printOnce(cmd *cobra.Command) error {
	if err := pause(cmd.Context(), t.interval); err != nil {
		return err
	}
	if err := t.measure(); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, line := range append(t.daemon, t.warnings()...) {
		fmt.Fprintln(out, line)
	}
	t.write(out, 0, 0)
	return nil
}

// warnings say what is wrong with the rates.
func (t *top) warnings() []string {
	if t.meter != nil && t.meter.lost {
		return []string{"the kernel dropped messages about new connections: the rates are too low"}
	}
	return nil
}

// write writes the table, cut to a size; 0: not cut.
func (t *top) write(out io.Writer, width, height int) {
	if t.ends {
		sortEndpoints(t.loads, t.sort)
		writeEndpoints(out, t.loads, width, height)
		return
	}
	sortLoads(t.rows, t.sort)
	writeLoads(out, t.rows, width, height)
}

// pause waits while connections are counted. Tests make the connections meanwhile.
var pause = func(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// screen is what the terminal shows, without a line feed at the end.
func (t *top) screen(width, height int) string {
	var b strings.Builder
	what := count(len(t.rows), "service port")
	if t.ends {
		what = count(len(t.loads), "endpoint") + " with new connections"
	}
	head := append(slices.Clone(t.daemon), t.warnings()...)
	head = append(head, fmt.Sprintf("%s; every %s; by %s (keys c r t n, e, q ends)", what, t.interval, t.sort))
	for _, line := range head {
		fmt.Fprintln(&b, line[:min(len(line), width)])
	}
	t.write(&b, width, height-len(head))
	return strings.TrimSuffix(b.String(), "\n")
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
