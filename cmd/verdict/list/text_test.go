package list

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const full = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port  Scheduler  Engine     Service    Flags
  -> RemoteAddress:Port Weight     ActiveConn InActConn
TCP  10.96.0.10:80      random     nft        shop/web:http
  -> 10.0.1.2:8080      1          3          1
  -> 10.0.1.7:8080      0          1          0          leaving: only open connections
  -> 10.0.1.10:8080     2          0          0
TCP  10.96.0.11:80      -          nft        shop/empty:http rejected
TCP  10.96.0.20:80      wlc        ipvs       shop/busy:http source-ranges
  -> 10.0.1.2:8080      3          7          1
  -> 10.0.1.3:8080      0          1          0          leaving: only open connections
TCP  10.96.0.21:80      -          ipvs       shop/lost:http no-virtual-server
UDP  10.96.0.53:53      rr         nft        kube-system/dns:dns
  -> 10.0.1.53:53       1          12         4
TCP  10.96.0.99:80      sh         ipvs       -          persistent 60 (sh-fallback,sh-port)
  -> 10.0.1.2:8080      0          0          2          leaving: only open connections
TCP  192.0.2.10:80      mh         nft        shop/web:http persistent 10800 local dropped-outside source-ranges
  -> 10.0.1.2:8080      1          0          0          (pods, node: 1)
  -> 10.0.1.3:8080      2          0          0          (pods, node: 0)
  -> 10.0.2.1:8080      0          0          5          (pods, node: 2)
TCP  192.0.2.20:80      random     nft        shop/near:http pods-and-node-only
  -> 10.0.1.2:8080      1          0          0
  -> 10.0.2.1:8080      2          0          0
TCP  192.0.2.20:80      lc         ipvs       shop/near:http local
  -> 10.0.1.2:8080      1          2          3
TCP  192.168.7.1:30020  lc         ipvs       shop/busy:http node-port
TCP  *:30080            random     nft        shop/web:http
  -> 10.0.1.2:8080      1          0          0
  -> 10.0.1.10:8080     2          2          0
TCP  [fd00:96::10]:80   -          nft        shop/six:http dropped
TCP  [*]:30081          random     nft        shop/six:http local
  -> [fd00:10::1]:8080  1          1          0
`

const terse = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port Good Active                   Service
TCP  10.96.0.10:80     2/3  4                        shop/web:http
TCP  10.96.0.11:80     0/0  0      rejected          shop/empty:http
TCP  10.96.0.20:80     1/2  8                        shop/busy:http
TCP  10.96.0.21:80     0/0  0      no-virtual-server shop/lost:http
UDP  10.96.0.53:53     1/1  12                       kube-system/dns:dns
TCP  10.96.0.99:80     0/1  0                        -
TCP  192.0.2.10:80     2/3  0      dropped-outside   shop/web:http
TCP  192.0.2.20:80     2/2  0                        shop/near:http
TCP  192.0.2.20:80     1/1  2                        shop/near:http
TCP  192.168.7.1:30020 0/0  0                        shop/busy:http
TCP  *:30080           2/2  2                        shop/web:http
TCP  [fd00:96::10]:80  0/0  0      dropped           shop/six:http
TCP  [*]:30081         1/1  1                        shop/six:http
`

const terseWide = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port Scheduler Engine Endpoints ActiveConn InActConn Service             Flags
TCP  10.96.0.10:80     random    nft    2/3       4          1         shop/web:http       connections=0 refused=0
TCP  10.96.0.11:80     -         nft    0/0       0          0         shop/empty:http     rejected connections=0 refused=0
TCP  10.96.0.20:80     wlc       ipvs   1/2       8          1         shop/busy:http      source-ranges connections=0 refused=0
TCP  10.96.0.21:80     -         ipvs   0/0       0          0         shop/lost:http      no-virtual-server connections=0 refused=0
UDP  10.96.0.53:53     rr        nft    1/1       12         4         kube-system/dns:dns connections=0 refused=0
TCP  10.96.0.99:80     sh        ipvs   0/1       0          2         -                   persistent 60 (sh-fallback,sh-port) connections=0 refused=0
TCP  192.0.2.10:80     mh        nft    2/3       0          5         shop/web:http       persistent 10800 local dropped-outside source-ranges connections=0 refused=0
TCP  192.0.2.20:80     random    nft    2/2       0          0         shop/near:http      pods-and-node-only connections=0 refused=0
TCP  192.0.2.20:80     lc        ipvs   1/1       2          3         shop/near:http      local connections=0 refused=0
TCP  192.168.7.1:30020 lc        ipvs   0/0       0          0         shop/busy:http      node-port connections=0 refused=0
TCP  *:30080           random    nft    2/2       2          0         shop/web:http       connections=0 refused=0
TCP  [fd00:96::10]:80  -         nft    0/0       0          0         shop/six:http       dropped connections=0 refused=0
TCP  [*]:30081         random    nft    1/1       1          0         shop/six:http       local connections=0 refused=0
`

// uncounted is the beginning of the output without connection tracking. IPVS still counts.
const uncounted = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port  Scheduler  Engine     Service    Flags
  -> RemoteAddress:Port Weight     ActiveConn InActConn
TCP  10.96.0.10:80      random     nft        shop/web:http
  -> 10.0.1.2:8080      1          -          -
  -> 10.0.1.10:8080     2          -          -
TCP  10.96.0.11:80      -          nft        shop/empty:http rejected
TCP  10.96.0.20:80      wlc        ipvs       shop/busy:http source-ranges
  -> 10.0.1.2:8080      3          7          1
`

