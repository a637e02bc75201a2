//go:build !nokernel

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

// binary is built once for all tests of this package.
var binary string

func TestMain(m *testing.M) {
	os.Exit(netns.Enter(func() int { return program.Main(m, &binary) }))
}

// inNamespace runs the binary in a network namespace and a user namespace of its own.
func inNamespace(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = netns.AsRoot(unix.CLONE_NEWNET)
	err := cmd.Run()
	var exitErr *exec.ExitError
	if err != nil && !errors.As(err, &exitErr) {
		t.Fatalf("run %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestRemedyWithoutRights: whatever command the kernel refuses, it says what is missing.
func TestRemedyWithoutRights(t *testing.T) {
	var errs strings.Builder
	cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		return fmt.Errorf("get pool 0:2: %w", unix.EPERM)
	}}
	cmd.SetArgs(nil)
	cmd.SetErr(&errs)
	if exit := execute(t.Context(), cmd); exit != exitFailure || !strings.Contains(errs.String(), "run this command as root, because it needs CAP_NET_ADMIN") {
		t.Errorf("exit %d: %s", exit, errs.String())
	}
}

func TestCommandLine(t *testing.T) {
	manifests := t.TempDir()
	tests := []struct {
		args   string
		exit   int
		stdout string // part of it
		stderr string // part of it
	}{
		{"version", 0, "verdict v0.0.0-test", ""},
		{"--version", 0, "verdict v0.0.0-test", ""},
		{"--help", 0, "Available Commands", ""},
		{"nonsense", 2, "", `unknown command "nonsense"`},
		{"run extra", 2, "", "takes no arguments"},
		{"run --bogus", 2, "", "unknown flag: --bogus"},
		{"run --min-sync-period=-1s", 2, "", "--min-sync-period=-1s: must be a time from 0 to 10m"},
		{"run --min-sync-period=soon", 2, "", "--min-sync-period=soon: must be a time such as 10ms"},
		{"run -v=high", 2, "", "--v=high: must be a whole number"},
		{"run --repair=maybe", 2, "", "--repair=maybe: must be true or false"},
		{"help nosuch", 2, "", `unknown command "nosuch"`},
		{"help list nosuch", 2, "", `unknown command "list nosuch"`},
		{"help get pool", 0, "verdict get pool NUMBER", ""},
		{"completion nosuch", 2, "", `unknown command "nosuch"`},
		{"completion bash", 0, "__verdict", ""},
		{"completion", 0, "Available Commands", ""},
		{"list --rate=0", 2, "", "--rate=0s: must be above 0"},
		{"explain --trace=0 node 10.96.0.1:80", 2, "", "--trace must be above 0"},
		{"version -o json", 0, `"version": "v0.0.0-test"`, ""},
		{"version -o yaml", 0, "version: v0.0.0-test", ""},
		{"check --json --manifests /does/not/exist", 1, `"status": "error"`, "failed; see"},
		{"check -o table --manifests /does/not/exist", 1, "error    manifests", ""},
		{"top -o xml", 2, "", "--output=xml: must be one of text, json, yaml"},
		{"run --backend=magic", 2, "", "--backend=magic: must be nft, ipvs or hybrid"},
		{"run --manifests DIR --kubeconfig x", 2, "", "--manifests cannot be combined with --kubeconfig"},
		{"run --manifests DIR --master https://127.0.0.1:1", 2, "", "--manifests cannot be combined with --kubeconfig"},
		{"run --cluster-cidr 10.0.0.0/40", 2, "", `--cluster-cidr: "10.0.0.0/40" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`},
		{"run --nodeport-addresses everywhere", 2, "", `--nodeport-addresses: "everywhere" is not primary, localhost, all or a CIDR such as 10.0.0.0/8`},
		{"run --healthz-bind-address here", 2, "", "--healthz-bind-address=here: must be ADDRESS:PORT"},
		{"run --detect-local-mode Magic", 2, "", "--detect-local-mode=Magic: must be"},
		{"run --detect-local-mode BridgeInterface", 2, "", "--pod-bridge-interface: must be set"},
		{"run --feature-gates AllowServiceExternalIPs=no", 2, "", "invalid value of AllowServiceExternalIPs: no"},
		{"run --feature-gates AllowServiceExternalIPs", 2, "", "malformed pair"},
		{"run --log-format xml", 2, "", "--log-format=xml: must be text or json"},
		{"run --kubeconfig /does/not/exist --healthz-bind-address= --metrics-bind-address=", 1, "", "/does/not/exist"},
		{"run --manifests /does/not/exist --healthz-bind-address= --metrics-bind-address=", 1, "", "/does/not/exist"},
		{"render --manifests /does/not/exist", 1, "", "/does/not/exist"},
		{"render --manifests DIR", 0, "table ip6 verdict {", ""},
		{"validate", 2, "", "validate needs files or folders"},
		{"validate /does/not/exist", 1, "", "/does/not/exist"},
		{"validate DIR", 0, "", ""},
		{"validate --cluster-cidr=10.0.0.0/8 --hostname-override=n1 --masquerade-all DIR", 0, "", ""},
		{"render --manifests DIR --conntrack-min=5 --metrics-bind-address=", 0, "table ip6 verdict {", ""},
		{"diff --quiet --manifests DIR --state-dir= --ui", 1, "", ""},
		{"validate DIR -o json", 0, "[]\n", ""},
		{"diff --manifests DIR -o json", 1, `"differs": true`, ""},
		{"validate --schema", 0, "json-schema.org", ""},
		{"convert a b", 2, "", "convert takes one file"},
		{"convert /does/not/exist", 1, "", "/does/not/exist"},
		{"run --cleanup", 0, "", "removed"},
		{"check --manifests /does/not/exist", 1, "error    manifests", "failed; see the remedies above"},
		{"check -o xml", 2, "", "--output=xml: must be one of text, json, yaml, table"},
		{"cleanup", 0, "", "removed"},
		{"cleanup extra", 2, "", "takes no arguments"},
		{"list", 1, "", "nothing to list: there is no table ip verdict"},
		{"list a/b/c", 2, "", `"a/b/c" must be NAMESPACE`},
		{"list --bogus", 2, "", "unknown flag: --bogus"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(tt.args, "DIR", manifests))
			exit, stdout, stderr := inNamespace(t, args...)
			if exit != tt.exit || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit %d (want %d)\nstdout: %s\nwants: %s\nstderr: %s\nwants: %s", exit, tt.exit, stdout, tt.stdout, stderr, tt.stderr)
			}
			if tt.exit == 2 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("the error takes more than one line:\n%s", stderr)
			}
		})
	}
}

