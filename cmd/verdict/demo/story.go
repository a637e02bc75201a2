package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// connections is the number of connections of a round in each family: enough to judge the spread, and few enough to be
// fast.
const connections = 600

// story holds the values that the steps of the demo share.
type story struct {
	*screen
	network   *network
	folder    folder
	arguments []string
	proxy     *proxy
	backends  []*host // the pods that are endpoints
	scene     string
}

// tell runs the whole demo in the namespaces of this process.
func tell(ctx context.Context, s *screen, dir, scene string, rootless bool) error {
	began := time.Now()
	st := &story{screen: s, scene: scene}
	if err := st.build(dir, rootless); err != nil {
		return err
	}
	if err := st.start(ctx); err != nil {
		return err
	}
	steps := []func(context.Context) error{st.connect, st.remove, st.show}
	switch scene {
	case sceneDeadNode:
		steps = []func(context.Context) error{st.untilAsked, st.connect, st.vanish}
	case sceneRollingUpdate:
		steps = []func(context.Context) error{st.untilAsked, st.connect, st.rollOut}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			// This process ends now, and then the kernel ends the proxy.
			return err
		}
	}
	if err := st.proxy.stop(); err != nil {
		return err
	}
	s.heading(fmt.Sprintf("Done in %.1f s", time.Since(began).Seconds()))
	s.say("The proxy has stopped. The namespaces, rules, processes and files of the demo disappear with this program.")
	return nil
}

// build creates namespaces, backends and manifests.
func (st *story) build(dir string, rootless bool) (err error) {
	if st.network, err = newNetwork(); err != nil {
		return err
	}
	st.backends = st.network.backends
	for _, b := range st.backends {
		if err := b.serve(backendPort); err != nil {
			return err
		}
	}
	if st.folder, err = newFolder(dir); err != nil {
		return err
	}
	if err := st.folder.write("service.yaml", serviceManifest(st.network.families, st.annotations())); err != nil {
		return err
	}
	st.arguments = sourceArguments(st.folder.path, st.network.families)
	st.heading("1. A node with four pods, and a client outside")
	st.say("%s", picture(st.network))
	how := "as root"
	if rootless {
		how = "in a user namespace, without root"
	}
	st.say("\nEach of them is a network namespace, which this program created %s.", how)
	return st.writeSlices()
}

// annotations are those of the Service.
func (st *story) annotations() string {
	switch st.scene {
	case sceneDeadNode:
		return ejectAnnotation
	case sceneRollingUpdate:
		return refusalsAnnotation
	}
	return ""
}

func (st *story) writeSlices() error {
	return st.folder.write("endpoints.yaml", slicesManifest(st.network.families, st.backends))
}

// picture returns a drawing of the network with the addresses of the first family.
func picture(n *network) string {
	f := &n.families[0]
	text := fmt.Sprintf(`
client             node                            pods
%-11s ------ %-24s ---+--- pod-a  %-9s \
                   runs verdict                |
                   cluster IP %-13s    +--- pod-b  %-9s  > answer on port %d
                   node port  %-5d            |
                                               +--- pod-c  %-9s /
                                               |
                                               +--- shop   %-9s   connects
`, f.client, f.node, n.backends[0].addresses[0], clusterIP(f), n.backends[1].addresses[0], backendPort,
		nodePort, n.backends[2].addresses[0], n.shop.addresses[0])
	return strings.Trim(text, "\n")
}

