//go:build !nokernel

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const balanced = `apiVersion: v1
kind: Service
metadata: {name: busy, namespace: default, annotations: {verdict-proxy.github.io/scheduler: wlc}}
spec:
  clusterIP: 10.96.0.80
  externalIPs: [203.0.113.80]
  ports: [{name: http, port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: busy-1, namespace: default, labels: {kubernetes.io/service-name: busy}, annotations: {verdict-proxy.github.io/weight: "7"}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.0.5]}, {addresses: [10.244.0.6]}]
`

// TestRenderWithIPVS: the text shows both engines and is one that nft accepts.
func TestRenderWithIPVS(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "busy.yaml"), []byte(balanced), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args   string
		has    []string
		hasNot []string
		stderr string
	}{
		{"--assume-ipvs --ipvs-external-cidrs=203.0.113.0/24", []string{
			"\n# ipvsadm -A -t 10.96.0.80:80 -s wlc\n", "\n# ipvsadm -a -t 203.0.113.80:80 -r 10.244.0.6:8080 -m -w 7\n",
			"elements = { 10.96.0.80 . tcp . 80 comment \"default/busy:http\"", "elements = { 10.96.0.80,\n",
		}, nil, ""},
		{"--assume-ipvs", []string{"-t 10.96.0.80:80 -s wlc\n"}, []string{"-t 203.0.113.80:80"}, "--ipvs-external-cidrs"},
		{"--assume-ipvs --ipvs-external-cidrs=203.0.113.0/24 --ipvs-exclude-cidrs=203.0.113.0/24", nil, []string{"ipvsadm"}, "--ipvs-exclude-cidrs"},
		{"--assume-ipvs --backend=nft", nil, []string{"ipvsadm", "chain untranslated"}, "wlc needs IPVS"},
		{"--assume-ipvs --backend=ipvs --ipvs-scheduler=sed", []string{"-s wlc"}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			exit, stdout, stderr := inNamespace(t, append([]string{"render", "--manifests", dir}, strings.Fields(tt.args)...)...)
			if exit != 0 || !strings.Contains(stderr, tt.stderr) {
				t.Fatalf("exit %d\n%s", exit, stderr)
			}
			for _, part := range tt.has {
				if !strings.Contains(stdout, part) {
					t.Errorf("no %q in\n%s", part, stdout)
				}
			}
			for _, part := range tt.hasNot {
				if strings.Contains(stdout, part) {
					t.Errorf("%q in\n%s", part, stdout)
				}
			}
			check := exec.Command("nft", "-c", "-f", "-")
			check.Stdin = strings.NewReader(stdout)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("nft does not accept it: %v\n%s", err, out)
			}
		})
	}
}

// TestRenderOfSeveralServices: each has its own endpoints.
func TestRenderOfSeveralServices(t *testing.T) {
	dir := t.TempDir()
	other := strings.NewReplacer("busy", "calm", "10.96.0.80", "10.96.0.81", "203.0.113.80", "203.0.113.81", "30080", "30081",
		"10.244.0.5", "10.244.0.7", "10.244.0.6", "10.244.0.8").Replace(balanced)
	for name, text := range map[string]string{"busy.yaml": balanced, "calm.yaml": other} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, stdout, stderr := inNamespace(t, "render", "--manifests", dir, "--backend=nft")
	for _, endpoint := range []string{"10.244.0.5", "10.244.0.6", "10.244.0.7", "10.244.0.8"} {
		if n := strings.Count(stdout, " : "+endpoint+" . 8080"); n != 1 {
			t.Errorf("%d slots of %s, want 1\n%s\n%s", n, endpoint, stdout, stderr)
		}
	}
}
