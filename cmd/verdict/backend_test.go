//go:build !nokernel

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// buildInfo has a value in every label.
var buildInfo = regexp.MustCompile(`(?m)^verdict_build_info{goversion="go[^"]+",revision="[^"]+",version="[^"]+"} 1$`)

// demanding asks for a scheduler that only IPVS has.
const demanding = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {verdict-proxy.github.io/scheduler: lc}}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]
`

// serving runs the daemon until its metrics count a Service with a problem. Then it prints metrics and the map of nft,
// and ends the daemon.
const serving = `
ip link set lo up
"$0" run --manifests "$1" --metrics-bind-address=127.0.0.1:10249 --healthz-bind-address= "${@:2}" 2>"$1/.log" & pid=$!
for attempt in {1..1200}; do
	kill -0 $pid 2>/dev/null || break
	exec 3<>/dev/tcp/127.0.0.1/10249 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && metrics=$(cat <&3)
	rejected=$(grep '^verdict_rejected_objects{kind="Service"}' <<<"$metrics") && [ "${rejected##* }" != 0 ] && break
	sleep 0.05
done 2>/dev/null
echo "$rejected"
grep '^verdict_build_info' <<<"$metrics"
nft list map ip verdict services
kill $pid
wait $pid
code=$?
cat "$1/.log"
exit $code
`

// TestWithoutIPVS: a Service asks for a scheduler of IPVS where IPVS cannot be used. The test runs in a user namespace
// of its own, and the kernel lets only the initial user namespace configure IPVS.
func TestWithoutIPVS(t *testing.T) {
	unusable, needed := `msg="IPVS cannot be used; nft serves all Services" backend=`, "scheduler lc needs IPVS ("
	for _, tt := range []struct {
		args   string
		once   []string // exactly once in the log
		hasNot string
	}{
		{"", []string{"level=INFO " + unusable + "hybrid", needed}, "level=ERROR"},
		{"--backend=hybrid", []string{"level=INFO " + unusable + "hybrid", needed}, "level=ERROR"},
		{"--default-scheduler=wlc", []string{"level=WARN " + unusable + "hybrid", needed}, "level=ERROR"},
		{"--backend=ipvs", []string{"level=WARN " + unusable + "ipvs", needed}, "level=ERROR"},
		{"--backend=nft", []string{needed + "--backend is nft); endpoints are picked at random, by weight"}, unusable},
	} {
		t.Run(tt.args, func(t *testing.T) {
			exit, out := daemonInNamespace(t, strings.Fields(tt.args)...)
			if exit != 0 || strings.Contains(out, tt.hasNot) {
				t.Errorf("exit %d, or %q in\n%s", exit, tt.hasNot, out)
			}
			for _, part := range append(tt.once, `verdict_rejected_objects{kind="Service"} 1`, `comment "default/web:http" : `, `",version="v0.0.0-test"} 1`) {
				if n := strings.Count(out, part); n != 1 {
					t.Errorf("%d times, want once: %q in\n%s", n, part, out)
				}
			}
			if !buildInfo.MatchString(out) {
				t.Errorf("no line matches %s in\n%s", buildInfo, out)
			}
		})
	}
	t.Run("without fallback", func(t *testing.T) {
		exit, out := daemonInNamespace(t, "--backend=ipvs", "--ipvs-fallback=false")
		if want := "verdict: --backend=ipvs: "; exit != 1 || strings.Count(out, want) != 1 || !strings.Contains(out, "--ipvs-fallback would serve all Services by nft instead") {
			t.Errorf("exit %d (want 1), or not %q in\n%s", exit, want, out)
		}
	})
}

// daemonInNamespace runs the daemon in a network namespace and a user namespace of its own.
func daemonInNamespace(t *testing.T, args ...string) (exit int, out string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(demanding), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", append([]string{"-c", serving, binary, dir}, args...)...)
	cmd.SysProcAttr = netns.AsRoot(unix.CLONE_NEWNET)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}
