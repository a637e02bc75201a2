package kubeproxyconfig

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write README.md")

const readme = `# The configuration file of kube-proxy, field by field

What Verdict makes of each field of KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1, kube-proxy 1.37). A field with
a flag has the meaning of that flag. A field that counts in some modes only is named in the log if it is set in another
mode. ` + "`go test ./cmd/verdict/kubeproxyconfig -update`" + ` writes this file.

| field | flag | counts in mode | without effect, because |
|---|---|---|---|
`

// TestReadme compares README.md with the table in the code.
func TestReadme(t *testing.T) {
	var b strings.Builder
	b.WriteString(readme)
	for _, f := range Fields() {
		name := ""
		if f.Flag != "" {
			name = "`--" + f.Flag + "`"
			if len(f.Flag) == 1 {
				name = "`-" + f.Flag + "`"
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Path, name, strings.Join(f.Modes, ", "), f.Why)
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("README.md")
	if err != nil || string(text) != b.String() {
		t.Errorf("README.md differs from the table (%v); run this test with -update", err)
	}
}
