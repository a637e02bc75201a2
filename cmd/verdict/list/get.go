package list

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	cmd.AddCommand(
		newWord("frontend ADDRESS:PORT[/PROTOCOL]", "One frontend with its endpoints", (*options).frontend),
		newWord("pool NUMBER", "The endpoints of a pool", (*options).pool),
		newWord("affinity CLIENT ADDRESS:PORT[/PROTOCOL]", "The endpoint that a client stays with", (*options).affinity),
		newWord("endpoint ADDRESS[:PORT]", "The frontends that lead to an endpoint", (*options).endpoint))
	return cmd
}

// newWord returns a command that reads one thing: a *snapshot.Table or an *answer.
func newWord(use, short string, read func(*options, []string) (any, error)) *cobra.Command {
	var o options
	cmd := &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + getHelp}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != strings.Count(use, " ") {
			return flags.Wrong(fmt.Errorf("want get %s, got %d arguments", use, len(args)))
		}
		if err := o.complete(false); err != nil {
			return flags.Wrong(err)
		}
		found, err := read(&o, args)
		if err != nil {
			return err
		}
		return o.print(cmd, found)
	}
	o.output.Bind(cmd.Flags(), wide)
	cmd.Flags().BoolVarP(&o.ipv6, "ipv6", "6", false, "of a pool: the one in the table for IPv6")
	return cmd
}

// frontend reads ADDRESS:PORT[/PROTOCOL], or the node port *:PORT or [*]:PORT.
func (*options) frontend(args []string) (any, error) {
	plain := strings.NewReplacer("[*]:", "[::]:", "*:", "0.0.0.0:").Replace(args[0])
	at, protocol, err := snapshot.ParseDestination(plain)
	if err != nil {
		return nil, flags.Wrong(err)
	}
	p := snapshot.PlaceOf(at, protocol)
	if plain != args[0] {
		p.Address = netip.Addr{}
	}
	t, err := snapshot.ReadPlaces(snapshot.Query{Family: program.FamilyOf(at.Addr())}, []snapshot.Place{p})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get frontend %s: %w", args[0], err)
	case len(t.Frontends) == 0:
		return nil, fmt.Errorf("the kernel has no frontend %s; verdict explain says what happens to connections to it", args[0])
	}
	return t, nil
}

// endpoint lists the frontends with an endpoint.
func (*options) endpoint(args []string) (any, error) {
	at, err := snapshot.ParseEndpoint(args[0])
	if err != nil {
		return nil, flags.Wrong(fmt.Errorf("endpoint %q must be ADDRESS or ADDRESS:PORT, such as 10.244.1.7 or [fd00::7]:8080", args[0]))
	}
	t, err := snapshot.Read(snapshot.Query{Endpoints: []snapshot.EndpointRange{at}, Endpoint: args[0]})
	if err == nil && len(t.Frontends) == 0 {
		err = fmt.Errorf("no frontend in the kernel leads to %s", args[0])
	}
	return t, err
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

func (o *options) pool(args []string) (any, error) {
	number, err := inspect.ParsePool(args[0])
	if err != nil {
		return nil, flags.Wrong(err)
	}
	tables, err := snapshot.OpenTables()
	if err != nil {
		return nil, err
	}
	defer tables.Close()
	f := cmp.Or(o.query.Family, program.IPv4)
	p, found, err := tables.Pool(f, number)
	if err != nil {
		return nil, fmt.Errorf("get pool %s: %w", args[0], err)
	}
	if !found {
		return nil, fmt.Errorf("table %s %s has no pool %s; numbers of pools change when the daemon starts again", f, program.TableName, args[0])
	}
	a := answer{Pool: args[0], Service: p.Name, Class: p.Chain}
	for _, e := range p.Endpoints {
		a.Endpoints = append(a.Endpoints, snapshot.Endpoint{Address: e.Addr.Addr(), Port: e.Addr.Port(), Weight: e.Slots})
	}
	return &a, nil
}

func (*options) affinity(args []string) (any, error) {
	client, err := netip.ParseAddr(args[0])
	if err != nil {
		return nil, flags.Wrong(fmt.Errorf("client %q must be an address", args[0]))
	}
	at, protocol, err := snapshot.ParseDestination(args[1])
	if err != nil {
		return nil, flags.Wrong(err)
	}
	if client.Is4() != at.Addr().Is4() {
		return nil, flags.Wrong(fmt.Errorf("client %s and frontend %s must be of the same address family", client, at))
	}
	tables, err := snapshot.OpenTables()
	if err != nil {
		return nil, err
	}
	defer tables.Close()
	way, err := tables.Walk("prerouting", "nat", inspect.Packet{Src: client, Dst: at.Addr(), Protocol: protocol, DstPort: at.Port()})
	p := way.Pick
	switch {
	case err != nil:
		return nil, fmt.Errorf("get the affinity of %s at %s: %w", client, at, err)
	case p == nil:
		return nil, fmt.Errorf("%s has no endpoint for %s; verdict explain says why", args[1], client)
	case p.Affinity == 0:
		return nil, fmt.Errorf("%s has no session affinity", args[1])
	case p.Entry == nil:
		return nil, fmt.Errorf("%s has no affinity entry at %s: it has not connected within %s", client, args[1], p.Affinity)
	}
	a := answer{Pool: p.Pool, Class: p.Chain, Client: client, Stale: p.Stale, Expires: p.Entry.Expires.Round(time.Second).Seconds()}
	if p.Chosen.IsValid() && !p.Stale {
		a.Endpoint = p.Chosen.String()
	}
	return &a, nil
}

func (a *answer) writeText(out io.Writer) {
	lines := [][2]string{{"Pool", a.Pool}, {"Service", a.Service}, {"Class", a.Class}}
	if a.Client.IsValid() {
		lines = append(lines, [2]string{"Client", a.Client.String()}, [2]string{"Endpoint", a.Endpoint},
			[2]string{"Expires", fmt.Sprintf("in %.0f s", a.Expires)})
	}
	if a.Stale {
		lines = append(lines, [2]string{"Endpoint", "gone; the next connection gets another one"})
	}
	for i := range a.Endpoints {
		lines = append(lines, [2]string{"Endpoint", fmt.Sprintf("%s weight %d", a.Endpoints[i].At(), a.Endpoints[i].Weight)})
	}
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(out, "%-9s %s\n", l[0], l[1])
		}
	}
}
