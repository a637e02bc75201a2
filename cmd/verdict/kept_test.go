//go:build !nokernel

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// keptServices are Services of several kinds.
func keptServices() map[string]string {
	local := diffService("local", "10.96.0.3", "type: LoadBalancer, externalTrafficPolicy: Local, loadBalancerSourceRanges: [192.0.2.0/24]", "", "10.244.0.3")
	long := strings.Repeat("x", 63)
	return map[string]string{
		"a.yaml": diffService("a-web", "10.96.0.1", "type: LoadBalancer", "", "10.244.0.1", "10.244.0.2"),
		"b.yaml": strings.Replace(local, "{addresses: [10.244.0.3]}", "{addresses: [10.244.0.3], nodeName: n1}, {addresses: [10.244.1.3]}", 1),
		"c.yaml": diffService("sticky", "10.96.0.5", "type: NodePort, sessionAffinity: ClientIP", "verdict-proxy.github.io/scheduler: mh", "10.244.0.5", "10.244.0.6"),
		"d.yaml": strings.Replace(diffService("nobody", "10.96.0.7", "type: ClusterIP", "", "10.244.0.7"), "endpoints: [{addresses: [10.244.0.7]}]", "endpoints: []", 1),
		"f.yaml": strings.NewReplacer("name: long", "name: "+long, "service-name: long", "service-name: "+long, "name: http", "name: "+long).Replace(
			diffService("long", "10.96.0.11", "sessionAffinity: ClientIP", "", "10.244.0.11", "10.244.0.12")),
		"g.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: dual}\nspec: {clusterIPs: [10.96.0.13, \"fd00:10:96::13\"], ports: [{port: 80}]}\n---\n" +
			dualSlice("4", "10.244.0.13"),
		"i.yaml": diffService("wants-that-of-web", "10.97.0.1", "type: LoadBalancer", "", "10.244.0.15"),
		"j.yaml": "apiVersion: verdict-proxy.github.io/v1alpha1\nkind: LoadBalancer\nmetadata: {name: short}\nspec:\n" +
			"  addresses: [203.0.113.7, \"2001:db8::7\"]\n  ports: [{port: 80, targetPort: 8080}, {port: 443, targetPort: 8443}]\n" +
			"  endpoints: [{address: 10.244.0.17, weight: 3}, {address: 10.244.0.18}, {address: \"fd00:10:244::17\"}]\n  masquerade: false\n",
		"k.yaml": "apiVersion: verdict-proxy.github.io/v1alpha1\nkind: LoadBalancer\nmetadata: {name: closed}\nspec:\n" +
			"  addresses: [203.0.113.8]\n  ports: [{port: 80}]\n  endpoints: [{address: 10.244.0.19}]\n  sourceRanges: [198.51.100.0/24]\n",
		"h.yaml": dualSlice("6", `"fd00:10:244::13"`),
		"e.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  clusterIP: 10.96.0.9\n  ports: [{port: 53, protocol: UDP}]\n" +
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: dns-1, labels: {kubernetes.io/service-name: dns}}\n" +
			"addressType: IPv4\nports: [{port: 5353, protocol: UDP}]\nendpoints: [{addresses: [10.244.0.9]}, {addresses: [10.244.0.10]}]\n",
	}
}

func dualSlice(family, endpoint string) string {
	return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: dual-" + family + ", labels: {kubernetes.io/service-name: dual}}\n" +
		"addressType: IPv" + family + "\nports: [{port: 8080}]\nendpoints: [{addresses: [" + endpoint + "]}]\n"
}

