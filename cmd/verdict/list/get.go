package list

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

const getHelp = `Read one thing from the kernel by its key. Unlike "verdict list", this costs the same however many Services there are.

  frontend ADDRESS:PORT[/PROTOCOL]   a frontend, its endpoints and their connections; *:PORT and [*]:PORT: a node port
  pool NUMBER                        the endpoints of a pool, by the number that nft prints, such as 0:2
  affinity CLIENT ADDRESS:PORT       the endpoint that a client stays with
  endpoint ADDRESS[:PORT]            the frontends that lead to an endpoint. The tables have no index of endpoints, so the
                                     daemon is asked which Services have it. If it does not run, or a change of them waits,
                                     this reads all frontends, like "verdict list --endpoint"

PROTOCOL is tcp (the default), udp or sctp.

Exit codes: 0 for success; 1 if the kernel does not have it or could not be read; 2 for wrong arguments.`

// NewGet returns the command "get".
func NewGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get", Short: "Read one frontend, pool, endpoint or affinity entry from the kernel", Long: getHelp,
		Args: cobra.ArbitraryArgs, // RunE says what was meant
		Example: `  verdict get frontend 10.96.0.10:53/udp
  verdict get frontend '*:30080'
  verdict get pool 0:2
  verdict get affinity 10.244.1.7 10.96.0.20:80
  verdict get endpoint 10.244.1.9:8080 -o json`,
		RunE: func(_ *cobra.Command, args []string) error {
			return flags.Wrong(fmt.Errorf("get what? write get frontend, get pool, get affinity or get endpoint, not %q",
				strings.Join(args, " ")))
		},
	}
	for _, sub := range []struct {
		use, short string
		arguments  int
		run        func(*getter, []string) error
	}{
		{"frontend ADDRESS:PORT[/PROTOCOL]", "One frontend with its endpoints", 1, (*getter).frontend},
		{"pool NUMBER", "The endpoints of a pool", 1, (*getter).pool},
		{"affinity CLIENT ADDRESS:PORT[/PROTOCOL]", "The endpoint that a client stays with", 2, (*getter).affinity},
		{"endpoint ADDRESS[:PORT]", "The frontends that lead to an endpoint", 1, (*getter).endpoint},
	} {
		cmd.AddCommand(newGetter(sub.use, sub.short, sub.arguments, sub.run))
	}
	return cmd
}

func newGetter(use, short string, arguments int, do func(*getter, []string) error) *cobra.Command {
	g := &getter{}
	cmd := &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + getHelp}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) != arguments {
			return flags.Wrong(fmt.Errorf("want get %s, got %d arguments", use, len(args)))
		}
		if err := g.complete(); err != nil {
			return flags.Wrong(err)
		}
		g.cmd = cmd
		return do(g, args)
	}
	cmd.Flags().StringVarP(&g.output, "output", "o", "", "`FORMAT`: wide, json or yaml")
	cmd.Flags().BoolVarP(&g.ipv6, "ipv6", "6", false, "of a pool: the one in the table for IPv6")
	return cmd
}

// getter runs one of the commands.
type getter struct {
	options
	cmd *cobra.Command
}

// parsePlace reads ADDRESS:PORT[/PROTOCOL], *:PORT or [*]:PORT.
func parsePlace(text string) (p snapshot.Place, f program.Family, err error) {
	plain, nodePort := text, true
	switch {
	case strings.HasPrefix(text, "*:"):
		plain = "0.0.0.0" + text[1:]
	case strings.HasPrefix(text, "[*]:"):
		plain = "[::]" + text[3:]
	default:
		nodePort = false
	}
	at, protocol, err := snapshot.ParseDestination(plain)
	if err != nil {
		return p, f, flags.Wrong(err)
	}
	if p = snapshot.PlaceOf(at, protocol); nodePort {
		p.Address = netip.Addr{}
	}
	return p, program.FamilyOf(at.Addr()), nil
}

func (g *getter) frontend(args []string) error {
	p, f, err := parsePlace(args[0])
	if err != nil {
		return err
	}
	t, err := snapshot.ReadPlaces(snapshot.Query{Family: f}, []snapshot.Place{p})
	if err != nil {
		return fmt.Errorf("get frontend %s: %w", args[0], err)
	}
	if len(t.Frontends) == 0 {
		return fmt.Errorf("the kernel has no frontend %s; verdict explain says what happens to connections to it", args[0])
	}
	return g.print(g.cmd, t)
}

