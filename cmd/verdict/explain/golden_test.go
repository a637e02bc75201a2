//go:build !nokernel

package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/runner"
	"github.com/verdict-proxy/verdict/e2e/scenario"
	"github.com/verdict-proxy/verdict/nft/program"
)

var update = flag.Bool("update", false, "write what the command prints into the files of testdata")

// situation is a file of testdata: objects, rules of others, a connection, and what the command says about it.
type situation struct {
	*testing.T
	path         string
	archive      *txtar.Archive
	flags        []string
	from, to     string
	protocol     lab.Protocol
	flow         string // "": none; "before": it exists before the explanation; "stale": and is not translated
	steps, rules string
	undo         string // of rules that change tables of Verdict
	// answersStopped: the rules stop the answers of their own reject, so the client gets none.
	answersStopped bool
	bed            *runner.Bed
	family         lab.Family
}

func loadSituation(t *testing.T, path string, bed *runner.Bed, f lab.Family) *situation {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &situation{T: t, path: path, archive: a, bed: bed, family: f}
	for line := range strings.Lines(string(a.Comment)) {
		switch name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); name {
		case "flags":
			s.flags = strings.Fields(rest)
		case "from":
			s.from = rest
		case "to":
			protocol, to, _ := strings.Cut(rest, " ")
			s.to = s.expand(to)
			if s.protocol, err = lab.ParseProtocol(protocol); err != nil {
				t.Fatal(err)
			}
		case "answers":
			s.answersStopped = true
		case "flow":
			s.flow = rest
		}
	}
	for _, f := range a.Files {
		switch f.Name {
		case "steps":
			s.steps = string(f.Data)
		case "nft":
			s.rules = s.inFamily(s.expand(string(f.Data)))
		case "undo":
			s.undo = s.inFamily(string(f.Data))
		}
	}
	return s
}

func (s *situation) expand(text string) string {
	s.Helper()
	out, err := scenario.Expand(s.family, text)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// inFamily turns rules for IPv4 into rules for IPv6.
func (s *situation) inFamily(rules string) string {
	if s.family == lab.IPv6 {
		return strings.NewReplacer("table ip ", "table ip6 ", "ip verdict", "ip6 verdict", "ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr").Replace(rules)
	}
	return rules
}

func (s *situation) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v\n%s", err, s.bed.Process().Log(4))
	}
}

// How long a client waits for an answer that is to come, for one that may come, and for one that is not to come.
const (
	patience = 30 * time.Second
	doubt    = 3 * time.Second
	silence  = 300 * time.Millisecond
)

// patienceFor is how long a client waits with this verdict.
func patienceFor(v *Verdict) time.Duration {
	switch {
	case v.Outcome == Dropped:
		return silence
	case len(v.Unless) > 0:
		return doubt
	}
	return patience
}

// question is the connection as real clients make it.
func (s *situation) question() lab.Question {
	s.Helper()
	at := s.to
	if s.family == lab.IPv6 { // $NAME:PORT without brackets
		i := strings.LastIndex(at, ":")
		at = "[" + at[:i] + "]" + at[i:]
	}
	to, err := netip.ParseAddrPort(at)
	s.must(err)
	return lab.Question{Protocol: s.protocol, To: to}
}

// source is the argument that names the client.
func (s *situation) source() string {
	switch s.from {
	case lab.Node:
		return "node"
	case lab.Outside, "y":
		return s.expand("$" + strings.ToUpper(s.from))
	}
	return lab.PodAddress(s.family, s.from).String()
}

// TestSituations explains connections and then makes them. What the command says must be what happens.
func TestSituations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files of situations, %v; want at least 30", len(files), err)
	}
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			bed := newBed(t, f)
			for _, path := range files {
				t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
					loadSituation(t, path, bed, f).run()
				})
			}
		})
	}
}

