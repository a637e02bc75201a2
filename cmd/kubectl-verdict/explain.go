package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const explainHelp = `Say what becomes of a connection, and why.

From a pod, the node of the pod is asked, and then the node of each endpoint that may get the connection. From any other source,
all nodes are asked: "29 of 30 nodes say this, node-17 says that".

  SOURCE       pod/[NAMESPACE/]NAME, or what "verdict explain" takes: an address, node, outside
  DESTINATION  service/[NAMESPACE/]NAME[:PORT], or ADDRESS:PORT[/PROTOCOL]`

// explanation is what the plugin needs of the JSON form of "verdict explain".
type explanation struct {
	Steps []struct {
		Topic    string   `json:"topic"`
		Text     string   `json:"text"`
		Evidence []string `json:"evidence"`
	} `json:"steps"`
	Verdict struct {
		Outcome   string           `json:"outcome"`
		Endpoints []netip.AddrPort `json:"endpoints"`
		Text      string           `json:"text"`
	} `json:"verdict"`
}

func (f *fleet) newExplain() *cobra.Command {
	return &cobra.Command{Use: "explain SOURCE DESTINATION", Short: "Say what becomes of a connection, on the node of a pod or on all nodes",
		Long: explainHelp, Args: cobra.ExactArgs(2),
		Example: `  kubectl verdict explain pod/web-0 service/db
  kubectl verdict explain outside 192.0.2.10:30080
  kubectl verdict explain 10.244.1.7 10.96.0.10:53/udp --node node-17`,
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := f.destination(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if name, ok := strings.CutPrefix(args[0], "pod/"); ok {
				return f.follow(cmd.Context(), name, to)
			}
			answers, err := f.ask(cmd.Context(), func(daemon) []string { return []string{"explain", "-o", "json", args[0], to} })
			if err != nil {
				return err
			}
			for i := range answers {
				var e explanation
				if decode(&answers[i], &e) {
					answers[i].stdout = e.Verdict.Text + "\n"
				}
			}
			return f.printSame(answers, func(a answer) string { return a.stdout })
		}}
}

// named splits NAMESPACE/NAME.
func (f *fleet) named(text string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return namespace, name
	}
	return f.namespace, text
}

// destination returns the first address of a Service and one of its ports.
func (f *fleet) destination(ctx context.Context, text string) (string, error) {
	text, ok := strings.CutPrefix(text, "service/")
	if !ok {
		return text, nil
	}
	text, wanted, _ := strings.Cut(text, ":")
	namespace, name := f.named(text)
	svc, err := f.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return wanted == "" || wanted == p.Name || wanted == strconv.Itoa(int(p.Port))
	})
	if i < 0 || svc.Spec.ClusterIP == "" || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return "", fmt.Errorf("the Service %s/%s has no cluster IP with a port %s", namespace, name, wanted)
	}
	p := &svc.Spec.Ports[i]
	return net.JoinHostPort(svc.Spec.ClusterIP, strconv.Itoa(int(p.Port))) + "/" + strings.ToLower(string(p.Protocol)), nil
}

// follow asks the node of a pod, and then those of the endpoints.
func (f *fleet) follow(ctx context.Context, name, to string) error {
	namespace, name := f.named(name)
	pod, err := f.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	from, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return fmt.Errorf("the pod %s/%s has no address yet", namespace, name)
	}
	e, err := f.explainOn(ctx, pod.Spec.NodeName, fmt.Sprintf("%s (%s)", name, from), from.String(), to)
	if err != nil || len(e.Verdict.Endpoints) == 0 {
		return err
	}
	pods, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	_, protocol, _ := strings.Cut(to, "/")
	for _, at := range e.Verdict.Endpoints {
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool {
			return !p.Spec.HostNetwork && slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: at.Addr().String()})
		})
		if i < 0 {
			fmt.Fprintf(f.out, "\n%s is no pod of this cluster\n", at)
			continue
		}
		p := &pods.Items[i]
		if p.Spec.NodeName == pod.Spec.NodeName {
			fmt.Fprintf(f.out, "\n%s (%s/%s) is on the same node\n", at, p.Namespace, p.Name)
			continue
		}
		fmt.Fprintln(f.out)
		if _, err := f.explainOn(ctx, p.Spec.NodeName, fmt.Sprintf("%s (%s/%s)", at, p.Namespace, p.Name), from.String(), at.String()+"/"+protocol); err != nil {
			fmt.Fprintln(f.out, err)
		}
	}
	return nil
}

// explainOn asks one node and prints what it says.
func (f *fleet) explainOn(ctx context.Context, node, what, from, to string) (e explanation, err error) {
	one := *f
	one.only = []string{node}
	answers, err := one.ask(ctx, func(daemon) []string { return []string{"explain", "-o", "json", from, to} })
	if err != nil {
		return e, err
	}
	if !decode(&answers[0], &e) {
		return e, fmt.Errorf("%s does not answer: %w", node, answers[0].err)
	}
	fmt.Fprintf(f.out, "%s, the node of %s:\n", node, what)
	for _, s := range e.Steps {
		fmt.Fprintf(f.out, "  %-13s %s\n", s.Topic, s.Text)
		for _, line := range s.Evidence {
			fmt.Fprintf(f.out, "  %13s   %s\n", "", line)
		}
	}
	fmt.Fprintf(f.out, "  %-13s %s\n", "verdict", e.Verdict.Text)
	return e, nil
}
