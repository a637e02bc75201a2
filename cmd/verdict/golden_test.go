package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what the commands print into the files of testdata/render")

// goldens is the folder of scripts that show what objects become. It has a folder for each topic. README.md there explains
// the scripts.
const goldens = "testdata/render"

// scriptCommand is a command of scripts. When neg is set, the script expects it to fail.
type scriptCommand = func(ts *testscript.TestScript, neg bool, args []string)

// TestGolden runs the scripts. They need neither root nor a kernel.
func TestGolden(t *testing.T) {
	for _, topic := range topics(t) {
		t.Run(topic, func(t *testing.T) {
			testscript.RunT(scriptTest{t}, testscript.Params{
				Dir:                filepath.Join(goldens, topic),
				Cmds:               map[string]scriptCommand{"verdict": runVerdict, "slice": writeSlice},
				UpdateScripts:      *update,
				RequireUniqueNames: true,
			})
		})
	}
}

// topics lists the folders of goldens.
func topics(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(goldens)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// runVerdict is the command verdict, without a process for it.
func runVerdict(ts *testscript.TestScript, neg bool, args []string) {
	var stdout, stderr bytes.Buffer
	cmd := newRoot()
	cmd.SetArgs(goldenArgs(args, ts.MkAbs))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	code := execute(context.Background(), cmd)
	folder := ts.MkAbs(".") + "/"
	fmt.Fprint(ts.Stdout(), strings.ReplaceAll(stdout.String(), folder, ""))
	fmt.Fprint(ts.Stderr(), strings.ReplaceAll(stderr.String(), folder, ""))
	if failed := code != 0; failed != neg {
		ts.Fatalf("exit code %d of verdict %s\n%s", code, strings.Join(args, " "), stderr.String())
	}
}

// goldenArgs completes the arguments of a command. Unless the script says otherwise, render is for the node n1 with the
// address 192.0.2.1. Folders are those of the script.
func goldenArgs(args []string, inScript func(string) string) []string {
	out := slices.Clone(args)
	for i := 1; i < len(out); i++ {
		if out[i-1] == "--manifests" || out[i-1] == "--then" {
			out[i] = inScript(out[i])
		}
		if !strings.HasPrefix(out[i], "-") && (out[0] == "validate" || out[0] == "convert") {
			out[i] = inScript(out[i])
		}
	}
	if out[0] != "render" {
		return out
	}
	for _, assumed := range []string{"--hostname-override=n1", "--assume-addresses=192.0.2.1"} {
		flag, _, _ := strings.Cut(assumed, "=")
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, flag) }) {
			out = append(out, assumed)
		}
	}
	return out
}

// writeSlice is the command "slice FILE SERVICE NUMBER", which writes a slice with that many endpoints.
func writeSlice(ts *testscript.TestScript, _ bool, args []string) {
	var number int
	if len(args) != 3 {
		ts.Fatalf("usage: slice FILE SERVICE NUMBER")
	}
	if _, err := fmt.Sscan(args[2], &number); err != nil {
		ts.Fatalf("slice: NUMBER: %v", err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(manySlice(args[1], number)), 0o644))
}

func manySlice(service string, number int) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-many, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
`, service, service)
	for i := range number {
		fmt.Fprintf(&text, "- addresses: [10.244.%d.%d]\n", i/250, i%250+1)
	}
	return text.String()
}
