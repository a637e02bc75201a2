package demo

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// connections is the number of connections of a round in each family: enough to judge the spread, and few enough to be
// fast.
const connections = 600

// story holds the values that the steps of the demo share.
type story struct {
	out        io.Writer
	dir        string // of the manifest
	annotation string // of the Service
	rootless   bool
	network    *network
	shop       *host   // the pod that connects
	endpoints  []*host // the pods that answer
	visited    sync.WaitGroup
	proxy      *proxy
}

func backendNames() []string { return []string{"pod-a", "pod-b", "pod-c"} }

// heading prints the heading of a step.
func (st *story) heading(format string, args ...any) {
	fmt.Fprintf(st.out, "\n"+format+"\n\n", args...)
}

// say prints text and indents each line.
func (st *story) say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...) + "\n") {
		fmt.Fprint(st.out, strings.TrimRight("  "+line, " \n")+"\n")
	}
}

// build creates namespaces, backends and the manifest.
func (st *story) build() (err error) {
	if st.network, err = newNetwork(); err != nil {
		return err
	}
	if st.endpoints, err = st.addPods(backendNames()); err != nil {
		return err
	}
	if st.shop, err = st.network.addPod("shop"); err != nil {
		return err
	}
	how := "as root"
	if st.rootless {
		how = "in a user namespace, without root"
	}
	st.heading("1. A node with four pods, and a client outside")
	st.say("Each of them is a network namespace, which this program created %s.", how)
	for _, pod := range st.endpoints {
		st.say("%s answers at %s, port %d.", pod.name, pod.addresses[0], backendPort)
	}
	st.say("shop (%s) and the client (%s) connect.", st.shop.addresses[0], st.network.client.addresses[0])
	return st.writeManifest()
}

// addPods adds pods that answer.
func (st *story) addPods(names []string) (list []*host, err error) {
	for _, name := range names {
		pod, err := st.network.addPod(name)
		if err == nil {
			err = pod.serve(backendPort, &st.visited)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, pod)
	}
	return list, nil
}

// writeManifest replaces the manifest.
func (st *story) writeManifest() error {
	// The proxy watches the folder and must not see half of the file.
	draft := filepath.Join(filepath.Dir(st.dir), "web.yaml")
	text := manifest(st.network.families, st.endpoints, st.annotation)
	err := os.WriteFile(draft, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(draft, filepath.Join(st.dir, "web.yaml"))
	}
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// start runs the proxy and waits until its rules are in the kernel.
func (st *story) start() (err error) {
	st.heading("2. The proxy starts")
	var ranges []string
	for _, f := range st.network.families {
		ranges = append(ranges, f.podRange)
	}
	arguments := []string{"--manifests", st.dir, "--hostname-override", nodeName, "--cluster-cidr", strings.Join(ranges, ",")}
	began := time.Now()
	if st.proxy, err = startProxy(arguments); err != nil {
		return err
	}
	pass, err := st.proxy.untilChanged("the rules were in the kernel")
	if err != nil {
		return err
	}
	st.say("verdict run %s", strings.Join(arguments, " "))
	st.say("%v later, the program and %d elements were in the kernel: one transaction of %.1f kB, which took %v.",
		duration(time.Since(began)), pass.Added, float64(pass.Bytes)/1000, duration(pass.Kernel))
	return nil
}

// connect sends connections to the cluster IP and the node port.
func (st *story) connect() error {
	st.heading("3. %d connections to each address", connections)
	return st.rounds()
}

func atClusterIP(f *family) netip.AddrPort { return netip.AddrPortFrom(f.clusterIP, servicePort) }
func atNodePort(f *family) netip.AddrPort  { return netip.AddrPortFrom(f.node, nodePort) }

// rounds connects to both frontends and draws which pods answered. A spread that is not even is an error.
func (st *story) rounds() error {
	if err := st.round("Cluster IP", st.shop, atClusterIP); err != nil {
		return err
	}
	return st.round("Node port", st.network.client, atNodePort)
}

func (st *story) round(what string, from *host, target func(*family) netip.AddrPort) error {
	var pods []string
	for _, b := range st.endpoints {
		pods = append(pods, b.name)
	}
	var hits []tally
	for i := range st.network.families {
		f := &st.network.families[i]
		answered, err := from.ask(target(f), connections)
		if err != nil {
			return err
		}
		if err := judge(f.name, answered, pods); err != nil {
			return err
		}
		st.say("%s %s, from %s", what, target(f), from.name)
		hits = append(hits, answered)
	}
	st.bars(hits)
	return nil
}

// bars draws one bar for each pod, and beside it the numbers of each family.
func (st *story) bars(hits []tally) {
	head, longest, totals := strings.Repeat(" ", 5+2+barRoom), 1, tally{}
	for i, of := range hits {
		head += fmt.Sprintf("%7s", st.network.families[i].name)
		for name, n := range of {
			totals[name] += n
			longest = max(longest, totals[name])
		}
	}
	st.say("%s", head)
	for _, name := range backendNames() {
		row := fmt.Sprintf("%-5s  %s", name, bar(totals[name], longest))
		for _, of := range hits {
			row += fmt.Sprintf("%7d", of[name])
		}
		st.say("%s", row)
	}
}

// remove removes one endpoint and shows that it gets no further connections.
func (st *story) remove() error {
	gone := st.endpoints[1]
	st.heading("4. %s is removed from the endpoints", gone.name)
	st.endpoints = slices.Delete(st.endpoints, 1, 2)
	began := time.Now()
	if err := st.writeManifest(); err != nil {
		return err
	}
	pass, err := st.proxy.untilChanged("the change was in the kernel")
	if err != nil {
		return err
	}
	st.say("%v after the file was written, the change was in the kernel: one transaction.\n"+
		"It added %d elements, deleted %d, and took %v in the kernel, %v with planning.\nNo chain or rule changed.",
		duration(time.Since(began)), pass.Added, pass.Deleted, duration(pass.Kernel), duration(pass.Duration))
	if err := st.rounds(); err != nil {
		return err
	}
	st.say("\n%s still listens, but no connection reaches it.\n"+
		"\"verdict render --manifests DIR\" prints the rules of a folder of manifests, and README.md explains them.", gone.name)
	return nil
}

// duration rounds what a reader sees.
func duration(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
