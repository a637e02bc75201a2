package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/source/shortform"
)

const examples = "../../config/deploy/examples"

// inProcess runs a command.
func inProcess(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = execute(context.Background(), cmd)
	return code, out.String(), errs.String()
}

// TestExamples: each example names its schema, is valid, and sends connections to all its endpoints.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	if code, stdout, stderr := inProcess("validate", examples); code != 0 {
		t.Errorf("all together: exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			expectSchema(t, file, string(text))
			code, stdout, stderr := inProcess("validate", file)
			if code != 0 || stdout+stderr != "" {
				t.Errorf("validate: exit code %d\n%s%s", code, stdout, stderr)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.yaml"), text, 0o644); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr = inProcess("render", "--manifests", dir, "--elements", "--assume-addresses=203.0.113.1")
			if code != 0 || stderr != "" {
				t.Errorf("render: exit code %d\n%s", code, stderr)
			}
			expectServed(t, text, stdout)
		})
	}
}

// expectSchema checks the first line, which editors read.
func expectSchema(t *testing.T, file, text string) {
	t.Helper()
	first, _, _ := strings.Cut(text, "\n")
	schema, ok := strings.CutPrefix(first, "# yaml-language-server: $schema=")
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), schema)); !ok || err != nil {
		t.Errorf("the first line %q names no schema: %v", first, err)
	}
}

// expectServed: there is a frontend at each address, and a slot for each endpoint that is no backup.
func expectServed(t *testing.T, text []byte, rendered string) {
	t.Helper()
	lb, faults := shortform.Decode(text)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, a := range lb.Spec.Addresses {
		if !strings.Contains(rendered, " verdict services { "+a.String()+" . ") {
			t.Errorf("%s has no frontend in\n%s", a, rendered)
		}
	}
	for _, e := range lb.Spec.Endpoints {
		slot := regexp.MustCompile(` : ` + regexp.QuoteMeta(e.Address.String()) + `( \. \d+)? }`) // a hash table and a range have no port
		if slot.MatchString(rendered) == e.Backup {
			t.Errorf("%s, a backup: %t, has a slot: %t\n%s", e.Address, e.Backup, !e.Backup, rendered)
		}
	}
}

// TestSchedulersOfShortForm: the short form has all schedulers, and no others.
func TestSchedulersOfShortForm(t *testing.T) {
	for _, name := range append(ipvsctl.Schedulers(), "random", "nonsense") {
		text := "apiVersion: " + shortform.APIVersion + "\nkind: LoadBalancer\nmetadata: {name: a}\n" +
			"spec: {addresses: [192.0.2.1], ports: [{port: 80}], scheduler: " + name + "}\n"
		if _, faults := shortform.Decode([]byte(text)); (len(faults) > 0) != (name == "nonsense") {
			t.Errorf("scheduler %s: %v", name, faults)
		}
	}
}
