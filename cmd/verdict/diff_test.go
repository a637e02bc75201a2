//go:build !nokernel

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// diffService is a Service with an endpoint in each of some addresses.
func diffService(name, ip, spec, annotations string, endpoints ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default, annotations: {%[4]s}}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], ports: [{name: http, port: 80, nodePort: 0}], %[3]s}
status: {loadBalancer: {ingress: [{ip: 203.0.113.%[6]s}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [%[5]s]
`, name, ip, spec, annotations, "{addresses: ["+strings.Join(endpoints, "]}, {addresses: [")+"]}", ip[strings.LastIndex(ip, ".")+1:])
}

func diffManifests() map[string]string {
	const lb = "type: LoadBalancer"
	return map[string]string{
		"plain.yaml":  diffService("plain", "10.96.0.1", "type: ClusterIP", "", "10.244.0.1", "10.244.0.2", "10.244.0.3"),
		"sticky.yaml": diffService("sticky", "10.96.0.2", lb+", sessionAffinity: ClientIP", "", "10.244.0.1", "10.244.0.4"),
		"hash.yaml":   diffService("hash", "10.96.0.3", "type: ClusterIP", "verdict-proxy.github.io/scheduler: mh", "10.244.0.1", "10.244.0.5"),
		"ranges.yaml": diffService("ranges", "10.96.0.4", lb+", loadBalancerSourceRanges: [10.0.0.0/8, 192.0.2.0/24]", "", "10.244.0.6"),
		"local.yaml":  diffService("local", "10.96.0.5", lb+", externalTrafficPolicy: Local", "", "10.244.0.7"),
	}
}

// inside runs the binary in a namespace.
func inside(t *testing.T, ns *netns.Namespace, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code says it
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// differ is a namespace in which folders are compared with the kernel.
type differ struct {
	*testing.T
	ns *netns.Namespace
}

func (d *differ) diff(dir string) (exit int, stdout, stderr string) {
	d.Helper()
	return inside(d.T, d.ns, "diff", "--manifests", dir, "--cluster-cidr=10.244.0.0/16", "--hostname-override=n1", "--backend=nft")
}

var (
	addsRule = regexp.MustCompile("(?m)^add rule .*\n")
	number   = regexp.MustCompile(`\{ [0-9a-f]+:[0-9a-f]+ `)
)

// want wants exactly these commands, apart from those that add rules. N is a number of a service port. nft accepts the commands.
func (d *differ) want(when, dir string, lines ...string) {
	d.Helper()
	exit, stdout, stderr := d.diff(dir)
	d.ns.Must(d.T, stdout, "nft", "-c", "-f", "-")
	stdout = number.ReplaceAllString(addsRule.ReplaceAllString(stdout, ""), "{ N ")
	text := ""
	if len(lines) > 0 {
		text = strings.Join(lines, "\n") + "\n"
	}
	if diff := cmp.Diff(text, stdout); diff != "" || exit != min(len(lines), 1) || stderr != "" {
		d.Errorf("%s: exit %d\n%s%s", when, exit, diff, stderr)
	}
}

// settled waits until the kernel has what a folder asks for.
func (d *differ) settled(dir string) {
	d.Helper()
	for late := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		exit, stdout, stderr := d.diff(dir)
		if exit == 0 {
			return
		}
		if time.Now().After(late) {
			d.Fatalf("the daemon runs, but diff ends with %d\n%s%s", exit, stdout, stderr)
		}
	}
}

// TestDiff compares the kernel with folders of manifests. The daemon has a history that gives its pools other numbers
// than those of the process that compares.
func TestDiff(t *testing.T) {
	d := &differ{t, netns.New(t)}
	dir := t.TempDir()
	if exit, out, _ := d.diff(dir); exit != 1 || !strings.Contains(out, "\nadd chain ip verdict services\n") {
		t.Errorf("without tables: exit %d\n%s", exit, out)
	}
	writeManifest(t, dir, "first.yaml", diffService("first", "10.96.0.9", "type: ClusterIP", "", "10.244.0.9", "10.244.0.8"))
	run := runDaemon(t, d.ns, dir, "--cluster-cidr=10.244.0.0/16", "--hostname-override=n1", "--table-owner=off")
	d.settled(dir)
	for name, text := range diffManifests() {
		writeManifest(t, dir, name, text)
		d.settled(dir)
	}
	if err := os.Remove(filepath.Join(dir, "first.yaml")); err != nil {
		t.Fatal(err)
	}
	d.settled(dir)
	run.kill()
	d.objects(dir)
	d.edits(dir)
}

// TestDiffWithRefusals: a Service that wants to know which endpoints refuse changes the rules. A process without a daemon
// plans the same. When no Service wants to know it any more, the rules stay, and that is no difference.
func TestDiffWithRefusals(t *testing.T) {
	d, dir := &differ{t, netns.New(t)}, t.TempDir()
	asks := func(notes string) {
		writeManifest(t, dir, "a.yaml", diffService("a", "10.96.0.9", "type: ClusterIP", notes, "10.244.0.9", "10.244.0.8"))
	}
	const refusals = `verdict-proxy.github.io/outlier-detection: "eject,refusals"`
	asks("")
	run := runDaemon(t, d.ns, dir, "--cluster-cidr=10.244.0.0/16", "--hostname-override=n1")
	d.settled(dir)
	run.kill()
	asks(refusals)
	if exit, out, _ := d.diff(dir); exit != 1 || !strings.Contains(out, "\nadd chain ip verdict refused\n") {
		t.Errorf("without the rules: exit %d\n%s", exit, out)
	}
	runDaemon(t, d.ns, dir, "--cluster-cidr=10.244.0.0/16", "--hostname-override=n1")
	d.settled(dir)
	asks("")
	d.settled(dir)
	if !strings.Contains(d.ns.Must(t, "", "nft", "list", "chains", "ip"), "chain refused ") {
		t.Error("the rules went; the test proves nothing")
	}
}

// objects changes objects while the daemon does not run.
func (d *differ) objects(dir string) {
	d.Helper()
	ranges := diffManifests()["ranges.yaml"]
	writeManifest(d.T, dir, "plain.yaml", diffService("plain", "10.96.0.1", "type: ClusterIP", "", "10.244.0.1", "10.244.0.3", "10.244.0.30"))
	d.want("another endpoint", dir,
		"delete element ip verdict endpoints { N . 1 : 10.244.0.2 . 8080 } # default/plain:http",
		"add element ip verdict endpoints { N . 1 : 10.244.0.30 . 8080 } # default/plain:http")
	if err := os.Remove(filepath.Join(dir, "plain.yaml")); err != nil {
		d.Fatal(err)
	}
	const gone = "\ndelete element ip verdict endpoints { N . 2 : 10.244.0.3 . 8080 } # default/plain:http\n"
	if exit, out, _ := d.diff(dir); exit != 1 || !strings.Contains(number.ReplaceAllString(out, "{ N "), gone) || strings.Contains(out, "add ") {
		d.Errorf("a Service too many: exit %d, want %q in\n%s", exit, gone, out)
	}
	writeManifest(d.T, dir, "plain.yaml", diffManifests()["plain.yaml"])
	writeManifest(d.T, dir, "ranges.yaml", strings.Replace(ranges, "192.0.2.0/24", "198.51.100.0/24", 1))
	d.want("another source range", dir,
		`delete element ip verdict allowed-sources { N . 192.0.2.0 comment "192.0.2.0/24 default/ranges:http" }`,
		`add element ip verdict allowed-sources { N . 198.51.100.0 comment "198.51.100.0/24 default/ranges:http" }`)
	writeManifest(d.T, dir, "ranges.yaml", ranges)
	d.want("as before", dir)
}

// edits changes the kernel with nft.
func (d *differ) edits(dir string) {
	d.Helper()
	nft := func(script string) {
		d.Helper()
		if err := d.ns.Load(script); err != nil {
			d.Fatal(err)
		}
	}
	nft("add element ip verdict unanswered { 10.244.0.1 . 8080 timeout 1h }; add element ip verdict refusing { 10.244.0.1 . 8080 timeout 1h }; " +
		"add element ip verdict held-back { 10.244.0.2 . 1234 timeout 1h }; add element ip verdict affinity { 0:77 . 0x1 timeout 1h : 0:77 }")
	d.want("what packets wrote", dir)
	nft("delete element ip verdict cluster-ips { 10.96.0.1 }")
	d.want("a deleted element", dir, "add element ip verdict cluster-ips { 10.96.0.1 }")
	nft("add element ip verdict cluster-ips { 10.96.0.1, 10.96.0.77 }")
	d.want("an element too many", dir, "delete element ip verdict cluster-ips { 10.96.0.77 }")
	nft("delete element ip verdict cluster-ips { 10.96.0.77 }")
	nft("add element ip verdict service-cidrs { 10.96.0.0/12 }")
	d.want("a range too many", dir, "flush set ip verdict service-cidrs")
	nft("flush set ip verdict service-cidrs")
	nft("add table ip verdict { flags dormant; }; add chain ip verdict filter-forward { policy drop; }")
	const forward = "add chain ip verdict filter-forward { type filter hook forward priority filter; policy accept; }"
	d.want("a table that sleeps, and a policy", dir, "flush chain ip verdict filter-forward", forward,
		`# then, because the table sleeps and no rule of it sees packets: add table ip verdict { comment "verdict layout 1"; }`)
	nft("add table ip verdict; add chain ip verdict filter-forward { policy accept; }")
	nft("add chain ip verdict mine { type filter hook input priority 5; }")
	d.want("a base chain too many", dir, "flush chain ip verdict mine", "delete chain ip verdict mine")
	nft("delete chain ip verdict mine")
	nft("add rule ip verdict new-connections drop")
	d.want("a rule too many", dir, "flush chain ip verdict new-connections", "add chain ip verdict new-connections")
	nft("flush chain ip verdict limited; add rule ip verdict limited accept; add rule ip verdict limited accept; " +
		"add rule ip verdict limited accept")
	d.want("other rules", dir, "flush chain ip verdict limited", "flush chain ip verdict new-connections",
		"add chain ip verdict limited", "add chain ip verdict new-connections")
	for _, args := range [][]string{{"--manifests", "/does/not/exist"}, {"--manifests", dir, "--backend=x"}} {
		if exit, stdout, stderr := inside(d.T, d.ns, append([]string{"diff"}, args...)...); exit != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			d.Errorf("diff %v: exit %d, want 2\n%s%s", args, exit, stdout, stderr)
		}
	}
}

// TestDiffFindsTheFolder: without a source of objects, diff reads what the daemon beside it reads.
func TestDiffFindsTheFolder(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	for name, text := range diffManifests() {
		writeManifest(t, dir, name, text)
	}
	runDaemon(t, ns, dir)
	if out := ns.Must(t, "", binary, "diff", "--backend=nft", "--json"); !strings.Contains(out, `"differs": false`) {
		t.Errorf("diff beside a daemon: %s", out)
	}
}

// TestDiffWithATypingError: what cannot be read is what a daemon that starts takes from its copies. It is not missing.
func TestDiffWithATypingError(t *testing.T) {
	ns, dir, state := netns.New(t), t.TempDir(), t.TempDir()
	for name, text := range diffManifests() {
		writeManifest(t, dir, name, text)
	}
	runDaemon(t, ns, dir, "--state-dir="+state)
	file := filepath.Join(dir, "plain.yaml")
	for what, text := range map[string]string{
		file + ":1: Service default/plain: ": strings.Replace(diffManifests()["plain.yaml"], "port: 80", "port: eighty", 1),
		file + ":4: ":                        "kind: Service\n\nmetadata:\n\tname: plain\n",
	} {
		writeManifest(t, dir, "plain.yaml", text)
		exit, stdout, stderr := inside(t, ns, "diff", "--backend=nft", "--manifests="+dir, "--state-dir="+state)
		if exit != 0 || stdout != "" || !strings.HasPrefix(stderr, what) {
			t.Errorf("%s: exit %d\n%s%s", what, exit, stdout, stderr)
		}
		exit, stdout, stderr = inside(t, ns, "diff", "--backend=nft", "--manifests="+dir, "--state-dir=")
		if exit != 2 || stdout != "" || !strings.Contains(stderr, what) || !strings.Contains(stderr, "stays as it is") {
			t.Errorf("%s, without copies: exit %d\n%s%s", what, exit, stdout, stderr)
		}
	}
	if copies, err := filepath.Glob(state + "/manifests-*/plain.yaml"); err != nil || len(copies) != 1 {
		t.Errorf("copies %v, %v", copies, err)
	}
}
