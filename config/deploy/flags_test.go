package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// flags returns the flags that the help of a command lists. That excludes flags of kube-proxy without effect.
func flags(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.Command(binary, command, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[\w-]+)`).FindAllStringSubmatch(string(out), -1)
	var names []string
	for _, f := range found {
		names = append(names, f[1])
	}
	if !slices.Contains(names, "--help") {
		t.Fatalf("cannot parse the help: %v\n%s", names, out)
	}
	return names
}

func TestFlagsExist(t *testing.T) {
	known, leaves := flags(t, "run"), flags(t, "leave")
	service, err := os.ReadFile("verdict.service")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string][]string{
		"the DaemonSet's arguments": load(t).container().Args[1:],
		"the init container's":      load(t).daemons.Spec.Template.Spec.InitContainers[0].Args[1:],
		"ExecStart":                 command(unit(t))[2:],
		"ExecStartPre":              regexp.MustCompile(`--[a-z][\w-]+`).FindAllString(unit(t)["Service"]["ExecStartPre"], -1),
		"comments in the unit":      regexp.MustCompile(`--[a-z][\w-]+`).FindAllString(string(service), -1),
		"comments in the manifest":  regexp.MustCompile(`--[a-z][\w-]+`).FindAllString(string(manifest), -1),
	} {
		if len(words) == 0 {
			t.Errorf("%s: there are no flags", name)
		}
		for _, word := range words {
			// Comments also name what the end of the process runs.
			flag, _, _ := strings.Cut(word, "=")
			if !slices.Contains(known, flag) && (!strings.HasPrefix(name, "comments") || !slices.Contains(leaves, flag)) {
				t.Errorf("%s: verdict run has no flag %s", name, flag)
			}
		}
	}
	for name, words := range map[string][]string{"the DaemonSet": load(t).container().Args, "ExecStart": command(unit(t))[1:]} {
		if words[0] != "run" {
			t.Errorf("%s runs %v", name, words)
		}
	}
}