// upstreamFlags are the flags of kube-proxy with values, also the deprecated ones, which its help does not show.
var upstreamFlags = strings.Fields(`
--bind-address=0.0.0.0 --bind-address-hard-fail --cleanup --cluster-cidr=10.0.0.0/8 --config-sync-period=15m
--conntrack-max-per-core=1 --conntrack-min=1 --conntrack-tcp-be-liberal --conntrack-tcp-timeout-close-wait=1h
--conntrack-tcp-timeout-established=24h --conntrack-udp-timeout=30s --conntrack-udp-timeout-stream=180s
--detect-local-mode=ClusterCIDR --feature-gates=A=true --healthz-bind-address=127.0.0.1 --healthz-port=10256
--hostname-override=n1 --iptables-localhost-nodeports=false --iptables-masquerade-bit=14
--iptables-min-sync-period=1s --iptables-sync-period=30s --ipvs-exclude-cidrs=192.0.2.0/24 --ipvs-min-sync-period=1s
--ipvs-scheduler=rr --ipvs-strict-arp --ipvs-sync-period=30s --ipvs-tcp-timeout=1m --ipvs-tcpfin-timeout=1m
--ipvs-udp-timeout=1m --kube-api-burst=10 --kube-api-content-type=application/json --kube-api-qps=5 --kubeconfig=/x
--log-flush-frequency=5s --log-json-info-buffer-size=0 --log-json-split-stream --log-text-info-buffer-size=0
--log-text-split-stream --logging-format=json --masquerade-all
--master=https://127.0.0.1:6443 --metrics-bind-address=127.0.0.1 --metrics-port=10249 --nodeport-addresses=primary
--oom-score-adj=-999 --pod-bridge-interface=cni0 --pod-interface-name-prefix=veth --profiling --proxy-mode=nftables
--show-hidden-metrics-for-version=1.36 -v=2 --vmodule=x=1`)

// withoutEffect are those that Verdict accepts and names in a warning.
var withoutEffect = strings.Fields(`config-sync-period iptables-masquerade-bit
iptables-sync-period ipvs-sync-period kube-api-content-type log-flush-frequency log-json-info-buffer-size
log-json-split-stream log-text-info-buffer-size log-text-split-stream show-hidden-metrics-for-version vmodule`)

func TestFlagsOfKubeProxyAreAccepted(t *testing.T) {
	for _, f := range flagsOfKubeProxy(t) {
		given := func(arg string) bool {
			return strings.HasPrefix(arg+"=", "--"+f.name+"=") || strings.HasPrefix(arg, "-"+f.name+"=")
		}
		other := []string{"config", "write-config-to", "init-only", "help", "version"} // they end the process, or read a file
		if !slices.ContainsFunc(upstreamFlags, given) && !slices.Contains(other, f.name) {
			t.Errorf("--%s is not tried", f.name)
		}
	}
	exit, _, stderr := inNamespace(t, append([]string{"run"}, upstreamFlags...)...)
	if exit != 0 {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	for _, flag := range withoutEffect {
		if n := strings.Count(stderr, `"flag":"--`+flag+`",`); n != 1 {
			t.Errorf("--%s caused %d warnings, want 1:\n%s", flag, n, stderr)
		}
	}
	if n := strings.Count(stderr, `"level":"WARN"`); n != len(withoutEffect)+1 || strings.Count(stderr, `"gate":"A",`) != 1 {
		t.Errorf("%d warnings, want %d and one about the feature gate A:\n%s", n, len(withoutEffect), stderr)
	}
}

// TestVersionCommands: both ways of asking give the same answer.
// TestFlagsOfTheDaemon: commands that ask for the flags of the daemon accept all of them.
func TestFlagsOfTheDaemon(t *testing.T) {
	for _, cmd := range []*cobra.Command{newDiff(), newRender(), newValidate(), newCheck()} {
		newRun().Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil && f.Name != "cleanup" && f.Name != "init-only" { // with these, run is no daemon
				t.Errorf("%s rejects --%s", cmd.Name(), f.Name)
			}
		})
	}
}

func TestVersionCommands(t *testing.T) {
	_, command, _ := inNamespace(t, "version")
	_, flag, _ := inNamespace(t, "--version")
	if command != flag || !regexp.MustCompile(`^verdict v0\.0\.0-test \(revision \S+, go1\.\S+\)\n$`).MatchString(command) {
		t.Errorf("version prints %q, --version prints %q", command, flag)
	}
}
