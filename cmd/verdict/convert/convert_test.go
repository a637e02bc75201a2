package convert

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/proxier/source/shortform"
)

// converted returns what the command prints for a text.
func converted(t *testing.T, text string) (balancers, notes string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := New()
	cmd.SetArgs([]string{})
	cmd.SetIn(strings.NewReader(text))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	expectValid(t, stdout.String())
	return stdout.String(), strings.ReplaceAll(stderr.String(), "(standard input):", "")
}

// expectValid: Verdict accepts what the command writes.
func expectValid(t *testing.T, balancers string) {
	t.Helper()
	if balancers == nothing {
		return
	}
	for doc := range strings.SplitSeq(balancers, "---\n") {
		if _, faults := shortform.Decode([]byte(doc)); len(faults) > 0 {
			t.Errorf("%v\n%s", faults, doc)
		}
	}
}

// specs leaves out what all balancers have.
func specs(balancers string) string {
	return strings.NewReplacer("apiVersion: "+shortform.APIVersion+"\nkind: LoadBalancer\n", "", "---\n", "").Replace(balancers)
}

// savedTable is a table as "ipvsadm -Sn" prints it.
const savedTable = `-A -t 192.0.2.1:80 -s wlc -p 600
-a -t 192.0.2.1:80 -r 10.0.0.1:8080 -m -w 3
-a -t 192.0.2.1:80 -r 10.0.0.2:8080 -m -w 1
-a -t 192.0.2.1:80 -r 10.0.0.3:8080 -m -w 0
-A -u 192.0.2.1:53 -s mh -b mh-fallback,mh-port -o
-a -u 192.0.2.1:53 -r 10.0.0.1:53 -m -w 1
-a -u 192.0.2.1:53 -r 10.0.0.2:5353 -m -w 1
-A -t [2001:db8::1]:443 -s sh -b flag-1,flag-2 -p 100000 -M 64
-a -t [2001:db8::1]:443 -r [fd00::1]:443 -g -w 70000
-a -t [2001:db8::1]:443 -r 10.0.0.1:443 -i -w 1 --tun-type ipip
-A --sctp-service 192.0.2.1:3868 -s rr --pe sip
-a --sctp-service 192.0.2.1:3868 -r 10.0.0.1:3868 -m -w 1 -x 100 -y 50
-A -f 7 -s rr
-a -f 7 -r 10.0.0.1:0 -m -w 1
-A -t 192.0.2.2:0 -s rr -p 360
-a -t 192.0.2.2:0 -r 10.0.0.1:0 -m -w 1
`

