package scenario

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// parseOne reads a scenario of one step.
func parseOne(t *testing.T, step string) Step {
	t.Helper()
	list, err := Parse("dir/one.txt", "== one\n"+step)
	lab.Must(t, err)
	if len(list) != 1 || len(list[0].Steps) != 1 || list[0].File != "one" || list[0].Name != "one" {
		t.Fatalf("got %+v", list)
	}
	return list[0].Steps[0]
}

func call(p lab.Protocol, from, to string, port uint16) Call {
	return Call{Protocol: p, From: from, To: Target{Name: to, Port: port}}
}

func answered(backends ...string) Expect { return Expect{Outcome: lab.Answered, Backends: backends} }

// TestChecks has one row for each form of a step that checks something.
func TestChecks(t *testing.T) {
	tcp := call(lab.TCP, "x", "VIP1", 80)
	for _, tt := range []struct {
		text string
		want any
	}{
		{"probe tcp from x to $VIP1:80 => a b", &Probe{Call: tcp, Expect: answered("a", "b")}},
		{"probe UDP to $LB1:53 from node => host:8081 source node", &Probe{
			Call:   call(lab.UDP, "node", "LB1", 53),
			Expect: Expect{Outcome: lab.Answered, Backends: []string{"host:8081"}, Source: "node"},
		}},
		{"probe tcp from x to $VIP1:80 => a source $NODE_INNER", &Probe{
			Call: tcp, Expect: Expect{Outcome: lab.Answered, Backends: []string{"a"}, Source: "$NODE_INNER"},
		}},
		{"probe tcp from x to $VIP1:80 => one of a b as first", &Probe{
			Call: tcp, Expect: Expect{Outcome: lab.Answered, Backends: []string{"a", "b"}, OneOf: true, As: "first"},
		}},
		{"probe tcp from x to $VIP1:80 => @first", &Probe{Call: tcp, Expect: Expect{Outcome: lab.Answered, Ref: "first"}}},
		{"probe tcp from x to $VIP1:80 within=1s => dropped", &Probe{
			Call: tcp, Expect: Expect{Outcome: lab.Dropped}, Within: time.Second,
		}},
		{"open f sctp from a to $VIP1:99 => unreachable", &Open{
			Flow: "f", Call: call(lab.SCTP, "a", "VIP1", 99), Expect: Expect{Outcome: lab.Unreachable},
		}},
		{"send f => broken", &Send{Flow: "f", Expect: Expect{Outcome: lab.Broken}}},
		{"burst n=20 within=50ms tcp from x to $VIP1:80 => refused", &Burst{
			Call: tcp, Expect: Expect{Outcome: lab.Refused}, N: 20, Within: 50 * time.Millisecond,
		}},
		{"burst n=20 within=50ms tcp from x to $VIP1:80 => late", &Burst{
			Call: tcp, Expect: Expect{Outcome: lab.Refused}, N: 20, Within: 50 * time.Millisecond, Late: true,
		}},
		{"spread n=2000 tcp from x to $VIP1:80 => a a:8081", &Spread{Call: tcp, N: 2000, Backends: []string{"a", "a:8081"}}},
		{"spread n=100 tcp from x to $VIP1:80 => at least 75", &Spread{Call: tcp, N: 100, AtLeast: 75}},
		{"crowd c n=60 tcp to $VIP1:80 => a b", &Crowd{Name: "c", Protocol: lab.TCP, To: tcp.To, N: 60, Backends: []string{"a", "b"}}},
		{"crowd c n=60 tcp to $VIP1:80 => same", &Crowd{Name: "c", Protocol: lab.TCP, To: tcp.To, N: 60, Same: true}},
		{"crowd c n=60 tcp to $VIP1:80 => same except b", &Crowd{Name: "c", Protocol: lab.TCP, To: tcp.To, N: 60, Same: true, Except: "b"}},
		{"crowd c n=60 tcp to $VIP1:80 => changed", &Crowd{Name: "c", Protocol: lab.TCP, To: tcp.To, N: 60, Changed: true}},
		{"end l => no failure", &EndLoop{Name: "l"}},
		{"end l => failures", &EndLoop{Name: "l", Failures: true}},
		{"tracked udp to $VIP1:80 => none", &Tracked{Protocol: lab.UDP, To: tcp.To}},
		{"tracked udp to $VIP1:80 => b c", &Tracked{Protocol: lab.UDP, To: tcp.To, Backends: []string{"b", "c"}}},
		{"event Service web Failed", &Event{Kind: "Service", Name: "web", Reason: "Failed"}},
		{"http from x to $NODE:32000/a/b => 503\n  header Content-Type: text/plain\n  body \"n\": 1", &HTTP{
			From: "x", To: Target{"NODE", 32000}, Path: "/a/b", Code: 503,
			Headers: map[string]string{"Content-Type": "text/plain"}, Body: []string{`"n": 1`},
		}},
		{"http from x to $NODE:32000/ => refused", &HTTP{From: "x", To: Target{"NODE", 32000}, Path: "/", Headers: map[string]string{}}},
	} {
		step := parseOne(t, tt.text)
		if diff := cmp.Diff(tt.want, step.Do); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tt.text, diff)
		}
		if !step.Expects() {
			t.Errorf("%s: checks nothing", tt.text)
		}
	}
}

