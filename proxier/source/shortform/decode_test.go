package shortform

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// complete has every field.
const complete = `apiVersion: verdict-proxy.github.io/v1alpha1
kind: LoadBalancer
metadata:
  name: web
  namespace: shop
spec:
  addresses: [192.0.2.10, "2001:db8::10"]
  ports:
  - port: 80
    targetPort: 8080
  - name: secure
    port: 443
    targetPort: 8443
    protocols: [TCP, UDP]
  endpoints:
  - address: 10.0.0.1
    weight: 3
  - address: 10.0.0.2
  - address: 10.0.0.3
    weight: 3
  - address: 10.0.0.9
    backup: true
  - address: fd00::1
  scheduler: mh
  schedulerFlags: [mh-port]
  affinity: 3h
  sourceRanges: [198.51.100.0/24, "2001:db8:1::/48"]
  masquerade: false
  forwarding: nat
  check: http path=/healthz interval=2s
  outlierDetection: eject,refusals
  onAllDown: backup
  onRemoval: reset
`

// one has one port, which an endpoint may change.
const one = `apiVersion: verdict-proxy.github.io/v1alpha1
kind: LoadBalancer
metadata: {name: one}
spec:
  addresses: [192.0.2.10]
  ports: [{port: 80}]
  endpoints: [{address: 10.0.0.1}, {address: 10.0.0.1, port: 81}]
`