func TestIPVSADM(t *testing.T) {
	balancers, notes := converted(t, savedTable)
	want := `# line 1: TCP 192.0.2.1:80
metadata:
  name: tcp-192-0-2-1-80
spec:
  addresses: [192.0.2.1]
  ports:
    - port: 80
      targetPort: 8080
  endpoints:
    - address: 10.0.0.1
      weight: 3
    - address: 10.0.0.2
    - address: 10.0.0.3
      weight: 0
  scheduler: wlc
  affinity: 10m0s
  masquerade: false
# line 5: UDP 192.0.2.1:53
metadata:
  name: udp-192-0-2-1-53
spec:
  addresses: [192.0.2.1]
  ports:
    - port: 53
      protocols: [UDP]
  endpoints:
    - address: 10.0.0.1
    - address: 10.0.0.2
      port: 5353
  scheduler: mh
  schedulerFlags: [mh-port]
  masquerade: false
# line 8: TCP [2001:db8::1]:443
metadata:
  name: tcp-2001-db8--1-443
spec:
  addresses: ['2001:db8::1']
  ports:
    - port: 443
  endpoints:
    - address: fd00::1
      weight: 65535
  scheduler: sh
  schedulerFlags: [sh-port]
  affinity: 24h0m0s
  forwarding: route
# line 11: SCTP 192.0.2.1:3868
metadata:
  name: sctp-192-0-2-1-3868
spec:
  addresses: [192.0.2.1]
  ports:
    - port: 3868
      protocols: [SCTP]
  endpoints:
    - address: 10.0.0.1
  scheduler: rr
  masquerade: false
# line 15: TCP 192.0.2.2:0
metadata:
  name: tcp-192-0-2-2-0
spec:
  addresses: [192.0.2.2]
  ports:
    - port: 1-65535
  endpoints:
    - address: 10.0.0.1
  scheduler: rr
  affinity: 6m0s
  masquerade: false
`
	if diff := cmp.Diff(want, specs(balancers)); diff != "" {
		t.Errorf("balancers (-want +got):\n%s", diff)
	}
	wantNotes := `5: -o: Verdict has no counterpart
8: persistence of 100000 seconds: Verdict has at most 24h, which are written
8: -M 64: Verdict has no counterpart
9: weight 70000: Verdict has 0 to 65535; 65535 is written
10: real server 10.0.0.1:443: it is of another family than the virtual address, and nat cannot reach it; it is left out
11: --pe sip: Verdict has no counterpart
12: -x 100: Verdict has no counterpart
12: -y 50: Verdict has no counterpart
13: -f 7: Verdict has no virtual servers by mark; it is left out. A balancer can have several addresses and ranges of ports
`
	if diff := cmp.Diff(wantNotes, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

const configuration = `! what keepalived has
global_defs {
  router_id a
}
virtual_server_group web {
  192.0.2.10 80
  192.0.2.20-21 80
  2001:db8::8-a 443
  192.0.2.30
}
virtual_server group web
{
  delay_loop 4
  lvs_sched wrr
  lvs_method DR
  protocol TCP
  retry 2
  connect_timeout 9
  virtualhost www.example.org
  real_server 10.0.0.1 8080 {
    weight 3
    HTTP_GET {
      url {
        path /healthz
        status_code 204
      }
    }
  }
  real_server 10.0.0.2 8080 {
    HTTP_GET {
      url {
        path /other
      }
    }
    uthreshold 100
  }
  real_server fd00::1 8080 { # in one line of its own: the end of a block may follow
    HTTP_GET { url { path /healthz
       status_code 204 } }
    notify_down "/bin/mail -s 'it is down'" }
  sorry_server 10.0.0.9 80
}
virtual_server 192.0.2.53 53 {
  protocol UDP
  lb_algo mh
  mh-port
  persistence_timeout
  ops
  real_server 10.0.0.3 {
    DNS_CHECK {
      type A
      name example.org
      connect_port 5353
    }
    TCP_CHECK {
    }
  }
}
virtual_server 192.0.2.54 {
  real_server 10.0.0.4 { TCP_CHECK { } }
}
virtual_server group none {
}
`

func TestKeepalived(t *testing.T) {
	balancers, notes := converted(t, configuration)
	web := func(name, addresses, port, endpoints, more, last string) string {
		return fmt.Sprintf(`# line 11: virtual_server group web
metadata:
  name: %s
spec:
  addresses: [%s]
  ports:
    - port: %s
  endpoints:
%s  scheduler: wrr
%s  check: http path=/healthz status=204 server-name=www.example.org port=8080 interval=4s timeout=4s rise=1 fall=3
%s`, name, addresses, port, endpoints, more, last)
	}
	const three = `    - address: 10.0.0.1
      weight: 3
    - address: 10.0.0.2
    - address: 10.0.0.9
      backup: true
`
	want := web("web-80", "192.0.2.10, 192.0.2.20, 192.0.2.21", "80", three, "", "  onAllDown: backup\n  forwarding: route\n") +
		web("web-443", "'2001:db8::8', '2001:db8::9', '2001:db8::a'", "443", "    - address: fd00::1\n", "", "  forwarding: route\n") +
		web("web-0", "192.0.2.30", "1-65535", three, "  affinity: 6m0s\n", "  onAllDown: backup\n") + `# line 43: virtual_server 192.0.2.53 53
metadata:
  name: udp-192-0-2-53-53
spec:
  addresses: [192.0.2.53]
  ports:
    - port: 53
      protocols: [UDP]
  endpoints:
    - address: 10.0.0.3
  scheduler: mh
  schedulerFlags: [mh-port]
  affinity: 6m0s
  check: dns name=example.org port=5353 interval=1m0s timeout=5s rise=1 fall=4
  masquerade: false
# line 59: virtual_server 192.0.2.54
metadata:
  name: udp-192-0-2-54-0
spec:
  addresses: [192.0.2.54]
  ports:
    - port: 1-65535
      protocols: [UDP]
  endpoints:
    - address: 10.0.0.4
  scheduler: wlc
  affinity: 6m0s
  check: tcp interval=1m0s timeout=5s rise=1 fall=2
  masquerade: false
`
	if diff := cmp.Diff(want, specs(balancers)); diff != "" {
		t.Errorf("balancers (-want +got):\n%s", diff)
	}
	const other, kept = ":8080: it is of another family than the virtual address, and nat cannot reach it; it is left out\n",
		":8080: packets by route keep their port, so it serves port "
	const web204, webOther = "(http path=/healthz status=204 server-name=www.example.org port=8080 interval=4s timeout=4s rise=1 fall=3)",
		"(http path=/other status=200-299 server-name=www.example.org port=8080 interval=4s timeout=4s rise=1 fall=3)"
	wantNotes := `2: global_defs: it is no virtual server; it is left out
11: virtual_server group web: Verdict forwards all ports with NAT only; NAT is written, and the endpoints see an address of this machine
18: connect_timeout 9: expected seconds between 100ms and 4s; 4s is written
20: real server 10.0.0.1` + kept + `80
20: real server 10.0.0.1` + other + `29: real server 10.0.0.2` + kept + `80
29: real_server 10.0.0.2 has another check ` + webOther + ` than 10.0.0.1 ` + web204 +
		`: Verdict checks all endpoints of a balancer alike, by the first one
29: real server 10.0.0.2` + other + `35: uthreshold 100 of real_server 10.0.0.2 8080: Verdict has no counterpart
37: real server [fd00::1]` + other + `37: real server [fd00::1]` + kept + `443
40: notify_down /bin/mail -s 'it is down' of real_server fd00::1 8080: Verdict runs no scripts and sends no mail
41: real server 10.0.0.9:80` + other[len(":8080"):] + `48: ops of virtual_server 192.0.2.53 53: Verdict has no counterpart
55: TCP_CHECK: an endpoint has one check; this one is left out
59: virtual_server 192.0.2.54: it has no protocol, or one that keepalived does not know, so it serves UDP
60: check tcp interval=1m0s timeout=5s rise=1 fall=2: it asks port 1, the first one of all ports; add port=NUMBER to the check
62: virtual_server group none: there is no such group; it is left out
`
	if diff := cmp.Diff(wantNotes, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestShapes: what is written of a shape, and what is named.
func TestShapes(t *testing.T) {
	for _, shape := range []struct{ name, balancers, notes string }{
		{"sorry-on-loopback", "endpoints:\n    - address: 10.0.0.1\n    - address: 10.0.0.2\n  scheduler: wrr", `6: sorry_server 127.0.0.1 80: "127.0.0.1" is not`},
		{"sorry-on-loopback", "status=200 interval=6s timeout=3s rise=1 fall=4\n", "15: delay_before_retry 3 of HTTP_GET: Verdict asks again after"},
		{"sorry-by-tunnel", "- address: 10.0.0.1\n  scheduler: rr\n  check: tcp interval=1m0s timeout=5s rise=1 fall=2\n  forwarding: route", "5: real server 10.0.9.9:80: its packets go by tunnel"},
		{"dr-other-port", "- port: 443\n  endpoints:\n    - address: 10.0.0.1\n    - address: 10.0.0.2\n", "5: real server 10.0.0.1:8443: packets by route keep their port"},
		{"dr-other-port", "check: tcp port=8443 ", "9: real server 10.0.0.2:8443: packets by route keep their port"},
		{"tunnel-other-port", "forwarding: tunnel,gue,6080,csum\n", "5: real server 10.0.0.1:8443: packets by tunnel,gue,6080,csum keep their port"},
		{"tunnel-other-port", "- port: 443\n  endpoints:\n    - address: 10.0.0.1\n  scheduler", ""},
		{"own-method", "endpoints:\n    - address: 10.0.0.2\n    - address: 10.0.0.3\n", "5: real server 10.0.0.1:80: its packets go by tunnel, and those of the balancer by route"},
		{"own-method", "forwarding: route\n", ""},
		{"only-own-methods", "endpoints:\n    - address: 10.0.0.1\n    - address: 10.0.0.2\n", ""},
		{"only-own-methods", "forwarding: route\n", ""},
		{"api-servers", "fall=4\n", "5: net_mask 255.255.255.0 of virtual_server 192.0.2.10 6443: convert does not know it"},
		{"no-protocol", "protocols: [UDP]", "1: virtual_server 192.0.2.53 53: it has no protocol"},
		{"no-status", "check: http path=/health status=200-299 ", ""},
		{"many-statuses", "status=200-302 ", "9: status_code 200-204 301 302: a check has one range of statuses; 200-302 is written"},
		{"long-times", "interval=10m0s timeout=10m0s rise=1 fall=100\n", "2: delay_loop 900: expected seconds between 1s and 10m0s; 10m0s is written"},
		{"long-times", "", "4: retry 9999: expected a number up to 99; fall=100 is written"},
		{"long-times", "", "5: delay_before_retry 30 of virtual_server"},
		{"short-times", "interval=1.5s timeout=100ms rise=1 fall=1\n", "2: delay_loop 0.2: expected seconds between 1s and 10m0s; 1s is written"},
		{"short-times", "", "15: delay_before_retry 0.1 of real_server"},
		{"failover-only", "", "12: 192.0.2.66/32 dev lo of vrrp_instance inside: it is left out; verdict run --manage-addresses"},
		{"failover-only", nothing, "15: 2001:db8::66/128 dev lo of vrrp_instance inside"},
		{"definitions", "addresses: [192.0.2.10]", `22: real_server $NOWHERE 80: "$NOWHERE" is not the address of a host`},
		{"definitions", "- address: 10.0.0.1\n      weight: 3\n    - address: 10.0.0.7\n      weight: 30\n", ""},
		{"definitions", "timeout=3s", ""},
		{"byte-order-mark", "addresses: [192.0.2.10]", ""},
		{"carriage-returns", "name: tcp-192-0-2-10-80", ""},
		{"host-with-port", "path=/is%20it/alive status=200 server-name=www.example.org ", "5: virtualhost www.example.org:8080: a check sends a name without a port"},
		{"host-with-port", "", "15: virtualhost not_a/name: server-name="},
		{"host-names", "- address: 10.0.0.1\n", `12: real_server a.example.org 80: "a.example.org" is not`},
		{"all-ports", "- port: 1-65535\n", "1: virtual_server 192.0.2.10: Verdict forwards all ports with NAT only"},
		{"group-two-families", "- address: 10.0.0.1\n    - address: 2001:db8:1::1\n", ""},
		{"port-and-all-ports", "targetPort: 5353\n", "8: virtual_server 192.0.2.10 0: line 1 has 192.0.2.10 and this port, too"},
		{"itself", "", "5: real server 192.0.2.10:80: it is the virtual server itself; it is left out"},
		{"twice", "scheduler: wlc\n  check: tcp interval=6s ", "10: sorry_server 10.0.9.8 80 of virtual_server 192.0.2.10 80: line 11 has it again"},
		{"twice", "weight: 3\n    - address: 10.0.9.9\n      backup: true\n", ""},
	} {
		text, err := os.ReadFile("../../../e2e/samples/shapes/" + shape.name + ".conf")
		if err != nil {
			t.Fatal(err)
		}
		balancers, notes := converted(t, string(text))
		if !strings.Contains(balancers, shape.balancers) || !strings.Contains("\n"+notes, "\n"+shape.notes) {
			t.Errorf("%s: no %q or no %q in\n%s\n%s", shape.name, shape.balancers, shape.notes, balancers, notes)
		}
	}
}

const byMark = "Verdict has no virtual servers by mark; it is left out. A balancer can have several addresses and ranges of ports\n"

// TestOddities: what cannot be converted is named.
func TestOddities(t *testing.T) {
	const empty = "1: virtual_server 192.0.2.1 80: none of its real servers can be used, and keepalived ignores it without one; it is left out\n"
	const udp = "1: virtual_server 192.0.2.1 80: it has no protocol, or one that keepalived does not know, so it serves UDP\n"
	const noHost = "is not the address of a host: expected IPv4 or IPv6, without a zone, not loopback and not link-local; it is left out\n"
	for text, want := range map[string]string{
		"":                                       "",
		"}":                                      "1: }: no block is open\n",
		"virtual_server 192.0.2.1 80 {":          "1: virtual_server 192.0.2.1 80: its block has no end\n" + udp + empty,
		"virtual_server web 80 {\n}":             "1: virtual_server web 80: \"web\" " + noHost,
		"virtual_server fwmark 7 {\n}":           "1: virtual_server fwmark 7: " + byMark,
		"virtual_server 192.0.2.1 80 {\n@a b\n}": udp + empty + "2: @a b of virtual_server 192.0.2.1 80: it depends on how keepalived is started; it is left out\n",
		"virtual_server 192.0.2.1 80 {\nsh_port\n}": udp + empty + "2: sh_port of virtual_server 192.0.2.1 80: convert does not know it; it is left out\n",
		"virtual_server_group g {\nfwmark 9\n}\nvirtual_server group g {\n}\nvirtual_server_group g {\n192.0.2.1 80\n}": "2: fwmark 9 of virtual_server_group g: " +
			byMark + "6: virtual_server_group g: there are two of them; the first one is used\n",
		"-A -t 192.0.2.1 -s rr":                "1: virtual server 192.0.2.1: address 192.0.2.1: missing port in address; it is left out\n",
		"-A -t 127.0.0.1:80 -s rr":             "1: virtual server 127.0.0.1:80: \"127.0.0.1\" " + noHost,
		"-A -t 192.0.2.1:80 -s own":            "1: scheduler own: Verdict has no such scheduler; the default is written\n",
		"-A -t 192.0.2.1:80 -s rr and more":    "1: scheduler rr and more: Verdict has no such scheduler; the default is written\n",
		"-A -t 192.0.2.1:80\n-A -x 1\n":        "2: \"-A -x 1\": not a line of ipvsadm -Sn; it is left out\n",
		"-A -t 192.0.2.1:80\n-A -t [::1]:http": "2: virtual server [::1]:http: \"::1\" " + noHost,
		"-A -t 192.0.2.1:80 -w 1":              "1: -w 1: convert does not know it; it is left out\n",
		"-A -t 192.0.2.1:80\n-a -t 192.0.2.1:80 -r 10.0.0.1:81 -g\n-a -t 192.0.2.1:80 -r 10.0.0.2:80 -m\n-a -t 192.0.2.2:80 -r 10.0.0.1:80": "" +
			"2: real server 10.0.0.1:81: packets by route keep their port, so it serves port 80\n" +
			"3: real server 10.0.0.2:80: its packets go by nat, and those of the balancer by route: Verdict forwards to all endpoints alike; " +
			"it is left out\n4: \"-a -t 192.0.2.2:80 -r 10.0.0.1:80\": not a line of ipvsadm -Sn; it is left out\n",
	} {
		if _, notes := converted(t, text); notes != want {
			t.Errorf("%q: notes %q, want %q", text, notes, want)
		}
	}
}

// TestNeither: what is of neither format fails, and the error says which one is read.
func TestNeither(t *testing.T) {
	for _, text := range []string{
		"IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight " +
			"ActiveConn InActConn\nTCP  192.0.2.1:80 wlc\n  -> 10.0.0.1:80                  Masq    1      0          0\n",
		"-L\n", "-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\n", "apiVersion: v1\nkind: Service\n", "\x7fELF\x00\x01", "ipvsadm -A -t 192.0.2.1:80",
	} {
		var stdout bytes.Buffer
		cmd := New()
		cmd.SetArgs([]string{})
		cmd.SetIn(strings.NewReader(text))
		cmd.SetOut(&stdout)
		cmd.SetErr(&stdout)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "ipvsadm -Sn") || stdout.Len() > 0 {
			t.Errorf("%q: error %v, printed %q", text, err, &stdout)
		}
	}
}

// TestNames: balancers with the same name are told apart.
func TestNames(t *testing.T) {
	const group = "virtual_server_group NAME {\nADDRESS 80\n}\nvirtual_server group NAME {\nprotocol TCP\nreal_server 10.0.0.1 80 {\n}\n}\n"
	text := ""
	for i, name := range []string{"a.b", "a-b", "A b"} {
		text += strings.NewReplacer("NAME", `"`+name+`"`, "ADDRESS", fmt.Sprintf("192.0.2.%d", i)).Replace(group)
	}
	balancers, _ := converted(t, text)
	for _, name := range []string{"name: a-b\n", "name: a-b-2\n", "name: a-b-3\n"} {
		if !strings.Contains(balancers, name) {
			t.Errorf("no %q in\n%s", name, balancers)
		}
	}
}

// FuzzConvert: whatever is read, what is written is accepted.
func FuzzConvert(f *testing.F) {
	f.Add(savedTable)
	f.Add(configuration)
	f.Add("virtual_server_group g {\n 192.0.2.3-10 80\n}\nvirtual_server group g {\n real_server \"10.0.0.1\" '80' {{}\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := convert(text); err == nil {
			expectValid(t, c.text())
			c.report("a")
		}
	})
}
