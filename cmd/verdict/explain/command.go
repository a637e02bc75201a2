package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// options hold the flags.
type options struct {
	service, from string
	output        flags.Output
	tracing       bool // --trace is given
	trace         tracing
	cluster       cluster.Config
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "explain SOURCE DESTINATION:PORT[/PROTOCOL]",
		Short: "Say what the rules of this node do with a connection, and why",
		Long:  help,
		Example: `  verdict explain 10.244.1.7 10.96.0.10:53/udp
  verdict explain outside 192.0.2.10:30080
  verdict explain pod/default/web-0 10.96.0.20:80 --kubeconfig /etc/kubernetes/admin.conf
  verdict explain --service default/web --from node
  verdict explain --trace=1m 10.244.1.7 10.96.0.20:80
  verdict explain --json node 10.96.0.20:80 | jq .verdict`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.tracing = cmd.Flags().Changed("trace")
			return execute(cmd, &o, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.service, "service", "", "explain the frontends of a `SERVICE` (namespace/name or namespace/name:port)")
	_ = cmd.RegisterFlagCompletionFunc("service", snapshot.CompleteNames) // the flag exists, so there is no error
	fs.StringVar(&o.from, "from", "", "with --service: the `SOURCE`")
	o.output.Bind(fs)
	fs.DurationVar(&o.trace.time, "trace", 0,
		"then follow real packets of this connection through all tables for a `TIME`, at most 10m")
	fs.Lookup("trace").NoOptDefVal = "10s"
	fs.IntVar(&o.trace.packets, "packets", 10, "with --trace: end after a `NUMBER` of packets")
	fs.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "",
		"`FILE` with access to the API server, for sources such as pod/default/web-0")
	fs.StringVar(&o.cluster.Master, "master", "", "`URL` of the API server")
	return cmd
}

const help = `Say step by step what the rules of this node do with the first packet of a connection: whose frontend
the destination is, which endpoints can get it, whether its source is masqueraded, and what refuses or drops it.
Beside each step stands the element, rule, flow or virtual server that decides. The last line is the verdict.

SOURCE is an address, ADDRESS:PORT (then a flow that exists is taken into account), "node" for this node, "outside"
for a client on the way of the default route, or pod/NAMESPACE/NAME, which asks the API server. DESTINATION is a
cluster IP, an external or load balancer IP, or an address of the node with a node port. PROTOCOL is tcp (the
default), udp or sctp.

The command evaluates the rules with look-ups of single elements in the kernel, so it answers at once on large
clusters, and it works when the daemon is down. It needs CAP_NET_ADMIN (root) in the network namespace of the host. It
knows the rules of Verdict exactly. Of other tables it names the chains on the way of the packet that can stop or
translate it, without their conditions.

With --trace, the command then follows real packets of this connection through all tables, as the kernel reports them.
For that time it adds a table "verdict-trace" with one rule, which matches only this connection. The kernel removes
the table when the command ends, however it ends. While this runs, somebody has to connect.

Exit codes: 0 for an explanation, whatever it says; 1 if the kernel could not be read; 2 for wrong arguments.`

// maxTrace bounds the time of a trace: traced packets cost more, and a forgotten trace should end.
const maxTrace = 10 * time.Minute

func execute(cmd *cobra.Command, o *options, args []string) error {
	out, printed := cmd.OutOrStdout(), 0
	questions, err := o.each(cmd.Context(), args, func(e *Explanation) error {
		for _, note := range e.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "verdict: "+note)
		}
		if printed++; printed > 1 && o.output.Is("text") {
			fmt.Fprintln(out)
		}
		if err := o.output.Write(out, e, e.writeText); err != nil {
			return fmt.Errorf("write the explanation: %w", err)
		}
		return nil
	})
	if err != nil || o.trace.time == 0 {
		return err
	}
	return o.traceFirst(cmd, questions)
}

// each explains what the arguments ask for, one connection after the other.
func (o *options) each(ctx context.Context, args []string, do func(*Explanation) error) ([]question, error) {
	wanted, source, err := o.targets(args)
	if err != nil {
		return nil, err
	}
	tables, err := snapshot.OpenTables()
	if err != nil {
		return nil, err
	}
	defer tables.Close()
	k := &live{tables}
	questions, left, err := o.withSource(ctx, k, wanted, source)
	if err != nil {
		return nil, err
	}
	for i, q := range questions {
		e, err := explanationOf(k, q)
		if err == nil {
			if left > 0 && i == 0 {
				e.Notes = append(e.Notes, fmt.Sprintf("this explains %d frontends of %s and leaves out %d: name them by NAMESPACE/NAME:PORT or ADDRESS:PORT",
					len(questions), o.service, left))
			}
			err = do(e)
		}
		if err != nil {
			return nil, err
		}
	}
	return questions, nil
}

