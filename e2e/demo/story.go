package main

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// connections is the number of connections to each address: enough to judge the spread, and few enough to be fast.
const connections = 600

// story holds the values that the steps of the demo share.
type story struct {
	out      io.Writer
	verdict  string           // path of the program
	dir      string           // of the manifests
	how      string           // the namespaces were created
	targets  []netip.AddrPort // of the Service
	shop     *host            // the pod that connects
	backends []string         // the pods that answer
	log      *bufio.Scanner   // of the proxy
}

// tell runs the whole demo in the namespaces of this process. After an error this process ends, and then the kernel ends the
// proxy.
func (st *story) tell() error {
	began := time.Now()
	for _, step := range []func() error{st.build, st.start, st.remove, st.read} {
		if err := step(); err != nil {
			return err
		}
	}
	st.heading("Done in %.1f s", time.Since(began).Seconds())
	st.say("The namespaces, rules, processes and files of the demo disappear with this program.")
	return nil
}

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

// build creates the namespaces, the backends and the manifests.
func (st *story) build() error {
	node, err := newHost("the node", 0, perFamily("192.168.7.1", "fd00:7::1"))
	if err != nil {
		return err
	}
	var clusterIPs []string
	for _, a := range perFamily("10.96.0.10", "fd00:96::10") {
		st.targets = append(st.targets, netip.AddrPortFrom(a, 80))
		clusterIPs = append(clusterIPs, a.String())
	}
	if st.shop, err = node.add("shop", perFamily("10.0.1.9", "fd00:10::9")); err != nil {
		return err
	}
	st.heading("1. A node with four pods")
	st.say("Each of them is a network namespace, which this program created %s.", st.how)
	for i, name := range st.backends {
		pod, err := node.add(name, perFamily(fmt.Sprintf("10.0.1.%d", i+1), fmt.Sprintf("fd00:10::%d", i+1)))
		if err == nil {
			err = pod.serve(backendPort)
		}
		if err == nil {
			err = os.WriteFile(st.file(name), []byte(endpointSlices(pod)), 0o600)
		}
		if err != nil {
			return err
		}
		st.say("%s answers at %s, port %d.", name, pod.addresses[0], backendPort)
	}
	st.say("shop (%s) connects.", st.shop.addresses[0])
	return os.WriteFile(st.file("service"), fmt.Appendf(nil, service, strings.Join(clusterIPs, ", ")), 0o600)
}

// file returns the path of a manifest.
func (st *story) file(name string) string { return filepath.Join(st.dir, name+".yaml") }

// start runs the proxy, waits until its rules are in the kernel, and sends connections to the Service.
func (st *story) start() (err error) {
	st.heading("2. The proxy starts")
	arguments := []string{"run", "--manifests", st.dir, "--hostname-override", "demo-node", "--cluster-cidr", "10.0.0.0/16,fd00:10::/64"}
	began := time.Now()
	if st.log, err = startProxy(st.verdict, arguments); err != nil {
		return err
	}
	pass, err := untilChanged(st.log, "the rules were in the kernel")
	if err != nil {
		return err
	}
	st.say("verdict %s", strings.Join(arguments, " "))
	st.say("%v later, the program and the Service were in the kernel, in one transaction. The log:\n%s", time.Since(began).Round(time.Millisecond), pass)
	st.heading("3. %d connections to each cluster IP, from shop", connections)
	return st.round(st.backends)
}

// round connects to each address of the Service and draws which pods answered. A spread over the endpoints that is not even is an
// error.
func (st *story) round(endpoints []string) error {
	for _, to := range st.targets {
		hits, err := st.shop.ask(to, connections)
		if err == nil {
			err = judge(to.String(), hits, endpoints)
		}
		if err != nil {
			return err
		}
		st.say("%s", to)
		for _, name := range st.backends {
			st.say("%s %5d  %s", name, hits[name], strings.Repeat("#", hits[name]/10))
		}
	}
	return nil
}

// remove removes one endpoint while connections continue, and shows that it gets no further ones.
func (st *story) remove() error {
	const gone = "pod-b"
	st.heading("4. %s is removed from the endpoints, while shop connects again and again", gone)
	began, changed, made, pass := time.Now(), make(chan error, 1), 0, ""
	if err := os.Remove(st.file(gone)); err != nil {
		return err
	}
	go func() {
		var err error
		pass, err = untilChanged(st.log, "the change was in the kernel")
		changed <- err
	}()
	for ; made == 0 || len(changed) == 0; made++ {
		if _, err := st.shop.ask(st.targets[0], 1); err != nil {
			return err
		}
	}
	if err := <-changed; err != nil {
		return err
	}
	st.say("%v after its file was removed, the change was in the kernel, in one transaction. The log:\n%s\n"+
		"No chain or rule changed. None of %d connections failed meanwhile. After it:", time.Since(began).Round(time.Millisecond), pass, made)
	if err := st.round([]string{"pod-a", "pod-c"}); err != nil {
		return err
	}
	st.say("%s still listens, but no connection reaches it.", gone)
	return nil
}

// read prints what the commands say about the Service.
func (st *story) read() error {
	st.heading("5. Where to read it")
	for _, arguments := range [][]string{{"list", "default/web"}, {"explain", "10.0.1.2", "10.96.0.10:80"}} {
		out, err := exec.Command(st.verdict, arguments...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("verdict %s: %w: %s", arguments[0], err, out)
		}
		st.say("# verdict %s\n%s", strings.Join(arguments, " "), out)
	}
	st.say("\"nft list ruleset\" prints the same rules, and README.md explains them.\n" +
		"\"verdict render --manifests DIR\" prints the rules of a folder of manifests.")
	return nil
}
