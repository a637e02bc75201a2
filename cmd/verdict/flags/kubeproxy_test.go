package flags

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
)

var update = flag.Bool("update", false, "write the table of fields anew")

const besideKubeProxy = "../../../config/deploy/KUBE-PROXY.md"

// TestFieldsOfKubeProxy compares the table of fields with the program. TestEveryFieldIsInTheTable of package
// kubeproxyconfig compares the program with the type of kube-proxy.
func TestFieldsOfKubeProxy(t *testing.T) {
	const head = "| field | flag | in mode | a change | without effect, because |\n|---|---|---|---|---|\n"
	var rows strings.Builder
	c := New(pflag.NewFlagSet("test", pflag.ContinueOnError))
	for _, f := range kubeproxyconfig.Fields() {
		name, change := "", ""
		if f.Flag != "" {
			name, change = "`--"+f.Flag+"`", "restart"
			if len(f.Flag) == 1 {
				name = "`-" + f.Flag + "`"
			}
		}
		if f.Flag != "" && isLive(c.flags.Lookup(f.Flag)) {
			change = "live"
		}
		if strings.HasPrefix(f.Flag, "conntrack-") || slices.Contains(byInitContainer, f.Flag) {
			change += ", rollout"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", f.Path, name, strings.ReplaceAll(f.Modes, " and ", ", "), change, f.Why)
	}
	text, err := os.ReadFile(besideKubeProxy)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), head)
	have, after, ends := strings.Cut(rest, "\n## ")
	if !found || !ends {
		t.Fatalf("%s has no table of fields", besideKubeProxy)
	}
	if *update {
		if err := os.WriteFile(besideKubeProxy, []byte(before+head+rows.String()+"\n## "+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if strings.TrimSpace(have) != strings.TrimSpace(rows.String()) {
		t.Error("the table of fields differs from the program; run this test with -update")
	}
}

// byInitContainer are the flags, besides those of connection tracking, of which the init container of the DaemonSet does a
// part. TestChangesThatNeedSysctls in config/deploy shows what becomes of a change.
var byInitContainer = []string{"proxy-mode", "nodeport-addresses", "iptables-localhost-nodeports", "ipvs-strict-arp"}