func newBed(t *testing.T, f lab.Family) *runner.Bed {
	t.Helper()
	bed, err := runner.NewBed(runner.Options{
		Family: f, Source: runner.FromManifests, Proxy: runner.Proxy{Kind: runner.Verdict, Binary: binary}, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	// By default the kernel forgets closed connections after ten seconds, and UDP flows after thirty. On a slow machine,
	// that may be before the command has listed them.
	node := bed.World().Node
	node.MustDo(t, func() error {
		return node.Sysctl("net.netfilter.nf_conntrack_tcp_timeout_close=600", "net.netfilter.nf_conntrack_udp_timeout=600")
	})
	return bed
}

func (s *situation) run() {
	s.must(s.bed.Begin(s.flags...))
	defer func() { s.must(s.bed.End(s.Failed())) }()
	source, q := s.source(), s.question()
	var flow *lab.Flow
	s.must(s.bed.Steps(s.steps))
	s.must(s.bed.Settle())
	if s.flow != "" {
		flow = s.open(&q)
		defer flow.Close()
		source = s.flowSource(q)
	}
	if s.flow == "stale" {
		s.untranslate(netip.MustParseAddrPort(source), q.To)
	}
	if s.rules != "" {
		s.must(s.bed.World().Node.Load(s.rules))
		defer s.removeRules()
	}
	to := fmt.Sprintf("%s/%s", q.To, s.protocol)
	text := s.command(source, to)
	var e Explanation
	s.must(json.Unmarshal([]byte(s.command("--json", source, to)), &e))
	if s.family == lab.IPv4 {
		s.compareGolden(text)
	}
	s.compareRoute(&e)
	if flow != nil {
		s.checkFlow(&e, flow)
		if e.Verdict.Outcome == Served {
			s.checkTrace(q, &e, func() lab.Result { return flow.Send(patience) })
		}
		return
	}
	s.checkPackets(&e, q)
	q.Patience = patienceFor(&e.Verdict)
	s.checkTrace(q, &e, func() lab.Result { return s.bed.World().At(s, s.from).Ask(q) })
}

// compareRoute: the last line of the text is the verdict, and each step has words.
func (s *situation) compareRoute(e *Explanation) {
	s.Helper()
	for _, step := range e.Steps {
		if step.Topic == "" || !strings.HasSuffix(strings.Fields(step.Text)[len(strings.Fields(step.Text))-1], ".") && !strings.Contains(step.Text, "nft delete") {
			s.Errorf("step %+v is not a sentence", step)
		}
	}
	if e.Verdict.Text == "" {
		s.Error("no verdict")
	}
}

// open makes a UDP flow whose client port stays.
func (s *situation) open(q *lab.Question) *lab.Flow {
	s.Helper()
	var f *lab.Flow
	s.must(s.bed.World().At(s, s.from).Do(func() (err error) {
		f, err = lab.Open(*q)
		return err
	}))
	f.Send(silence) // some situations leave it without an answer
	return f
}

// flowSource finds the client's port in connection tracking.
func (s *situation) flowSource(q lab.Question) string {
	s.Helper()
	flows, err := s.bed.World().Node.Flows(s.family)
	s.must(err)
	for _, f := range flows {
		if f.To == q.To && f.Protocol == q.Protocol {
			return f.From.String()
		}
	}
	s.Fatalf("connection tracking has no flow to %s: %v", q.To, flows)
	return ""
}

// untranslate replaces a flow by one that is not translated, as a flow is that began before its Service existed.
func (s *situation) untranslate(from, to netip.AddrPort) {
	s.Helper()
	node := s.bed.World().Node
	s.must(node.ForgetFlows())
	_, err := node.Command("conntrack", "-I", "-p", "udp", "-t", "120", "-s", from.Addr().String(), "-d", to.Addr().String(),
		"--sport", fmt.Sprint(from.Port()), "--dport", fmt.Sprint(to.Port()))
	s.must(err)
}

// removeRules deletes the tables of others, and undoes their changes of the tables of Verdict.
func (s *situation) removeRules() {
	if s.undo != "" {
		s.must(s.bed.World().Node.Load(s.undo))
	}
	for _, m := range regexp.MustCompile(`(?m)^table (\S+ \S+) \{`).FindAllStringSubmatch(s.rules, -1) {
		s.must(s.bed.World().Node.Load("delete table " + m[1] + "\n"))
	}
}

// command runs the command on the node.
func (s *situation) command(args ...string) string {
	s.Helper()
	var out bytes.Buffer
	err := s.bed.World().Node.Do(func() error {
		cmd := New()
		cmd.SetFlagErrorFunc(flags.WrongValue)
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return cmd.Execute()
	})
	s.must(err)
	return out.String()
}

// Numbers that differ from run to run: those of pools, slots, handles, timeouts and ports of clients. An endpoint's slot
// depends on the order in which the proxy saw the endpoints.
var changing = []struct {
	pattern *regexp.Regexp
	becomes string
}{
	{regexp.MustCompile(`(^|[ ({])[0-9a-f]{1,4}:[0-9a-f]{1,4}($|[ .,)}])`), "${1}N:N$2"},
	{regexp.MustCompile(`N:N \. \d+ : `), "N:N . N : "},
	{regexp.MustCompile(`with handle \d+`), "with handle N"},
	{regexp.MustCompile(`\(\S+ left\)`), "(T left)"},
	{regexp.MustCompile(`ends in \S+`), "ends in T"},
	{regexp.MustCompile(`\. \d+ : N:N`), ". N : N:N"},
	{regexp.MustCompile(`(to 10\.0\.1\.254|to 192\.168\.8\.1):\d+`), "$1:PORT"},
	{regexp.MustCompile(`(192\.168\.7\.1[12]):[1-9]\d{4}`), "$1:PORT"},
}

func normal(text string) string {
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.becomes)
	}
	return text
}

func (s *situation) compareGolden(text string) {
	s.Helper()
	text = normal(text)
	last := &s.archive.Files[len(s.archive.Files)-1]
	if *update {
		last.Data = []byte(text)
		s.must(os.WriteFile(s.path, txtar.Format(s.archive), 0o644))
		return
	}
	if string(last.Data) != text {
		s.Errorf("%s wants\n%s\ngot\n%s", s.path, last.Data, text)
	}
}