// wrong documents, each as replacements in the complete one.
var wrong = []struct {
	name, old, new string
	want           []string
	between        bool // no schema finds it
}{
	{name: "unknown field", old: "scheduler: mh\n", new: "scheduler: mh\n  schedular: rr\n",
		want: []string{"25: spec.schedular: unknown field: expected one of addresses, ports, endpoints, scheduler, schedulerFlags, affinity, " +
			"check, outlierDetection, onAllDown, onRemoval, sourceRanges, masquerade, forwarding"}},
	{name: "unknown field of an endpoint", old: "weight: 3\n  - address: 10.0.0.2", new: "wight: 3\n  - address: 10.0.0.2",
		want: []string{"17: spec.endpoints[0].wight: unknown field: expected one of address, port, weight, backup"}},
	{name: "missing fields", old: "  - address: 10.0.0.1\n    weight: 3\n", new: "  - weight: 3\n",
		want: []string{"16: spec.endpoints[0].address: missing: expected its address, of the family of one of the virtual addresses"}},
	{name: "no name", old: "  name: web\n  namespace", new: "  namespace", want: []string{
		"3: metadata.name: missing: expected the name in logs, metrics and verdict list; no other LoadBalancer or Service of the namespace has it"}},
	{name: "a text for a number", old: "weight: 3", new: `weight: "3"`, want: []string{
		`17: spec.endpoints[0].weight: the text "3": expected a number from 0 to 65535`,
		`20: spec.endpoints[2].weight: the text "3": expected a number from 0 to 65535`}},
	{name: "a number out of range", old: "targetPort: 8080", new: "targetPort: 80800",
		want: []string{"10: spec.ports[0].targetPort: 80800: expected a number from 1 to 65535"}},
	{name: "a port out of range", old: "port: 80\n", new: "port: 0\n", want: []string{`9: spec.ports[0].port: "0" is not a port from 1 to 65535, or a range such as 5000-6000`}},
	{name: "a port that is none", old: "port: 80\n", new: "port: 8000-\n",
		want: []string{`9: spec.ports[0].port: "8000-" is not a port from 1 to 65535, or a range such as 5000-6000`}},
	{name: "a list of ports", old: "port: 80\n", new: "port: [80]\n", want: []string{"9: spec.ports[0].port: a list: expected a number or a text, such as 80"}},
	{name: "an empty range", old: "port: 80\n", new: "port: 80-80\n",
		want: []string{`9: spec.ports[0].port: the last port of "80-80" must be higher than the first one`}, between: true},
	{name: "a range with another target", old: "port: 80\n", new: "port: 8000-8999\n",
		want: []string{"10: spec.ports[0].targetPort: 8080: expected 8000 or none, because connections to a range keep their port"}, between: true},
	{name: "ranges that overlap", old: "port: 80\n    targetPort: 8080\n", new: "port: 400-450\n",
		want: []string{"11: spec.ports[1].port: TCP port 443 occurs twice: expected it once"}, between: true},
	{name: "a list for a value", old: "scheduler: mh", new: "scheduler: [mh]", want: []string{
		"24: spec.scheduler: a list: expected one of random, rr, wrr, lc, wlc, sed, nq, sh, mh, dh, lblc, lblcr, fo, ovf, twos"}},
	{name: "a value for a list", old: `addresses: [192.0.2.10, "2001:db8::10"]`, new: "addresses: 192.0.2.10",
		want: []string{`7: spec.addresses: the text "192.0.2.10": expected a list`}},
	{name: "an empty list", old: `[192.0.2.10, "2001:db8::10"]`, new: "[]", want: []string{"7: spec.addresses: an empty list: expected at least 1"}},
	{name: "a value for fields", old: "  name: web\n  namespace: shop\n", new: "  web\n", want: []string{`3: metadata: the text "web": expected fields`}},
	{name: "nothing", old: "scheduler: mh\n", new: "scheduler:\n", want: []string{
		"24: spec.scheduler: nothing: expected one of random, rr, wrr, lc, wlc, sed, nq, sh, mh, dh, lblc, lblcr, fo, ovf, twos"}},
	{name: "no address", old: "192.0.2.10,", new: "192.0.2.300,",
		want: []string{`7: spec.addresses[0]: "192.0.2.300" is not the address of a host: expected IPv4 or IPv6, without a zone, not loopback and not link-local`}, between: true},
	{name: "an address of all hosts", old: "192.0.2.10,", new: "0.0.0.0,",
		want: []string{`7: spec.addresses[0]: "0.0.0.0" is not the address of a host: expected IPv4 or IPv6, without a zone, not loopback and not link-local`}, between: true},
	{name: "no range", old: "198.51.100.0/24", new: "198.51.100.7/24",
		want:    []string{`27: spec.sourceRanges[0]: "198.51.100.7/24" is not a range: expected a CIDR such as 10.0.0.0/8, without bits beyond its length; one address is 192.0.2.1/32`},
		between: true},
	{name: "no time", old: "affinity: 3h", new: "affinity: 3", want: []string{"26: spec.affinity: 3: expected a text, such as 90s"}},
	{name: "a time too long", old: "affinity: 3h", new: "affinity: 25h",
		want: []string{`26: spec.affinity: "25h" is not a time from 1s to 24h: expected whole seconds, such as 90s, 5m or 3h`}, between: true},
	{name: "no boolean", old: "masquerade: false", new: "masquerade: no", want: []string{`28: spec.masquerade: the text "no": expected true or false`}},
	{name: "no check", old: "http path=/healthz interval=2s", new: "ping",
		want: []string{`30: spec.check: "ping" is not tcp, http, https, dns or off`}},
	{name: "another way of forwarding", old: "forwarding: nat", new: "forwarding: magic", want: []string{
		`29: spec.forwarding: "magic" is no way of forwarding: expected nat, route, tunnel, or a tunnel such as tunnel,gue,6080,csum or tunnel,gre`}},
	{name: "no name of a port", old: "name: secure", new: "name: Secure_1", want: []string{
		`11: spec.ports[1].name: "Secure_1" is not a name: expected at most 63 of a to z, 0 to 9 and -, which is not first or last`}},
	{name: "a protocol", old: "[TCP, UDP]", new: "[tcp]", want: []string{`14: spec.ports[1].protocols[0]: the text "tcp": expected one of TCP, UDP, SCTP`}},
	{name: "a version", old: "v1alpha1", new: "v1", want: []string{
		`1: apiVersion: the text "verdict-proxy.github.io/v1": expected verdict-proxy.github.io/v1alpha1`}},
	{name: "the same twice", old: "10.0.0.2\n", new: "10.0.0.1\n", want: []string{"18: spec.endpoints[1]: endpoint 10.0.0.1 occurs twice: expected it once"}, between: true},
	{name: "the same port twice", old: "port: 443", new: "port: 80",
		want: []string{"12: spec.ports[1].port: TCP port 80 occurs twice: expected it once"}, between: true},
	{name: "the same port name twice", old: "secure", new: "port-80",
		want: []string{"11: spec.ports[1].name: the TCP port name port-80 occurs twice: expected it once"}, between: true},
	{name: "a number as a port name", old: "secure", new: `"443"`,
		want: []string{"11: spec.ports[1].name: 443 is a number: expected a letter in it"}, between: true},
	{name: "an endpoint of another family", old: `192.0.2.10, "2001:db8::10"`, new: "192.0.2.10",
		want: []string{"23: spec.endpoints[4].address: fd00::1 serves nothing: expected an IPv6 address in spec.addresses"}, between: true},
	{name: "a port of an endpoint", old: "10.0.0.2\n", new: "10.0.0.2\n    port: 81\n",
		want: []string{"19: spec.endpoints[1].port: 81: expected no port, because spec.ports has 2"}, between: true},
	{name: "flags of another scheduler", old: "[mh-port]", new: "[mh-port, sh-port]",
		want: []string{"25: spec.schedulerFlags[1]: sh-port: expected spec.scheduler to be sh"}, between: true},
}