// traceFirst traces the first connection.
func (o *options) traceFirst(cmd *cobra.Command, questions []question) error {
	q, out := questions[0], cmd.OutOrStdout()
	fmt.Fprintf(cmd.ErrOrStderr(), "verdict: tracing %s for %s, or %s\n", &q, o.trace.time, state.Plural(o.trace.packets, "packet"))
	seen := 0
	err := o.trace.run(cmd.Context(), q, func(p *TracedPacket) error {
		seen++
		return o.output.Write(out, p, p.writeText)
	})
	if err == nil && seen == 0 {
		err = fmt.Errorf("no packet came within %s: %s", o.trace.time, &q)
	}
	return err
}

// targets are the destinations that the arguments name, and the source.
func (o *options) targets(args []string) (wanted []question, source string, err error) {
	switch {
	case o.tracing && o.trace.time <= 0 || o.trace.time > maxTrace || o.trace.packets < 1:
		return nil, "", flags.Wrong(fmt.Errorf("--trace must be above 0 and at most %s, and --packets at least 1", maxTrace))
	case o.service != "" && len(args) == 0 && o.from != "":
		wanted, err = frontendsOf(o.service)
		return wanted, o.from, err
	case o.service != "":
		return nil, "", flags.Wrong(errors.New("--service needs --from SOURCE and no arguments: " +
			"verdict explain --service default/web --from node"))
	case len(args) != 2 || o.from != "":
		return nil, "", flags.Wrong(fmt.Errorf("want SOURCE and DESTINATION:PORT, got %s: verdict explain 10.244.1.7 10.96.0.10:80/tcp",
			state.Plural(len(args), "argument")))
	}
	dst, protocol, err := snapshot.ParseDestination(args[1])
	if err != nil {
		return nil, "", flags.Wrong(err)
	}
	return []question{{dst: dst, protocol: protocol}}, args[0], nil
}

// maxFrontends is how many frontends of a Service are explained.
const maxFrontends = 16

// withSource fills in the source. Of a Service, only the frontends of the source's family count. It returns how many of them are
// left out. The API server is asked once for each family of a pod.
func (o *options) withSource(ctx context.Context, k kernel, wanted []question, source string) (out []question, left int, err error) {
	ofNode, of := source == "node" || source == "outside", map[program.Family]question{} // no source: it has no address of the family
	for _, q := range wanted {
		first, known := of[q.family()]
		if !known && !ofNode {
			first = q
			if failed := first.from(ctx, k, o.cluster, source); failed != nil {
				first, err = question{}, failed
			}
			of[q.family()] = first
		}
		switch {
		case !ofNode && !first.src.IsValid():
			continue
		case len(out) == maxFrontends:
			left++
			continue
		case !ofNode:
			q.src, q.srcPort = first.src, first.srcPort
		default:
			if failed := q.from(ctx, k, o.cluster, source); failed != nil {
				err = failed
				continue
			}
		}
		out = append(out, q)
	}
	if len(out) == 0 {
		return nil, 0, err
	}
	return out, left, nil
}

// ErrQuestion marks a question that makes no sense.
var ErrQuestion = errors.New("this cannot be explained")

// Answer explains a connection as the command does, for other parts of the daemon. The destination can also be a Service
// (namespace/name). It does not ask the API server, so the source must not be a pod.
func Answer(source, destination string) (list []*Explanation, err error) {
	o, args := options{trace: tracing{packets: 1}}, []string{source, destination}
	if strings.Contains(destination, "/") && !strings.ContainsAny(strings.SplitN(destination, "/", 2)[0], ".:") {
		o.service, o.from, args = destination, source, nil
	}
	if strings.HasPrefix(source, "pod/") {
		return nil, fmt.Errorf("%w: give the address of the pod as source; the command knows names of pods", ErrQuestion)
	}
	_, err = o.each(context.Background(), args, func(e *Explanation) error {
		list = append(list, e)
		return nil
	})
	if mistake, ok := errors.AsType[flags.UsageError](err); ok {
		err = fmt.Errorf("%w: %w", ErrQuestion, mistake)
	}
	return list, err
}