// checkPackets makes connections and compares them with the verdict.
func (s *situation) checkPackets(e *Explanation, q lab.Question) {
	s.Helper()
	place := s.bed.World().At(s, s.from)
	q.Patience = patienceFor(&e.Verdict)
	seen, all := map[netip.AddrPort]bool{}, s.mustSeeAll(e)
	for i := 0; i < 20 || i < 200 && all && len(seen) < len(e.Verdict.Endpoints); i++ {
		r := place.Ask(q)
		if !s.agrees(&e.Verdict, r) {
			s.Fatalf("the verdict is %q, but connection %d was %s", e.Verdict.Text, i+1, r)
		}
		if r.Outcome == lab.Answered {
			seen[answerer(s.family, r)] = true
		}
		if r.Outcome != lab.Answered && i > 1 {
			break
		}
	}
	if all && len(seen) < len(e.Verdict.Endpoints) {
		s.Errorf("of %v only %v answered", e.Verdict.Endpoints, seen)
	}
}

// mustSeeAll reports whether each endpoint of the verdict must answer at least once in 200 connections.
func (s *situation) mustSeeAll(e *Explanation) bool {
	sticky := slices.ContainsFunc(e.Steps, func(step Step) bool { return step.Topic == "affinity" })
	return e.Verdict.Outcome == Served && !sticky && len(e.Verdict.Endpoints) < 5 && len(e.Verdict.Unless) == 0
}

// answerer is the endpoint that answered.
func answerer(f lab.Family, r lab.Result) netip.AddrPort {
	a := r.Answer.Local
	if !a.IsValid() {
		a = lab.PodAddress(f, r.Answer.Pod)
	}
	return netip.AddrPortFrom(a, r.Answer.Port)
}

// agrees reports whether what happened is what the verdict says.
func (s *situation) agrees(v *Verdict, r lab.Result) bool {
	s.Helper()
	if len(v.Unless) > 0 && (r.Outcome == lab.Dropped || r.Outcome == lab.Refused) {
		return true // a chain that the verdict names
	}
	switch v.Outcome {
	case Refused:
		return r.Outcome == lab.Refused
	case Dropped:
		return r.Outcome == lab.Dropped
	case Passed: // the gateway, or the node itself, has no such service
		return r.Outcome == lab.Unreachable || r.Outcome == lab.Refused
	}
	if r.Outcome != lab.Answered || !slices.Contains(v.Endpoints, answerer(s.family, r)) {
		return false
	}
	own := r.Answer.Source == r.Client
	switch v.SourceSeen {
	case "client":
		return own
	case "node":
		return !own || s.from == lab.Node
	}
	return true
}

// checkFlow sends over the flow and compares the answer with the verdict.
func (s *situation) checkFlow(e *Explanation, flow *lab.Flow) {
	s.Helper()
	answered, wait := e.Verdict.Outcome == Served, silence
	if answered {
		wait = patience
	}
	r := flow.Send(wait)
	if !e.Verdict.Existing || answered != (r.Outcome == lab.Answered) || answered && !slices.Contains(e.Verdict.Endpoints, answerer(s.family, r)) {
		s.Errorf("the verdict is %q (%+v), but the flow was %s", e.Verdict.Text, e.Verdict, r)
	}
}

// checkTrace makes one connection, or sends one packet of a flow, while the kernel traces it. The trace must end like that.
func (s *situation) checkTrace(q lab.Question, e *Explanation, send func() lab.Result) {
	s.Helper()
	at := question{dst: q.To, protocol: uint8(q.Protocol), src: e.Source, srcPort: e.SourcePort}
	started, packets, failed := make(chan struct{}), make(chan *TracedPacket, 1), make(chan error, 1)
	node := s.bed.World().Node
	go func() {
		failed <- node.Do(func() error {
			t := tracing{time: patience, packets: 1, started: func() { close(started) }}
			return t.run(context.Background(), at, func(p *TracedPacket) error {
				packets <- p
				return nil
			})
		})
	}()
	select {
	case <-started:
	case err := <-failed:
		s.Fatal(err)
	}
	r := send()
	s.must(<-failed)
	if len(packets) != 1 {
		s.Fatalf("no packet was traced; the connection was %s", r)
	}
	p := <-packets
	if s.answersStopped && p.Verdict.Outcome == Refused {
		p.Verdict.Outcome = Dropped
	}
	if !s.agrees(&p.Verdict, r) {
		s.Errorf("the trace says %q, but the connection was %s\n%s", p.Verdict.Text, r, strings.Join(p.Lines, "\n"))
	}
	if out, err := node.Command("nft", "list", "tables"); err != nil || strings.Contains(out, program.TraceTableName) {
		s.Errorf("the table of the trace is left, or cannot be listed: %v\n%s", err, out)
	}
}