// TestActions has one row for each form of a step that only does something.
func TestActions(t *testing.T) {
	for _, tt := range []struct {
		text string
		want any
	}{
		{"patch Service web {spec: {type: NodePort}}", &Patch{Kind: "Service", Name: "web", YAML: "{spec: {type: NodePort}}"}},
		{"delete Service web", &Delete{Kind: "Service", Name: "web"}},
		{"endpoints web", &Endpoints{Service: "web", Slice: "1"}},
		{"restart", &Restart{}},
		{"kill", &Restart{Kill: true}},
		{"stop", &Stop{}},
		{"start", &Start{}},
		{"address add $SPARE on outside", &Address{Name: "SPARE", Link: "outside"}},
		{"address remove $SPARE on outside", &Address{Name: "SPARE", Link: "outside", Remove: true}},
		{"sysctl net.ipv4.ip_forward=1", &Sysctl{Setting: "net.ipv4.ip_forward=1"}},
		{"pause 1500ms", &Pause{For: 1500 * time.Millisecond}},
		{"loop l tcp from x to $VIP1:80", &Loop{Name: "l", Call: call(lab.TCP, "x", "VIP1", 80)}},
		{"apply\n    kind: Service\n    metadata: {name: web}\n\n    spec:\n      a: b\n", &Apply{
			YAML: "    kind: Service\n    metadata: {name: web}\n    spec:\n      a: b",
		}},
	} {
		step := parseOne(t, tt.text)
		if diff := cmp.Diff(tt.want, step.Do); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tt.text, diff)
		}
		if step.Expects() {
			t.Errorf("%s: Expects reports a check", tt.text)
		}
	}
}

func TestEndpoint(t *testing.T) {
	yes, no := true, false
	ready := Endpoint{Pod: "a", Ready: &yes, Serving: &yes, Terminating: &no}
	with := func(change func(*Endpoint)) Endpoint { e := ready; change(&e); return e }
	for word, want := range map[string]Endpoint{
		"a":               ready,
		"a:8081":          with(func(e *Endpoint) { e.Port = 8081 }),
		"host":            with(func(e *Endpoint) { e.Pod = "host" }),
		"many*3000":       with(func(e *Endpoint) { e.Pod, e.Count = "many", 3000 }),
		"a(unready)":      with(func(e *Endpoint) { e.Ready, e.Serving = &no, &no }),
		"a(terminating)":  with(func(e *Endpoint) { e.Ready, e.Terminating = &no, &yes }),
		"a(stopping)":     with(func(e *Endpoint) { e.Ready, e.Serving, e.Terminating = &no, &no, &yes }),
		"a(published)":    with(func(e *Endpoint) { e.Serving = &no }),
		"a(bare)":         {Pod: "a"},
		"a(silent)":       with(func(e *Endpoint) { e.Ready, e.Serving, e.Terminating = &no, nil, &yes }),
		"a(zones=z1+z2)":  with(func(e *Endpoint) { e.Zones = []string{"z1", "z2"} }),
		"a(nodes=node-1)": with(func(e *Endpoint) { e.Nodes = []string{"node-1"} }),
		"a:1(terminating,zones=z1)": with(func(e *Endpoint) {
			e.Port, e.Ready, e.Terminating, e.Zones = 1, &no, &yes, []string{"z1"}
		}),
	} {
		step := parseOne(t, "other-endpoints web/2 "+word)
		if diff := cmp.Diff(&Endpoints{Service: "web", Slice: "2", Other: true, List: []Endpoint{want}}, step.Do); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", word, diff)
		}
	}
}