// sampleTable is a table with a line of each kind.
func sampleTable(t *testing.T, counted bool) *snapshot.Table {
	t.Helper()
	text, err := os.ReadFile("../snapshot/testdata/table.json")
	if err != nil {
		t.Fatal(err)
	}
	var table snapshot.Table
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for i := range table.Frontends {
		fe := &table.Frontends[i]
		if counted || fe.Engine == snapshot.IPVS {
			continue
		}
		// Endpoints that have left the pool are known only by their connections.
		fe.Endpoints = slices.DeleteFunc(fe.Endpoints, func(e snapshot.Endpoint) bool { return e.Weight == 0 && e.InsideWeight == nil })
		for j := range fe.Endpoints {
			fe.Endpoints[j].Active, fe.Endpoints[j].Inactive = nil, nil
		}
	}
	return &table
}

// as is what -o sets.
func as(form string) (o flags.Output) {
	o.Bind(pflag.NewFlagSet("test", pflag.ContinueOnError), wide)
	_ = o.Set(form)
	return o
}

// TestTerseFits: 80 columns, whatever the names and addresses are; what is wrong is never cut.
func TestTerseFits(t *testing.T) {
	table := &snapshot.Table{}
	for _, fe := range []snapshot.Frontend{
		{Service: "kube-system/" + strings.Repeat("long", 15) + ":https", Address: netip.MustParseAddr("203.0.113.100"), Port: 30443, Refusal: "rejected", OutsideOnly: true},
		{Service: "default/kubernetes:https", Address: netip.MustParseAddr("2001:db8:1234:5678::abcd:1234"), Port: 30443, Missing: true},
	} {
		fe.Protocol, fe.Endpoints = "SCTP", make([]snapshot.Endpoint, 250)
		for i := range 249 {
			fe.Endpoints[i].Weight = 1
		}
		table.Frontends = []snapshot.Frontend{fe}
		out := text(t, table, options{terse: true})
		for line := range strings.Lines(out) {
			if len(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
		if !strings.Contains(out, "249/250") || !strings.Contains(out, troubles(&fe)) {
			t.Errorf("it does not say what is wrong: %s", out)
		}
	}
}

func text(t *testing.T, table *snapshot.Table, o options) string {
	t.Helper()
	var out bytes.Buffer
	if err := o.output.Write(&out, table, func(out io.Writer) error { return o.write(out, table) }); err != nil {
		t.Fatal(err)
	}
	return "\n" + out.String()
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name    string
		counted bool
		o       options
		want    string
	}{
		{"full", true, options{}, full},
		{"terse", true, options{terse: true}, terse},
		{"terse and wide", true, options{terse: true, output: as(wide)}, terseWide},
		{"uncounted", false, options{}, uncounted},
	} {
		got := text(t, sampleTable(t, tt.counted), tt.o)
		if !tt.counted {
			got = got[:min(len(got), len(tt.want))]
		}
		if diff := cmp.Diff(strings.Split(tt.want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tt.name, diff)
		}
	}
}

// TestFastPathText: with --fast-path=services, the flags say what stays on the rules, and the last line how many connections are on the
// fast path.
func TestFastPathText(t *testing.T) {
	table := sampleTable(t, true)
	table.Frontends, table.FastPath = table.Frontends[:2], socket.FastPath{After: 20}
	table.Frontends[0].OnRules = "IPVS serves the port"
	table.Open = []socket.Passing{{Service: "shop/web:http", Client: "pod", Open: 5, FastPath: 3}, {Service: "shop/web:http", Client: "outside", Open: 1, FastPath: 1}}
	const want = `
Prot LocalAddress:Port  Scheduler  Engine     Service    Flags
  -> RemoteAddress:Port Weight     ActiveConn InActConn
TCP  10.96.0.10:80      random     nft        shop/web:http on-the-rules (IPVS serves the port)
  -> 10.0.1.2:8080      1          3          1
  -> 10.0.1.7:8080      0          1          0          leaving: only open connections
  -> 10.0.1.10:8080     2          0          0
TCP  10.96.0.11:80      -          nft        shop/empty:http rejected
On the fast path: 4 open connections
`
	if diff := cmp.Diff(want, text(t, table, options{})); diff != "" {
		t.Error(diff)
	}
	table.FastPath.BridgesStay = true
	if diff := cmp.Diff(strings.TrimSuffix(want, "\n")+"; "+kernel.WhyBridgesStay+"\n", text(t, table, options{})); diff != "" {
		t.Error(diff)
	}
}

func TestJSON(t *testing.T) {
	table := sampleTable(t, true)
	table.Frontends = table.Frontends[5:7] // one of each engine
	const want = `
{
  "nodePortAddresses": [
    "192.168.7.1",
    "fd00:7::1"
  ],
  "frontends": [
    {
      "service": "",
      "protocol": "TCP",
      "family": "IPv4",
      "address": "10.96.0.99",
      "port": 80,
      "engine": "ipvs",
      "scheduler": "sh",
      "schedulerFlags": "sh-fallback,sh-port",
      "affinitySeconds": 60,
      "connectionsTotal": 0,
      "refusedTotal": 0,
      "endpoints": [
        {
          "address": "10.0.1.2",
          "port": 8080,
          "weight": 0,
          "active": 0,
          "inactive": 2,
          "leaving": true
        }
      ]
    },
    {
      "service": "shop/web:http",
      "protocol": "TCP",
      "family": "IPv4",
      "address": "192.0.2.10",
      "port": 80,
      "engine": "nft",
      "scheduler": "mh",
      "affinitySeconds": 10800,
      "local": true,
      "refusal": "dropped",
      "refusalOutsideOnly": true,
      "sourceRanges": true,
      "connectionsTotal": 0,
      "refusedTotal": 0,
      "endpoints": [
        {
          "address": "10.0.1.2",
          "port": 8080,
          "weight": 1,
          "weightForPodsAndNode": 1,
          "active": 0,
          "inactive": 0
        },
        {
          "address": "10.0.1.3",
          "port": 8080,
          "weight": 2,
          "weightForPodsAndNode": 0,
          "active": 0,
          "inactive": 0
        },
        {
          "address": "10.0.2.1",
          "port": 8080,
          "weight": 0,
          "weightForPodsAndNode": 2,
          "active": 0,
          "inactive": 5
        }
      ]
    }
  ]
}
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(text(t, table, options{output: as("json")}), "\n")); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	var back struct{ Frontends []map[string]any }
	if err := json.Unmarshal([]byte(text(t, sampleTable(t, true), options{output: as("json")})), &back); err != nil || len(back.Frontends) != 13 {
		t.Errorf("%d frontends read back, %v; want 13", len(back.Frontends), err)
	}
}

// TestEveryFieldIsShown: the text and the JSON form change with every field of a frontend and of an endpoint.
func TestEveryFieldIsShown(t *testing.T) {
	rate, refused, n, m, inside := 1.0, 1.0, 1, 1, 1
	base := snapshot.Frontend{
		Service: "shop/web:http", Protocol: "TCP", Family: "IPv4", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Engine: snapshot.NFT, Refusal: "rejected",
		NodePort: true, Rate: &rate, RefusedRate: &refused,
		Endpoints: []snapshot.Endpoint{{Address: netip.MustParseAddr("10.0.1.1"), Port: 8080, Weight: 1, Active: &n, Inactive: &m, InsideWeight: &inside}},
	}
	show := func(fe snapshot.Frontend, o options) string {
		return text(t, &snapshot.Table{Frontends: []snapshot.Frontend{fe}}, o)
	}
	for path, changed := range fields.Each(base) {
		for form, o := range map[string]options{"text": {output: as(wide)}, "JSON": {output: as("json")}} {
			if (path == "Family" || path == "Endpoints[0].Bad") && form == "text" {
				continue // the address shows it, and the words of Outlier
			}
			if show(base, o) == show(changed, o) {
				t.Errorf("%s does not show %s", form, path)
			}
		}
	}
}

// TestAnnotationsAreShown: what package state says about annotations and this command is a field of the JSON form.
func TestAnnotationsAreShown(t *testing.T) {
	for _, a := range state.Annotations() {
		in := reflect.TypeFor[snapshot.Frontend]()
		for name := range strings.SplitSeq(a.Shown, ".") {
			if a.Shown != "" && !hasField(&in, name) {
				t.Errorf("%s is shown as %q, which is no field", a.Key, a.Shown)
				break
			}
		}
	}
}

// hasField goes into the field with a name in JSON, and reports whether there is one.
func hasField(in *reflect.Type, name string) bool {
	if (*in).Kind() != reflect.Struct {
		return false
	}
	for field := range (*in).Fields() {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			if *in = field.Type; (*in).Kind() == reflect.Slice {
				*in = (*in).Elem()
			}
			return true
		}
	}
	return false
}
