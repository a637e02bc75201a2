package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const topHelp = `Show which Services get how many connections per second, from the counters of the kernel, and what
the daemon does.

  Conn/s      new connections per second, of all frontends of a service port together
  Refused/s   connections that were refused or dropped because no endpoint can take them
  Total       connections since the frontends were written
  Fast path   open connections whose packets skip the rules of this node, as of the same time; only with --fast-path=services
  Stranded    open connections of clients outside to endpoints on other nodes: they die with this node. The daemon counts
              them, at most every 15 seconds

The first lines show the daemon, if it runs: its latest pass, what waits, and how many parts of objects are not
honored.

With --endpoints, each row is an endpoint. IPVS has a counter for each endpoint. nft has counters for
frontends only, so the command counts the messages of connection tracking about new connections, which name the
endpoint that was picked. Each new connection of the host then costs the kernel about a microsecond more, for as long as
the command runs. If the kernel has to drop messages, a line says so, and the rates are too low.`

// top is the command, and what it has measured.
type top struct {
	interval time.Duration
	once     bool
	ends     bool // rows are endpoints
	sort     string
	output   flags.Output
	query    snapshot.Query

	before snapshot.Counts
	opened *conntrack.Opened // connections since then, by endpoint; nil: rows are Services
	rows   []topRow
	daemon []string
	// unknown: the daemon does not say which connections are open; fast: some may take the fast path
	unknown, fast bool
}

// topRow is a service port, or an endpoint of one.
type topRow struct {
	snapshot.Load
	Endpoint string `json:"endpoint,omitempty"`
	Counter  string `json:"countedBy,omitempty"`
	// Open are the open connections; none if the daemon does not answer.
	Open []socket.Passing `json:"open,omitempty"`
}

// NewTop returns the command "top".
func NewTop() *cobra.Command {
	var t top
	cmd := &cobra.Command{
		Use:   "top [NAMESPACE | NAMESPACE/SERVICE | NAMESPACE/SERVICE:PORT]...",
		Short: "Show connections per second of each Service, again and again",
		Long:  topHelp,
		Example: `  verdict top
  verdict top --sort refused default
  verdict top --endpoints default/web
  verdict top --once --interval 5s`,
		ValidArgsFunction: snapshot.CompleteNames,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if t.query.Services, err = snapshot.ParseServices(args); err == nil {
				err = t.validate()
			}
			if err != nil {
				return flags.Wrong(err)
			}
			return t.run(cmd)
		},
	}
	cmd.Flags().DurationVar(&t.interval, "interval", time.Second, "count over this `TIME`")
	cmd.Flags().BoolVar(&t.once, "once", false, "print one table without a terminal, and end, as -o json and yaml do")
	cmd.Flags().BoolVar(&t.ends, "endpoints", false, "show a row for each endpoint")
	t.output.Bind(cmd.Flags())
	cmd.Flags().StringVar(&t.sort, "sort", "connections", "sort by `COLUMN`: connections, refused, total or name")
	return cmd
}

func (t *top) validate() error {
	switch {
	case !slices.Contains([]string{"connections", "refused", "total", "name"}, t.sort):
		return fmt.Errorf("--sort=%s: must be connections, refused, total or name", t.sort)
	case t.interval < 100*time.Millisecond || t.interval > maxRate:
		return fmt.Errorf("--interval=%s: must be between 100ms and %s", t.interval, maxRate)
	}
	return nil
}

func (t *top) run(cmd *cobra.Command) (err error) {
	if t.ends {
		if t.opened, err = conntrack.WatchOpened(conntrack.Options{}); err != nil {
			return fmt.Errorf("count new connections of endpoints: %w", err)
		}
		defer t.opened.Close() // it is only read from
	}
	if t.before, err = snapshot.ReadCounts(t.query.Match()); err != nil {
		return err
	}
	if !t.once && t.output.Is("text") {
		if !term.IsTerminal(int(os.Stdout.Fd())) {
			return errors.New("top needs a terminal; without one, use --once")
		}
		return t.live(cmd)
	}
	if err := pause(cmd.Context(), t.interval); err != nil {
		return err
	}
	if err := t.measure(); err != nil {
		return err
	}
	t.sortRows()
	value := map[string]any{"daemon": t.daemon, "rows": append([]topRow{}, t.rows...)}
	return t.output.Write(cmd.OutOrStdout(), value, func(out io.Writer) error {
		for _, line := range t.daemon {
			fmt.Fprintln(out, line)
		}
		return t.write(out, t.rows, 0)
	})
}

// Sequences for a terminal (man 4 console_codes). Clearing moves to the first column of the first line before.
const (
	otherScreen = "\x1b[?1049h" // what the terminal showed comes back with ownScreen
	ownScreen   = "\x1b[?1049l"
	clearScreen = "\x1b[H\x1b[J"
)

// live shows a screen after each interval, until an interrupt.
func (t *top) live(cmd *cobra.Command) error {
	fmt.Fprintf(cmd.OutOrStdout(), "%s%sCounting connections for %s.", otherScreen, clearScreen, t.interval)
	defer fmt.Fprint(cmd.OutOrStdout(), ownScreen)
	for pause(cmd.Context(), t.interval) == nil {
		if err := t.measure(); err != nil {
			return err
		}
		width, height, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil {
			return fmt.Errorf("read the size of the terminal: %w", err)
		}
		fmt.Fprint(cmd.OutOrStdout(), clearScreen, t.screen(width, height))
	}
	return nil
}