func TestHeaders(t *testing.T) {
	list, err := Parse("f.txt", `# a comment
== one
flags --nodeport-addresses=$NODE_HOST --x
families IPv6
only-apiserver needs Events
not-upstream it has no such thing
restart
# a comment between
== two
only-manifests an API server refuses it
restart
`)
	lab.Must(t, err)
	want := []*Scenario{
		{
			Name: "one", File: "f", Line: 2, Flags: []string{"--nodeport-addresses=$NODE_HOST", "--x"}, Families: []lab.Family{lab.IPv6},
			OnlyAPIServer: "needs Events", NotUpstream: "it has no such thing", Steps: []Step{{Line: 7, Text: "restart", Do: &Restart{}}},
		},
		{
			Name: "two", File: "f", Line: 9, Families: lab.Families(), OnlyManifests: "an API server refuses it",
			Steps: []Step{{Line: 11, Text: "restart", Do: &Restart{}}},
		},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	got, err := list[0].Arguments(lab.IPv4)
	if want := []string{"--nodeport-addresses=192.168.7.1/32", "--x"}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("flags %q, %v; want %q", got, err, want)
	}
}

func TestDifference(t *testing.T) {
	step := parseOne(t, "probe tcp from x to $VIP1:80 => dropped\n  kube-proxy => a b because it does | so")
	want := Step{
		Line: 2, Text: "probe tcp from x to $VIP1:80 => dropped", Do: &Probe{Call: call(lab.TCP, "x", "VIP1", 80), Expect: Expect{Outcome: lab.Dropped}},
		Upstream: &Variant{
			Do:      &Probe{Call: call(lab.TCP, "x", "VIP1", 80), Expect: answered("a", "b")},
			Instead: "a b", Because: "it does | so",
		},
	}
	if diff := cmp.Diff(want, step); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

// TestErrors expects each bad line to be reported with its file, its line and the mistake.
func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"jump", `no step is called "jump"`},
		{"probe", "the protocol is missing"},
		{"probe icmp from x to $VIP1:80 => a", `"icmp" is none of tcp, udp, sctp`},
		{"probe tcp to $VIP1:80 => a", `"from" and the word after it are missing`},
		{"probe tcp from moon to $VIP1:80 => a", `no client is at "moon"`},
		{"probe tcp from x to $VIP1 => a", `"$VIP1" is not of the form $NAME:PORT`},
		{"probe tcp from x to VIP1:80 => a", `"VIP1:80" is not of the form $NAME:PORT`},
		{"probe tcp from x to $VIP1:65536 => a", `not of the form`},
		{"probe tcp from x to $MOON:80 => a", "no address is called $MOON"},
		{"probe tcp from x to $PODS:80 => a", "$PODS is not one address"},
		{"probe tcp from x to $VIP1:80", "nothing is expected"},
		{"probe tcp from x to $VIP1:80 => a e", `"e" is not an endpoint`},
		{"probe tcp from x to $VIP1:80 => refused a", `"a" after refused: not understood`},
		{"probe tcp from x to $VIP1:80 => a as", `"as" needs one name after it`},
		{"probe tcp from x to $VIP1:80 => a as first", `"as" needs "one of"`},
		{"probe tcp from x to $VIP1:80 => a source moon", `"source" needs "client", "node" or $NAME after it, not "moon"`},
		{"probe tcp from x to $VIP1:80 => a source", `"source" needs "client", "node" or $NAME after it`},
		{"probe tcp from x to $VIP1:80 => a source $MOON", "no address is called $MOON"},
		{"probe tcp from x to $VIP1:80 => one of source node", `"one" is not an endpoint`},
		{"probe tcp from x to $VIP1:80 soon => a", "within=... is missing"},
		{"probe tcp from x to $VIP1:80 within=soon => a", `"soon" is not a duration`},
		{"probe tcp from x to $VIP1:80 within=1s more => a", `"more": not understood`},
		{"probe tcp from x to $VIP1:80 => a\n  indented", "indented lines below: not understood"},
		{"restart => a", `"a" after =>: not understood`},
		{"pause", "a duration is missing"},
		{"spread n=x tcp from x to $VIP1:80 => at least 1", "n=x is not a number"},
		{"spread n=1 tcp from x to $VIP1:80 => at least a", `spread expects endpoints or "at least N"`},
		{"spread tcp from x to $VIP1:80 => a", "n=... is missing"},
		{"crowd c n=1 tcp to $VIP1:80 => same but b", `crowd expects "same" or "same except ENDPOINT"`},
		{"end l => all well", `end expects "no failure" or "failures"`},
		{"http from x to $NODE:80/ => fine", `http expects a code or refused, not "fine"`},
		{"http from x to $NODE:80/ => 200\n  cookie a", `"cookie" below http: not header or body`},
		{"address move $SPARE on outside", "address move: not add or remove"},
		{"address add $SPARE", `"on" and the word after it are missing`},
		{"endpoints web e", "endpoint e: it must be POD[:PORT][(WORD,...)] or many*NUMBER"},
		{"endpoints web a*3", "endpoint a*3: it must be POD[:PORT][(WORD,...)] or many*NUMBER"},
		{"endpoints web many", "endpoint many: it must be POD[:PORT][(WORD,...)] or many*NUMBER"},
		{"endpoints web many*x", "endpoint many*x: it must be POD[:PORT][(WORD,...)] or many*NUMBER"},
		{"endpoints web a:http", "endpoint a:http: it must be POD[:PORT][(WORD,...)] or many*NUMBER"},
		{"endpoints web a(tired)", `endpoint a(tired): "tired" is not understood`},
		{"apply", "no objects"},
		{"apply\n  kind: Pod\n  metadata: {name: a}", `kind "Pod" is none of Service, EndpointSlice, Node, ServiceCIDR`},
		{"apply\n  kind: Service", "Service without metadata.name"},
		{"apply\n  kind: Service\n  kind: Service", "read YAML"},
		{"apply\n  kind: Service\n  metadata: {name: a}\n  spec: {clusterIPs: [$MOON]}", "no address is called $MOON"},
		{"patch Service web {spec", "read YAML"},
		{"flags --x=$MOON", "no address is called $MOON"},
		{"families IPX", `families: "IPX" names none of IPv4, IPv6`},
		{"not-upstream", "not-upstream: nothing follows it"},
		{"probe tcp from x to $VIP1:80 => a\n  kube-proxy => b", `a difference reads "kube-proxy => EXPECTATION because REASON"`},
		{"restart\n  ipvs => b because of that", `a difference reads "ipvs => EXPECTATION because REASON"`},
		{"restart\n  kube-proxy => b because of that", `a difference reads "kube-proxy => EXPECTATION because REASON"`},
		{"probe tcp from x to $VIP1:80 => a\n  kube-proxy => e because of that", `"e" is not an endpoint`},
		{"probe tcp from x to $VIP1:80 => a  b\n  kube-proxy => a b because of that", "that is not a difference"},
	} {
		_, err := Parse("dir/bad.txt", "# first\n== one\nrestart\n"+tt.text+"\nrestart\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "dir/bad.txt:4: ") {
			t.Errorf("%s:\n got error %v\nwant dir/bad.txt:4: ... %s", tt.text, err, tt.want)
		}
	}
}