// start runs the proxy and waits until its rules are in the kernel.
func (st *story) start(ctx context.Context) (err error) {
	st.heading("2. The proxy starts")
	began := time.Now()
	if st.proxy, err = startProxy(st.arguments); err != nil {
		return err
	}
	pass, err := st.proxy.await(ctx, "the rules were in the kernel", (*entry).changed)
	if err != nil {
		return err
	}
	if err := st.proxy.healthy(ctx); err != nil {
		return err
	}
	st.say("verdict run %s \\\n    %s", strings.Join(st.arguments[:2], " "), strings.Join(st.arguments[2:], " "))
	st.say("\nThe folder holds a Service with a cluster IP, a node port and three endpoints.\n"+
		"%s after the start, /healthz answers 200: the program and %d elements went into the kernel\n"+
		"in one transaction of %.1f kB, which took the kernel %s.",
		duration(time.Since(began)), pass.Added, float64(pass.Bytes)/1000, duration(pass.Kernel))
	return nil
}

// connect sends connections to the cluster IP and the node port.
func (st *story) connect(ctx context.Context) error {
	st.heading(fmt.Sprintf("3. %d connections to each address", connections))
	if err := st.rounds(ctx); err != nil {
		return err
	}
	st.say("\np is the probability that a fair pick spreads at least this unevenly. If p is below %g, the demo fails.", implausible)
	return nil
}

// rounds connects to both frontends and draws which pods answered.
func (st *story) rounds(ctx context.Context) error {
	if err := st.round(ctx, "Cluster IP", st.network.shop, clusterIP); err != nil {
		return err
	}
	st.say("")
	return st.round(ctx, "Node port", st.network.client, nodeAddress)
}

func (st *story) round(ctx context.Context, what string, from *host, target func(*family) netip.AddrPort) error {
	r := &round{}
	for _, b := range st.network.backends {
		if slices.Contains(st.backends, b) {
			r.backends = append(r.backends, b.name)
		} else {
			r.gone = append(r.gone, b.name)
		}
	}
	var targets []string
	began := time.Now()
	for i := range st.network.families {
		f := &st.network.families[i]
		hits, err := from.ask(ctx, target(f), connections)
		if err != nil {
			return err
		}
		r.columns = append(r.columns, column{name: f.name, hits: hits})
		targets = append(targets, target(f).String())
	}
	st.say("%s %s, from %s, in %s:\n", what, strings.Join(targets, " and "), from.name, duration(time.Since(began)))
	st.bars(backendNames(), r)
	sentence, err := r.judge()
	if err != nil {
		return err
	}
	st.say("%s", sentence)
	return nil
}

// remove removes one endpoint and shows that it gets no further connections.
func (st *story) remove(ctx context.Context) error {
	gone := st.backends[1]
	st.heading("4. " + gone.name + " is removed from the endpoints")
	st.backends = []*host{st.backends[0], st.backends[2]}
	began := time.Now()
	if err := st.writeSlices(); err != nil {
		return err
	}
	pass, err := st.proxy.await(ctx, "the change was in the kernel", (*entry).changed)
	if err != nil {
		return err
	}
	took := time.Since(began)
	st.say("%s after the file was written, the change was in the kernel: one transaction with %d element\n"+
		"operations (%d added, %d deleted). It took %s in the kernel, and %s with planning.\n"+
		"No chain or rule changed.",
		duration(took), pass.Added+pass.Deleted, pass.Added, pass.Deleted, duration(pass.Kernel), duration(pass.Duration))
	st.say("")
	if err := st.rounds(ctx); err != nil {
		return err
	}
	st.say("")
	st.say("%s still listens, but no connection reaches it.", gone.name)
	return nil
}

// show prints the rules that the connections passed.
func (st *story) show(ctx context.Context) error {
	st.heading("5. The rules that the connections passed")
	ruleset, err := render(ctx, st.arguments)
	if err != nil {
		return err
	}
	text, err := excerpt(ruleset, "ip verdict", path(len(st.backends)))
	if err != nil {
		return err
	}
	st.say("%s", text)
	st.say("\n\"verdict render\" prints the whole ruleset of both families.")
	if _, err := exec.LookPath("nft"); err == nil {
		st.say("On a node, \"nft list ruleset\" shows the same ruleset in the kernel, with counters.")
	}
	return nil
}

// duration returns a duration with two or three digits.
func duration(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