// pause waits while connections are counted. Tests make the connections in that time.
var pause = func(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// measure ends an interval and begins the next one.
func (t *top) measure() error {
	now, err := snapshot.ReadCounts(t.query.Match())
	if err != nil {
		return err
	}
	client := socket.NewClient()
	t.rows, t.daemon = nil, daemonLines(client, time.Now())
	if t.opened == nil {
		open := map[string][]socket.Passing{}
		rows, err := client.Passing(socket.PassingPeriod)
		if t.unknown = err != nil; err != nil && !errors.Is(err, socket.ErrNotRunning) {
			t.daemon = append(t.daemon, "open connections are not shown: "+err.Error())
		}
		f, _ := client.FastPath("") // without the daemon, nobody counts
		if t.fast = f.On(); f.Idle() != "" {
			t.daemon = append(t.daemon, f.Idle())
		}
		for _, p := range rows {
			open[p.Service] = append(open[p.Service], p)
		}
		for _, l := range now.Loads(t.before) {
			t.rows = append(t.rows, topRow{Load: l, Open: open[l.Service]})
		}
	} else if err := t.measureEndpoints(now); err != nil {
		return err
	}
	t.before = now
	return nil
}

func (t *top) measureEndpoints(now snapshot.Counts) error {
	flows, lost, err := t.opened.Take()
	if err != nil {
		return err
	}
	for key, rate := range snapshot.EndpointRates(flows, t.before, now) {
		row := topRow{snapshot.Load{Service: cmp.Or(key.Service, "-"), Rate: rate}, key.At.String(), "conntrack", nil}
		if key.Engine == snapshot.IPVS {
			row.Counter = snapshot.IPVS
		}
		t.rows = append(t.rows, row)
	}
	if lost {
		t.daemon = append(t.daemon, "the kernel dropped messages about new connections: the rates are too low")
	}
	return nil
}

// sortRows sorts by a column. Of endpoints, only the rate and the name are known.
func (t *top) sortRows() {
	slices.SortFunc(t.rows, func(a, b topRow) int {
		first := 0
		switch {
		case t.sort == "name":
		case t.ends || t.sort == "connections":
			first = cmp.Compare(b.Rate, a.Rate)
		case t.sort == "refused":
			first = cmp.Compare(b.Refused, a.Refused)
		default:
			first = cmp.Compare(b.Total, a.Total)
		}
		return cmp.Or(first, cmp.Compare(a.Service, b.Service), cmp.Compare(a.Endpoint, b.Endpoint))
	})
}

// write writes rows as a table. Names of Services are cut so that it has no more columns than width; 0: they are not cut.
func (t *top) write(out io.Writer, rows []topRow, width int) error {
	widest, others := 0, 45 // the columns beside the name
	for i := range rows {
		widest = max(widest, len(rows[i].Endpoint))
	}
	switch {
	case t.ends:
		others = widest + 23
	case t.fast:
		others += 10
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	if t.ends {
		fmt.Fprintf(w, "Service\tEndpoint\t%10s\tCounted by\n", "Conn/s")
	} else {
		fmt.Fprintf(w, "Service\t%10s\t%10s\t%12s\t%s%9s\n", "Conn/s", "Refused/s", "Total", t.onFastPath("Fast path"), "Stranded")
	}
	for i := range rows {
		r := &rows[i]
		name := r.Service
		if most := max(width-others, 10); width > 0 && len(name) > most {
			name = name[:most-1] + "~"
		}
		if t.ends {
			fmt.Fprintf(w, "%s\t%s\t%10.1f\t%s\n", name, r.Endpoint, r.Rate, r.Counter)
			continue
		}
		stranded := strconv.Itoa(socket.Stranded(r.Open))
		if t.unknown {
			stranded = "-"
		}
		fast := t.onFastPath(strconv.Itoa(socket.OnFastPath(r.Open)))
		fmt.Fprintf(w, "%s\t%10.1f\t%10.1f\t%12d\t%s%9s\n", name, r.Rate, r.Refused, r.Total, fast, stranded)
	}
	return w.Flush()
}

// onFastPath is a cell of the column for the fast path; "": there is none.
func (t *top) onFastPath(text string) string {
	if !t.fast {
		return ""
	}
	return fmt.Sprintf("%9s\t", text)
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
	if s.Leaving != "" {
		line += "; this node is leaving: " + s.Leaving
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

// screen is what the terminal shows, without a line feed at the end.
func (t *top) screen(width, height int) string {
	var b strings.Builder
	what := state.Plural(len(t.rows), "service port")
	if t.ends {
		what = state.Plural(len(t.rows), "endpoint") + " with new connections"
	}
	head := append(slices.Clone(t.daemon), fmt.Sprintf("%s; every %s; by %s", what, t.interval, t.sort))
	for _, line := range head {
		fmt.Fprintln(&b, line[:min(len(line), width)])
	}
	t.sortRows()
	room := max(height-len(head)-1, 0)
	_ = t.write(&b, t.rows[:min(len(t.rows), room)], width) // a Builder returns no error
	return strings.TrimSuffix(b.String(), "\n")
}
