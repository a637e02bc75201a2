package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// objectFaults are changes of objects, of addresses and of files that clients of the untouched Services must not notice.
func objectFaults() []fault {
	return []fault{
		{"classes of untouched Services change", 8, (*bed).changeClasses},
		{"addresses of node ports change", 6, (*bed).changeAddresses},
		{"cleanup beside the daemon", 2, func(b *bed, _ *rand.Rand) (func() error, error) { return nil, b.cleanUpBeside() }},
		{"damaged files at a restart", 3, (*bed).damageFiles},
	}
}

// changeClasses changes how the endpoints of untouched Services are drawn, several times. Each endpoint stays one.
func (b *bed) changeClasses(r *rand.Rand) (func() error, error) {
	w := &writer{client: b.plane.Client}
	for range 1 + r.IntN(6) {
		for _, s := range stableServices() {
			if s.sticky {
				continue // its clients must stay with their endpoints
			}
			svc := s.service()
			svc.Annotations = map[string]string{"verdict-proxy.github.io/scheduler": oneOf(r, "random", "rr", "wrr", "mh", "sh", "")}
			if r.IntN(2) == 0 {
				svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(oneOf(r, int32(1), 5, 600))}}
			}
			ctx, cancel := context.WithTimeout(context.Background(), writePatience)
			if err := w.service(ctx, svc); err != nil {
				b.ledger.note("a class stays: %v", err) // the API server may be down
			}
			cancel()
		}
		pause(r, 100*time.Millisecond)
	}
	return nil, nil
}

// changeAddresses gives the node other addresses for a while.
func (b *bed) changeAddresses(r *rand.Rand) (func() error, error) {
	var given []netip.Prefix
	for range 1 + r.IntN(3) {
		for _, within := range []string{"198.18.7.0/24", "2001:db8:187::/64"} {
			a, _ := lab.Nth(within, 1+r.IntN(200)) // the range stands here
			p := netip.PrefixFrom(a, a.BitLen())
			if err := b.world.Node.AddAddress("lo", p); err != nil {
				b.ledger.note("an address is there already: %v", err)
				continue
			}
			given = append(given, p)
		}
	}
	return func() error {
		var errs []error
		for _, p := range given {
			errs = append(errs, b.world.Node.RemoveAddress("lo", p))
		}
		return errors.Join(errs...)
	}, nil
}

// cleanUpBeside runs "verdict cleanup" beside the daemon. It must fail and change nothing.
func (b *bed) cleanUpBeside() error {
	if b.daemon.serving() == nil {
		return nil
	}
	out, err := b.world.Node.Command(b.daemon.binary, "cleanup")
	if err == nil {
		return fmt.Errorf("verdict cleanup removed what a daemon serves: %s", out)
	}
	if !strings.Contains(err.Error(), "nothing was removed") {
		return fmt.Errorf("verdict cleanup beside the daemon: %w", err)
	}
	return nil
}

// damageFiles has the daemon follow manifests of all objects, damages these, and starts the daemon again. What the kernel
// has must stay. In the end the daemon follows the API server again.
func (b *bed) damageFiles(r *rand.Rand) (func() error, error) {
	b.churn.pause()
	defer b.churn.resume()
	dir := filepath.Join(b.options.logs, "manifests")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := b.writeManifests(dir); err != nil {
		b.ledger.note("no manifests: %v", err) // the API server may be down
		return nil, nil
	}
	if err := b.daemon.stop(); err != nil {
		return nil, err
	}
	b.daemon.manifests = dir
	back := func() error {
		err := b.daemon.stop()
		b.daemon.manifests = ""
		return errors.Join(err, b.daemon.start())
	}
	if err := b.startAndPass(); err != nil {
		return nil, err
	}
	for range 1 + r.IntN(2) {
		if err := errors.Join(b.daemon.kill(), damage(r, dir), b.startAndPass()); err != nil {
			return nil, err
		}
	}
	return nil, back()
}

// startAndPass starts the daemon and waits until it has written its tables.
func (b *bed) startAndPass() error {
	if err := b.daemon.start(); err != nil {
		return err
	}
	p := b.daemon.running()
	for end := time.Now().Add(settlePatience); p != nil && !b.daemon.passed(p); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("a daemon that follows files wrote no tables within %s", settlePatience)
		}
	}
	return b.daemon.err()
}

// damage makes files unreadable, or takes them away.
func damage(r *rand.Rand, dir string) error {
	if r.IntN(4) == 0 {
		return os.RemoveAll(dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, file := range files {
		if filepath.Base(file) == clusterFile || r.IntN(4) == 0 {
			continue // the Node and the ranges are not kept
		}
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr, os.WriteFile(file, text[:r.IntN(len(text)+1)/2], 0o644))
	}
	return err
}

// clusterFile is the manifest with the objects that are no Services and no slices.
const clusterFile = "cluster.json"

// writeManifests writes all objects that the daemon reads into files: one for each Service and each slice.
func (b *bed) writeManifests(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*writePatience)
	defer cancel()
	client, all := b.plane.Client, metav1.ListOptions{}
	services, err1 := client.CoreV1().Services("").List(ctx, all)
	slices, err2 := client.DiscoveryV1().EndpointSlices("").List(ctx, all)
	nodes, err3 := client.CoreV1().Nodes().List(ctx, all)
	ranges, err4 := client.NetworkingV1().ServiceCIDRs().List(ctx, all)
	if err := errors.Join(err1, err2, err3, err4, os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	cluster := ""
	var errs []error
	write := func(kind, version string, o runtime.Object, meta metav1.Object) {
		text, err := manifest(kind, version, o)
		errs = append(errs, err)
		if kind == "Node" || kind == "ServiceCIDR" {
			cluster += text + "\n"
			return
		}
		name := fmt.Sprintf("%s.%s.%s.json", kind, meta.GetNamespace(), meta.GetName())
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for i := range services.Items {
		write("Service", "v1", &services.Items[i], &services.Items[i])
	}
	for i := range slices.Items {
		write("EndpointSlice", "discovery.k8s.io/v1", &slices.Items[i], &slices.Items[i])
	}
	for i := range nodes.Items {
		write("Node", "v1", &nodes.Items[i], &nodes.Items[i])
	}
	for i := range ranges.Items {
		write("ServiceCIDR", "networking.k8s.io/v1", &ranges.Items[i], &ranges.Items[i])
	}
	return errors.Join(append(errs, os.WriteFile(filepath.Join(dir, clusterFile), []byte(cluster), 0o644))...)
}

// manifest is an object as a file has it. A list of the API server does not name the kinds of its items.
func manifest(kind, version string, o runtime.Object) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return "", err
	}
	fields["kind"], fields["apiVersion"] = kind, version
	text, err := json.Marshal(fields)
	return string(text), err
}