// endpoint lists the frontends with an endpoint.
func (g *getter) endpoint(args []string) error {
	at, err := snapshot.ParseEndpoint(args[0])
	if err != nil {
		return flags.Wrong(fmt.Errorf("endpoint %q must be ADDRESS or ADDRESS:PORT, such as 10.244.1.7 or [fd00::7]:8080", args[0]))
	}
	t, err := snapshot.WithEndpoint(snapshot.Query{Endpoints: []snapshot.EndpointRange{at}}, args[0])
	if err != nil {
		return err
	}
	if len(t.Frontends) == 0 {
		return fmt.Errorf("no frontend in the kernel leads to %s", args[0])
	}
	return g.print(g.cmd, t)
}

// answer is what pool and affinity print. The fields are the JSON form.
type answer struct {
	Pool      string              `json:"pool"`
	Service   string              `json:"service,omitempty"` // namespace/name:port
	Class     string              `json:"class"`
	Client    netip.Addr          `json:"client,omitzero"`
	Endpoint  string              `json:"endpoint,omitempty"` // that the client stays with
	Expires   float64             `json:"expiresInSeconds,omitempty"`
	Stale     bool                `json:"endpointIsGone,omitempty"`
	Endpoints []snapshot.Endpoint `json:"endpoints,omitempty"`
}

func (g *getter) pool(args []string) error {
	number, err := inspect.ParsePool(args[0])
	if err != nil {
		return flags.Wrong(err)
	}
	tables, err := snapshot.OpenTables()
	if err != nil {
		return err
	}
	defer tables.Close()
	f := program.IPv4
	if g.ipv6 {
		f = program.IPv6
	}
	p, found, err := tables.Pool(f, number)
	if err != nil {
		return fmt.Errorf("get pool %s: %w", args[0], err)
	}
	if !found {
		return fmt.Errorf("table %s %s has no pool %s; numbers of pools change when the daemon starts again", f, program.TableName, args[0])
	}
	a := answer{Pool: args[0], Service: p.Name, Class: p.Chain}
	for _, e := range p.Endpoints {
		a.Endpoints = append(a.Endpoints, snapshot.Endpoint{Address: e.Addr.Addr(), Port: e.Addr.Port(), Weight: e.Slots})
	}
	return g.answer(&a)
}

func (g *getter) affinity(args []string) error {
	client, err := netip.ParseAddr(args[0])
	if err != nil {
		return flags.Wrong(fmt.Errorf("client %q must be an address", args[0]))
	}
	at, protocol, err := snapshot.ParseDestination(args[1])
	if err != nil {
		return flags.Wrong(err)
	}
	if client.Is4() != at.Addr().Is4() {
		return flags.Wrong(fmt.Errorf("client %s and frontend %s must be of the same address family", client, at))
	}
	tables, err := snapshot.OpenTables()
	if err != nil {
		return err
	}
	defer tables.Close()
	packet := inspect.Packet{Src: client, Dst: at.Addr(), Protocol: protocol, DstPort: at.Port()}
	way, err := tables.Walk("prerouting", "nat", packet)
	switch {
	case err != nil:
		return fmt.Errorf("get the affinity of %s at %s: %w", client, at, err)
	case way.Pick == nil:
		return fmt.Errorf("%s has no endpoint for %s; verdict explain says why", args[1], client)
	case way.Pick.Affinity == 0:
		return fmt.Errorf("%s has no session affinity", args[1])
	case way.Pick.Entry == nil:
		return fmt.Errorf("%s has no affinity entry at %s: it has not connected within %s", client, args[1], way.Pick.Affinity)
	}
	p := way.Pick
	left := p.Entry.Expires.Round(time.Second).Seconds()
	a := answer{Pool: p.Pool, Class: p.Chain, Client: client, Stale: p.Stale, Expires: left}
	if p.Chosen.IsValid() && !p.Stale {
		a.Endpoint = p.Chosen.String()
	}
	return g.answer(&a)
}

// answer prints an answer as text, JSON or YAML.
func (g *getter) answer(a *answer) error {
	out := g.cmd.OutOrStdout()
	if g.output == outputJSON || g.output == outputYAML {
		return writeValue(out, g.output, a)
	}
	a.writeText(out)
	return nil
}

// writeValue writes the JSON form, or the same as YAML.
func writeValue(out io.Writer, format string, value any) error {
	if format == outputYAML {
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func (a *answer) writeText(out io.Writer) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-9s %s\n", name, value)
		}
	}
	line("Pool", a.Pool)
	line("Service", a.Service)
	line("Class", a.Class)
	if a.Client.IsValid() {
		line("Client", a.Client.String())
		line("Endpoint", a.Endpoint)
		line("Expires", fmt.Sprintf("in %.0f s", a.Expires))
	}
	if a.Stale {
		line("Endpoint", "gone; the next connection gets another one")
	}
	for i := range a.Endpoints {
		e := &a.Endpoints[i]
		line("Endpoint", fmt.Sprintf("%s weight %d", e.At(), e.Weight))
	}
}
