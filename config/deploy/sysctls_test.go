//go:build !nokernel

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const refusedSetting = "cannot change a kernel setting"

// TestChangesThatNeedSysctls changes the ConfigMap while the proxy of the DaemonSet runs. KUBE-PROXY.md says what becomes of
// a change that needs a sysctl: the log names the sysctl, and what helps.
func TestChangesThatNeedSysctls(t *testing.T) {
	s, dir := load(t), t.TempDir()
	args := s.arguments(t)
	var config string
	for _, a := range args {
		if file, is := strings.CutPrefix(a, "--config="); is {
			config = file
		}
	}
	logFile, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	cmd := inSandbox("", []string{"NET_ADMIN"}, append([]string{binary}, append(args, "--manifests="+dir)...))
	cmd.Stderr = logFile
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, logFile.Name(), `"tables written"`)
	t.Cleanup(func() { _ = cmd.Wait() }) // the sandbox ends by itself
	before := s.config.Data["config.conf"] + "\n"
	write := func(file, content string) {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(config, before+"conntrack: {tcpEstablishedTimeout: 3h, udpTimeout: 17s, tcpBeLiberal: true}\n")
	for _, name := range []string{"tcp_timeout_established", "udp_timeout", "tcp_be_liberal"} {
		awaitLine(t, logFile.Name(), refusedSetting+`.*"net\.netfilter\.nf_conntrack_`+name+`".*kubectl rollout restart`)
	}
	write(config, before+"nodePortAddresses: [primary, localhost]\n")
	awaitLine(t, logFile.Name(), `the previous configuration stays in force.*route_localnet=1.*kubectl rollout restart`)
	write(filepath.Join(dir, "web.yaml"), manifests) // the sandbox waits for its frontend
	if err := cmd.Wait(); err != nil {
		t.Errorf("the proxy does not serve: %v", err)
	}
}

// awaitLine waits for a line in a log.
func awaitLine(t *testing.T, file, pattern string) {
	t.Helper()
	for late := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(pattern).Match(text) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("the log has no line %s:\n%s", pattern, text)
		}
	}
}

// TestSysctlsByHand: with the sysctls that README.md sets by hand, the proxy finds each that it looks for, without the init
// container. The size of the table is that of the host, and not of a network namespace.
func TestSysctlsByHand(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	byHand := regexp.MustCompile(`(?m)^    (net\.[\w.]+) = (\d+)$`).FindAllStringSubmatch(string(text), -1)
	before, ofTable := "set -e\nmount -o remount,rw /proc/sys 2>/dev/null || true\n", false
	for _, m := range byHand {
		if m[1] == "net.netfilter.nf_conntrack_max" {
			ofTable = true
			continue
		}
		before += "sysctl -qw " + m[1] + "=" + m[2] + "\n"
	}
	if !ofTable || len(byHand) < 4 {
		t.Fatalf("README.md sets %v by hand", byHand)
	}
	args := []string{binary, "run", "--backend=nft", "--conntrack-max-per-core=0", folder(t)}
	for name, script := range map[string]string{"by hand": before, "not set": ""} {
		stdout, stderr, err := sandboxed(t, script, []string{"NET_ADMIN"}, args)
		if err != nil || !strings.Contains(stdout, frontend) {
			t.Errorf("%s: %v\n%s%s", name, err, stdout, stderr)
		}
		lines := regexp.MustCompile(refusedSetting+".*net\\.").FindAllString(stderr, -1)
		if (len(lines) == 0) != (name == "by hand") {
			t.Errorf("%s: the proxy wants to change\n%s", name, strings.Join(lines, "\n"))
		}
	}
}
