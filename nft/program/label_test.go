package program

import (
	"strings"
	"testing"
)

func TestLabel(t *testing.T) {
	n, s, p := strings.Repeat("n", 63), strings.Repeat("s", 63), strings.Repeat("p", 63)
	seen := map[string]string{}
	for _, name := range []string{
		"shop/web:http", "shop/web:", n + "/web:http", "shop/" + s + ":" + p[:20], n + "/" + s + ":http", n + "/" + s + ":https", n + "/" + s[:62] + "t:http",
		n + "/" + s + ":" + p, n + "/" + s + ":" + p[:62] + "q", "shop/web:" + strings.Repeat("p", 200), strings.Repeat("x", 300), strings.Repeat("x", 301),
	} {
		label := Label(name)
		if seen[label] != "" {
			t.Errorf("%s and %s have the label %s", name, seen[label], label)
		}
		seen[label] = name
		if len(label)+len(LocalSuffix) > MaxComment {
			t.Errorf("%s: its label %s is too long", name, label)
		}
		if len(name) <= maxLabel && label != name {
			t.Errorf("%s is shortened to %s", name, label)
		}
		if Label(label) != label {
			t.Errorf("the label of %s is %s", label, Label(label))
		}
	}
	if got := Label(n + "/" + s + ":http"); !strings.HasPrefix(got, n+"/sss") || !strings.HasSuffix(got, ":http") || strings.Count(got, ":") > 1 {
		t.Errorf("%s does not begin with the namespace and end with the port", got)
	}
}
