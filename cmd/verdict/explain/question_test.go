package explain

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// TestArguments: a mistake in the arguments gets an error that says what was meant.
func TestArguments(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"10.0.0.1", "want SOURCE and DESTINATION:PORT, got 1 argument"},
		{"10.0.0.1 10.96.0.1", `destination "10.96.0.1" has no port; write ADDRESS:PORT`},
		{"10.0.0.1 [fd00::1]", `destination "[fd00::1]" has no port`},
		{"10.0.0.1 10.96.0.1:80/http", `the protocol "http" must be tcp, udp or sctp`},
		{"10.0.0.1 default/web", "looks like a Service; write --service default/web --from SOURCE"},
		{"10.0.0.1 web:http", `destination "web:http" must be ADDRESS:PORT`},
		{"10.0.0.1 10.96.0.1:0", `destination "10.96.0.1:0" has no port`},
		{"--service default/web", "--service needs --from SOURCE"},
		{"--service web --from node", `--service "web" must be NAMESPACE/NAME`},
		{"--trace=1h 10.0.0.1 10.96.0.1:80", "--trace must be above 0 and at most 10m0s"},
		{"--trace --packets=0 10.0.0.1 10.96.0.1:80", "--packets at least 1"},
	} {
		cmd := New()
		cmd.SetFlagErrorFunc(flags.WrongValue)
		cmd.SetArgs(strings.Fields(tt.args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		if _, wrong := err.(flags.UsageError); !wrong || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") { //nolint:errorlint // New returns it as it is
			t.Errorf("explain %s: %v; want one line of wrong usage with %q", tt.args, err, tt.want)
		}
	}
}

// TestManyFrontends: of a Service with many frontends, the first ones of the source's family are explained.
func TestManyFrontends(t *testing.T) {
	var wanted []question
	for _, dst := range []string{"10.96.0.1", "fd00:96::1"} {
		for port := range uint16(20) {
			wanted = append(wanted, question{dst: netip.AddrPortFrom(netip.MustParseAddr(dst), 1+port), protocol: 6})
		}
	}
	for source, want := range map[string]int{"10.0.0.7": 4, "fd00::7": 4} {
		out, left, err := (&options{}).withSource(t.Context(), nil, wanted, source)
		if err != nil || len(out) != maxFrontends || left != want || out[0].src.String() != source {
			t.Errorf("from %s: %d questions, %d left, %v", source, len(out), left, err)
		}
	}
}

// TestReadme: the example in the documents is what the test of the situations prints.
func TestReadme(t *testing.T) {
	a, err := txtar.ParseFile("testdata/some-not-ready.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for line := range strings.Lines(string(a.Files[len(a.Files)-1].Data)) {
		want.WriteString("    " + line)
	}
	for _, document := range []string{"../README.md", "../../../README.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want.String()) {
			t.Errorf("%s does not have this run:\n%s", document, want.String())
		}
	}
}