// TestDamagedManifestsAtTheStart: what cannot be read at the start of a process stays as its last good file had it, and goes
// when everything can be read and says so.
func TestDamagedManifestsAtTheStart(t *testing.T) {
	write := func(t *testing.T, dir string, files map[string]string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			writeManifest(t, dir, name, text)
		}
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(t *testing.T, dir string){
		"half a file": func(t *testing.T, dir string) {
			for file, text := range keptServices() {
				writeManifest(t, dir, file, text[:len(text)-7]+": [")
			}
		},
		"an empty file": func(t *testing.T, dir string) { writeManifest(t, dir, "b.yaml", "") },
		"an object that cannot be decoded": func(t *testing.T, dir string) {
			writeManifest(t, dir, "a.yaml", strings.Replace(keptServices()["a.yaml"], "port: 80", "port: http", 1))
		},
		"only the slices are damaged": func(t *testing.T, dir string) {
			for _, file := range []string{"c.yaml", "e.yaml", "f.yaml"} {
				service, _, _ := strings.Cut(keptServices()[file], "---\n")
				writeManifest(t, dir, file, service+"---\na: [\n")
			}
		},
		"only the Services are damaged": func(t *testing.T, dir string) {
			for _, file := range []string{"c.yaml", "e.yaml", "f.yaml"} {
				_, slice, _ := strings.Cut(keptServices()[file], "---\n")
				writeManifest(t, dir, file, slice+"---\na: [\n")
			}
		},
		"the slice of one family": func(t *testing.T, dir string) { writeManifest(t, dir, "h.yaml", "a: [\n") },
		"a link without a target": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "c.yaml"))
			if err := os.Symlink("../missing/c.yaml", filepath.Join(dir, "c.yaml")); err != nil {
				t.Fatal(err)
			}
		},
		"no files": func(t *testing.T, dir string) {
			for file := range keptServices() {
				remove(t, filepath.Join(dir, file))
			}
		},
		"no directory": remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, dir := netns.New(t), filepath.Join(t.TempDir(), "manifests")
			content := func() string {
				t.Helper()
				exit, stdout, stderr := inside(t, ns, "list", "-o", "json", "--no-connections")
				if exit != 0 {
					t.Fatalf("list ends with %d: %s", exit, stderr)
				}
				return stdout
			}
			whole, state := t.TempDir(), t.TempDir()
			write(t, whole, keptServices())
			write(t, dir, keptServices())
			start := func() *daemonProcess {
				return runDaemon(t, ns, dir, "--hostname-override=n1", "--cluster-cidr=10.244.0.0/16", "--state-dir="+state)
			}
			start().kill()
			want := content()
			for range 2 { // the second time, the copies are older than the process before
				damage(t, dir)
				d := start()
				if got := content(); got != want {
					t.Fatalf("the kernel has\n%s\nand had\n%s\n%s", got, want, d.log)
				}
				exit, stdout, _ := inside(t, ns, "diff", "--manifests", whole, "--hostname-override=n1", "--cluster-cidr=10.244.0.0/16", "--backend=nft")
				if exit != 0 {
					t.Fatalf("the kernel differs from what whole files say:\n%s\n%s", stdout, d.log)
				}
				if !strings.Contains(d.log.String(), "their copies stay in force") {
					t.Errorf("nothing is said:\n%s", d.log)
				}
				d.kill()
			}
			d := start()
			remove(t, dir)
			write(t, dir, map[string]string{"a.yaml": keptServices()["a.yaml"]})
			lab.Eventually(t, "the kernel has what the files say that can be read again", func() error {
				got := content()
				if strings.Count(got, "\"service\"") != strings.Count(got, "default/a-web:") || !strings.Contains(got, "default/a-web:") {
					return fmt.Errorf("it has\n%s\n%s", got, d.log)
				}
				return nil
			})
		})
	}
}

// TestDamagedManifestsWithoutCopies: the first start after an upgrade finds no copies. It leaves the kernel as it is, and
// begins when everything can be read.
func TestDamagedManifestsWithoutCopies(t *testing.T) {
	ns, dir, state := netns.New(t), t.TempDir(), t.TempDir()
	write := func(change func(string) string) {
		for file, text := range keptServices() {
			writeManifest(t, dir, file, change(text))
		}
	}
	content := func() string {
		exit, stdout, stderr := inside(t, ns, "list", "-o", "json", "--no-connections")
		if exit != 0 {
			t.Fatalf("list ends with %d: %s", exit, stderr)
		}
		return stdout
	}
	whole := func(text string) string { return text }
	write(whole)
	runDaemon(t, ns, dir, "--state-dir="+state).kill()
	want := content()
	copies, err := filepath.Glob(filepath.Join(state, "manifests-*"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies in %v, %v", copies, err)
	}
	if err := os.RemoveAll(copies[0]); err != nil {
		t.Fatal(err)
	}
	write(func(text string) string { return text[:len(text)-7] + ": [" })
	d := startDaemon(t, ns, dir, "--state-dir="+state)
	d.wait(t, "what the kernel has stays as it is")
	if got := content(); got != want {
		t.Fatalf("the kernel has\n%s\nand had\n%s\n%s", got, want, d.log)
	}
	if log := d.log.String(); strings.Contains(log, "tables written") || !strings.Contains(log, "a manifest file has a fault") {
		t.Errorf("it must wait, and name the faults:\n%s", log)
	}
	write(whole)
	d.wait(t, "tables written")
	if got := content(); got != want {
		t.Errorf("the kernel has\n%s\nand had\n%s\n%s", got, want, d.log)
	}
	checkCopies(t, copies[0])
}

// checkCopies expects the copy of each file, which nobody else can read.
func checkCopies(t *testing.T, dir string) {
	t.Helper()
	for file, text := range keptServices() {
		path := filepath.Join(dir, file)
		var info os.FileInfo
		lab.Eventually(t, "the copy of "+file, func() (err error) { // it is written after the objects are in force
			info, err = os.Stat(path)
			return err
		})
		if data, err := os.ReadFile(path); err != nil || string(data) != text || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v:\n%s", path, info.Mode(), err, data)
		}
	}
}