func TestFaults(t *testing.T) {
	for _, tt := range wrong {
		t.Run(tt.name, func(t *testing.T) {
			changed := strings.ReplaceAll(complete, tt.old, tt.new)
			if changed == complete {
				t.Fatal("the row changes nothing")
			}
			lb, faults := Decode([]byte(changed))
			if diff := cmp.Diff(tt.want, lines(faults)); diff != "" || lb != nil {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFaultsOfEndpoints: what an endpoint without a port means counts, too.
func TestFaultsOfEndpoints(t *testing.T) {
	const loop = "in spec.addresses: expected another address, or another port than"
	for _, tt := range []struct {
		name, ports, endpoints string
		want                   []string
	}{
		{"another port of the same host", "[{port: 80}]", "[{address: 10.0.0.1}, {address: 10.0.0.1, port: 81}]", nil},
		{"the port itself", "[{port: 80}]", "[{address: 10.0.0.1}, {address: 10.0.0.1, port: 80}]",
			[]string{"7: spec.endpoints[1]: endpoint 10.0.0.1 occurs twice: expected it once"}},
		{"the target port", "[{port: 80, targetPort: 8080}]", "[{address: 10.0.0.1, port: 8080}, {address: 10.0.0.1}]",
			[]string{"7: spec.endpoints[1]: endpoint 10.0.0.1 occurs twice: expected it once"}},
		{"a loop", "[{port: 80}]", "[{address: 192.0.2.10}]",
			[]string{"7: spec.endpoints[0].address: 192.0.2.10 is " + loop + " 80, so that connections do not return here"}},
		{"a loop by its port", "[{port: 80, targetPort: 8080}]", "[{address: 192.0.2.10, port: 80}]",
			[]string{"7: spec.endpoints[0].address: 192.0.2.10 is " + loop + " 80, so that connections do not return here"}},
		{"a loop at a second port", "[{port: 80, targetPort: 8080}, {port: 81}]", "[{address: 192.0.2.10}]",
			[]string{"7: spec.endpoints[0].address: 192.0.2.10 is " + loop + " 81, so that connections do not return here"}},
		{"a loop of a range", "[{port: 80-90}]", "[{address: 192.0.2.10}]",
			[]string{"7: spec.endpoints[0].address: 192.0.2.10 is " + loop + " 80, so that connections do not return here"}},
		{"another program of this host", "[{port: 80, targetPort: 8080}]", "[{address: 192.0.2.10}]", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.NewReplacer("[{port: 80}]", tt.ports, "[{address: 10.0.0.1}, {address: 10.0.0.1, port: 81}]", tt.endpoints).Replace(one)
			_, faults := Decode([]byte(text))
			if diff := cmp.Diff(tt.want, lines(faults)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func lines(faults []Fault) (list []string) {
	for _, f := range faults {
		list = append(list, fmt.Sprintf("%d: %s", f.Line, f))
	}
	return list
}

func TestGood(t *testing.T) {
	for name, text := range map[string]string{
		"every field": complete,
		"one port":    one,
		"JSON with tabs": "{\n\t\"apiVersion\": \"verdict-proxy.github.io/v1alpha1\", \"kind\": \"LoadBalancer\",\n\t\"metadata\": {\"name\": \"a\"},\n" +
			"\t\"spec\": {\"addresses\": [\"192.0.2.1\"], \"ports\": [{\"port\": 80}]}}",
		"alias": strings.ReplaceAll(strings.Replace(complete, "weight: 3", "weight: &heavy 3", 1), "weight: 3", "weight: *heavy"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, faults := Decode([]byte(text)); len(faults) > 0 {
				t.Error(faults)
			}
		})
	}
}

// TestNoDocument: what is no document is a fault, too.
func TestNoDocument(t *testing.T) {
	for _, text := range []string{"", "# nothing", "a: [", "- a"} {
		if _, faults := Decode([]byte(text)); len(faults) == 0 {
			t.Errorf("%q has no fault", text)
		}
	}
}

// TestLine: problems of other objects find their lines, too.
func TestLine(t *testing.T) {
	const text = "metadata:\n  annotations:\n    a.b/c: x\nspec:\n  ports:\n  - port: 1\n    name: a\n  - {port: 2,\n    name: b}\n"
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	want := map[string]int{"": 1, "metadata.annotations[a.b/c]": 3, "spec.ports[0].name": 7, "spec.ports[1]": 8, "spec.ports[1].name": 9,
		"spec.ports[1].nodePort": 8, "spec.ports[7]": 5, "spec.clusterIP": 4, "status": 1, "spec.ports[x": 5}
	for field := range want {
		got[field] = d.Line(field)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestGrowth: four times as many of everything take about four times the memory, and make four times as many faults.
func TestGrowth(t *testing.T) {
	text := func(n int, port, endpoint func(i int) string) []byte {
		var b strings.Builder
		b.WriteString("apiVersion: verdict-proxy.github.io/v1alpha1\nkind: LoadBalancer\nmetadata: {name: a}\nspec:\n  addresses: [192.0.2.10]\n  ports:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {port: %s}\n", port(i))
		}
		b.WriteString("  endpoints:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {address: 10.0.%d.%d%s}\n", i/256, i%256, endpoint(i))
		}
		return []byte(b.String())
	}
	one, other := func(int) string { return "80" }, func(i int) string { return fmt.Sprint(i + 1) }
	none, weight := func(int) string { return "" }, func(i int) string { return fmt.Sprintf(", weight: %d", i) }
	unknown := func(i int) string { return fmt.Sprintf(", x%d: 1", i) }
	for what, of := range map[string]struct {
		port, endpoint func(i int) string
		faults         int // of each port
	}{
		"equal ports": {one, none, 2}, "weights and ports": {other, weight, 0}, "unknown fields": {other, unknown, 1},
	} {
		cost := func(n int) float64 {
			doc := text(n, of.port, of.endpoint)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			lb, faults := Decode(doc)
			if lb != nil {
				lb.Objects()
			}
			runtime.ReadMemStats(&after)
			if len(faults) > n*of.faults || of.faults > 0 && len(faults) < n-1 {
				t.Errorf("%s: %d faults of %d ports and endpoints", what, len(faults), n)
			}
			if len(faults) > 0 && faults[len(faults)-1].Line != 0 {
				t.Errorf("%s: the line of each fault is looked for", what)
			}
			return float64(after.TotalAlloc - before.TotalAlloc)
		}
		const n, most = 300, 6
		if few, many := cost(n), cost(4*n); many > most*few {
			t.Errorf("%s: %.0f bytes for %d ports and endpoints, and %.0f for four times as many", what, few, n, many)
		}
	}
}