func TestErrorsOfFiles(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no scenario", "\nrestart\n", "f.txt:2: this line stands before the first scenario"},
		{"no steps", "== one\n== two\nrestart\n", `f.txt:1: scenario "one" has no steps`},
		{"a name twice", "== one\nrestart\n== one\nrestart\n", `f.txt:3: a second scenario is called "one"`},
		{"all errors at once", "== one\njump\nrestart\nfly\n", "f.txt:2: no step is called \"jump\"\nf.txt:4: no step is called \"fly\""},
	} {
		if _, err := Parse("f.txt", tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %s", tt.name, err, tt.want)
		}
	}
}

// TestOurScenarios reads the scenarios of this repository and expects each of them to check something.
func TestOurScenarios(t *testing.T) {
	list, err := Load(os.DirFS("../scenarios"))
	lab.Must(t, err)
	runs, probes := 0, 0
	for _, s := range list {
		runs += len(s.Families)
		probes += s.Probes() * len(s.Families)
		if s.Probes() == 0 {
			t.Errorf("%s.txt:%d: %s expects nothing", s.File, s.Line, s.Name)
		}
	}
	t.Logf("%d scenarios, %d with each family counted, %d probes", len(list), runs, probes)
	if runs < 200 || probes < 900 {
		t.Errorf("only %d scenarios and %d probes: some files are missing", runs, probes)
	}
}
