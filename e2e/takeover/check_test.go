//go:build e2e

package takeover

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// finding is a row of "verdict check -o json".
type finding struct{ Check, Status, Detail string }

// check runs "verdict check" on the node. Its exit status is that of the errors.
func (b *bed) check(t *testing.T, args ...string) map[string]finding {
	t.Helper()
	command := append([]string{"-c", `"$0" "$@" || test $? = 1`, programs.verdict, "check", "-o", "json"}, args...)
	var list []finding
	lab.Must(t, json.Unmarshal([]byte(b.Node.Must(t, "", "bash", command...)), &list))
	found := map[string]finding{}
	for _, f := range list {
		found[f.Check] = f
	}
	return found
}

func expectStatus(t *testing.T, when string, found map[string]finding, want map[string]string) {
	t.Helper()
	for name, status := range want {
		if found[name].Status != status {
			t.Errorf("%s: %s is %+v, want %s", when, name, found[name], status)
		}
	}
}

// TestCheck: the preflight sees kube-proxy, an API server behind its own cluster IP, and one that cannot be reached.
func TestCheck(t *testing.T) {
	b := newBed(t)
	const server, way, listener = "API server", "way to the API server", "--healthz-bind-address"
	direct := []string{"--kubeconfig=" + b.kubeconfig, "--healthz-bind-address=127.0.0.1:10256"}
	expectStatus(t, "before", b.check(t, direct...), map[string]string{
		"kernel": "ok", "nf_tables": "ok", "kube-proxy": "ok", server: "ok", way: "ok", listener: "ok",
	})
	b.kubeProxy(t, &modes[0])
	expectStatus(t, "with kube-proxy", b.check(t, direct...), map[string]string{"kube-proxy": "warning", listener: "warning", way: "ok"})

	text, err := os.ReadFile(b.kubeconfig)
	lab.Must(t, err)
	for address, want := range map[string]map[string]string{
		"https://10.96.0.1":                   {server: "ok", way: "error"},
		"https://" + b.server.String() + ":1": {server: "error"},
	} {
		changed := strings.ReplaceAll(string(text), "https://"+b.server.String()+":6443", address)
		changed = skipVerification(changed)
		file := filepath.Join(b.dir, "changed.kubeconfig")
		lab.Must(t, os.WriteFile(file, []byte(changed), 0o600))
		expectStatus(t, address, b.check(t, "--kubeconfig="+file), want)
	}
}

// skipVerification makes a client accept the certificate of the API server at another address.
func skipVerification(kubeconfig string) string {
	var out strings.Builder
	for line := range strings.Lines(kubeconfig) {
		if indent, _, found := strings.Cut(line, "certificate-authority"); found {
			line = indent + "insecure-skip-tls-verify: true\n"
		}
		out.WriteString(line)
	}
	return out.String()
}
