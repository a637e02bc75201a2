package convert

import (
	"bytes"
	"fmt"
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
9: weight 70000: Verdict has 0 to 65535; 1 is written
10: this real server has another forwarding than those before it: Verdict forwards to all endpoints of a balancer alike, by route
10: real server 10.0.0.1: it is of another family than the virtual address, and nat cannot reach it; it is left out
10: --tun-type ipip: Verdict has no counterpart
11: --pe sip: Verdict has no counterpart
12: -x 100: Verdict has no counterpart
12: -y 50: Verdict has no counterpart
13: firewall mark 7: Verdict has no virtual servers by mark; it is left out. A balancer can have several addresses and ranges of ports
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
	web := func(name, addresses, port, endpoints string) string {
		return fmt.Sprintf(`# line 11: virtual_server group web
metadata:
  name: %s
spec:
  addresses: [%s]
  ports:
    - port: %s
%s  scheduler: wrr
  check: http path=/healthz status=204 server-name=www.example.org port=8080 interval=4s timeout=4s rise=1 fall=3
  onAllDown: backup
  forwarding: route
`, name, addresses, port, endpoints)
	}
	want := strings.ReplaceAll(web("web-80", "192.0.2.10, 192.0.2.20, 192.0.2.21", "80", `  endpoints:
    - address: 10.0.0.1
      port: 8080
      weight: 3
    - address: 10.0.0.2
      port: 8080
    - address: 10.0.0.9
      backup: true
`)+web("web-443", "'2001:db8::8', '2001:db8::9', '2001:db8::a'", "443\n      targetPort: 8080", `  endpoints:
    - address: fd00::1
`), " port=8080", "") + `# line 11: virtual_server group web
metadata:
  name: web-0
spec:
  addresses: [192.0.2.30]
  ports:
    - port: 1-65535
  endpoints:
    - address: 10.0.0.1
      weight: 3
    - address: 10.0.0.2
    - address: 10.0.0.9
      backup: true
  scheduler: wrr
  check: http path=/healthz status=204 server-name=www.example.org interval=4s timeout=4s rise=1 fall=3 port=8080
  onAllDown: backup
  forwarding: route
# line 42: virtual_server 192.0.2.53 53
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
  check: dns name=example.org port=5353 interval=1m0s timeout=5s rise=1 fall=2
  masquerade: false
# line 58: virtual_server 192.0.2.54
metadata:
  name: tcp-192-0-2-54-0
spec:
  addresses: [192.0.2.54]
  ports:
    - port: 1-65535
  endpoints:
    - address: 10.0.0.4
  scheduler: wlc
  check: tcp interval=1m0s timeout=5s rise=1 fall=2
  masquerade: false
`
	if diff := cmp.Diff(want, specs(balancers)); diff != "" {
		t.Errorf("balancers (-want +got):\n%s", diff)
	}
	const other = "it is of another family than the virtual address, and nat cannot reach it; it is left out\n"
	wantNotes := `2: global_defs: it is no virtual server; it is left out
19: real server 10.0.0.1: ` + other + `21: connect_timeout 9s is longer than delay_loop 4s: the timeout of the check is 4s
28: real_server 10.0.0.2 has another check (http path=/other server-name=www.example.org interval=4s timeout=4s rise=1 fall=3) than ` +
		`10.0.0.1 (http path=/healthz status=204 server-name=www.example.org interval=4s timeout=4s rise=1 fall=3): ` +
		`Verdict checks all endpoints of a balancer alike, by the first one
28: real server 10.0.0.2: ` + other + `29: connect_timeout 9s is longer than delay_loop 4s: the timeout of the check is 4s
34: uthreshold 100 of real_server 10.0.0.2: Verdict has no counterpart
36: real server fd00::1: ` + other + `37: connect_timeout 9s is longer than delay_loop 4s: the timeout of the check is 4s
39: notify_down /bin/mail -s 'it is down' of real_server fd00::1: Verdict has no counterpart
40: real server 10.0.0.9: ` + other + `47: ops of virtual_server 192.0.2.53 53: Verdict has no counterpart
54: TCP_CHECK: an endpoint has one check; this one is left out
59: check tcp interval=1m0s timeout=5s rise=1 fall=2: it asks port 1, the first one of all ports; add port=NUMBER to the check
61: virtual_server group none: there is no such group; it is left out
`
	if diff := cmp.Diff(wantNotes, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

const byMark = "Verdict has no virtual servers by mark; it is left out. A balancer can have several addresses and ranges of ports\n"

// TestOddities: what is no configuration is named, and nothing is written.
func TestOddities(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"}":                             "1: }: no block is open\n",
		"virtual_server 192.0.2.1 80 {": "1: virtual_server 192.0.2.1 80: its block has no end\n",
		"virtual_server web 80 {\n}":    "1: virtual_server web 80: \"web\" is not an address; it is left out\n",
		"-A -t 192.0.2.1 -s rr":         "1: 192.0.2.1: expected an address and a port; the virtual server is left out\n",
		"virtual_server fwmark 7 {\n}":  "1: firewall mark 7: " + byMark,
		"virtual_server_group g {\nfwmark 9\n}\nvirtual_server group g {\n}": "2: firewall mark 9: " + byMark,
		"-A -t 192.0.2.1:80 -s own":              "1: scheduler own: Verdict has no such scheduler; the default is written\n",
		"-L":                                     "1: \"-L\": not a line of ipvsadm -Sn; it is left out\n",
		"-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m":   "1: \"-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\": not a line of ipvsadm -Sn; it is left out\n",
		"-A -t 192.0.2.1:80\n-A -x 1\n":          "2: \"-A -x 1\": not a line of ipvsadm -Sn; it is left out\n",
		"virtual_server 192.0.2.1 80 {\n@a b\n}": "2: @a b: depends on how keepalived is started; it is left out\n",
	} {
		if _, notes := converted(t, text); notes != want {
			t.Errorf("%q: notes %q, want %q", text, notes, want)
		}
	}
}

// TestNames: virtual servers with the same address are told apart.
func TestNames(t *testing.T) {
	const one = "virtual_server 192.0.2.1 80 {\n}\n"
	balancers, _ := converted(t, strings.Repeat(one, 3))
	for _, name := range []string{"name: tcp-192-0-2-1-80\n", "name: tcp-192-0-2-1-80-2\n", "name: tcp-192-0-2-1-80-3\n"} {
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
		c := convert(text)
		expectValid(t, c.text())
		c.report("a")
	})
}
