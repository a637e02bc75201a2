package convert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func wantService(changes ...func(*state.Service)) *state.Service {
	s := &state.Service{
		Name:       state.Name{Namespace: "shop", Name: "web"},
		Created:    time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
		ClusterIPs: sourcetest.Addrs("10.96.0.10", "fd00::10"),
		Ports:      []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}
	for _, c := range changes {
		c(s)
	}
	return s
}

// TestService has one row for each valid value of a field.
func TestService(t *testing.T) {
	for _, tt := range []struct {
		name string
		api  func(*corev1.Service)
		want func(*state.Service)
	}{
		{"plain", func(*corev1.Service) {}, func(*state.Service) {}},
		{"cluster IP without the list", func(o *corev1.Service) { o.Spec.ClusterIPs = nil },
			func(s *state.Service) { s.ClusterIPs = sourcetest.Addrs("10.96.0.10") }},
		{"list without the cluster IP", func(o *corev1.Service) { o.Spec.ClusterIP = "" }, func(*state.Service) {}},
		{"never created", func(o *corev1.Service) { o.CreationTimestamp = metav1.Time{} },
			func(s *state.Service) { s.Created = time.Time{} }},
		{"leading zeros", func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"192.000.002.010"} },
			func(s *state.Service) { s.ExternalIPs = sourcetest.Addrs("192.0.2.10") }},
		{"IPv4 in IPv6", func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"::ffff:192.0.2.10", "192.0.2.10"} },
			func(s *state.Service) { s.ExternalIPs = sourcetest.Addrs("192.0.2.10") }},
		{"unusual IPv6", func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"2001:DB8:0:0::0001"} },
			func(s *state.Service) { s.ExternalIPs = sourcetest.Addrs("2001:db8::1") }},
		{"protocols share a number", func(o *corev1.Service) {
			o.Spec.Ports = []corev1.ServicePort{
				{Name: "dns", Protocol: "UDP", Port: 53}, {Name: "dns-tcp", Protocol: "TCP", Port: 53},
				{Name: "sctp", Protocol: "SCTP", Port: 53, NodePort: 30053},
			}
		}, func(s *state.Service) {
			s.Ports = []state.ServicePort{
				{Name: "dns", Protocol: state.UDP, Port: 53}, {Name: "dns-tcp", Protocol: state.TCP, Port: 53},
				{Name: "sctp", Protocol: state.SCTP, Port: 53, NodePort: 30053},
			}
		}},
		{"protocols share a node port", func(o *corev1.Service) {
			o.Spec.Ports = []corev1.ServicePort{
				{Name: "u", Protocol: "UDP", Port: 53, NodePort: 30053}, {Name: "t", Protocol: "TCP", Port: 53, NodePort: 30053},
			}
		}, func(s *state.Service) {
			s.Ports = []state.ServicePort{
				{Name: "u", Protocol: state.UDP, Port: 53, NodePort: 30053}, {Name: "t", Protocol: state.TCP, Port: 53, NodePort: 30053},
			}
		}},
		{"port ranges", func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationPortRanges: " 53-60, 8000-65535"}
			o.Spec.Ports = []corev1.ServicePort{
				{Name: "u", Protocol: "UDP", Port: 53}, {Name: "t", Protocol: "TCP", Port: 53}, {Name: "x", Protocol: "TCP", Port: 80},
				{Name: "h", Protocol: "TCP", Port: 8000},
			}
		}, func(s *state.Service) {
			s.Ports = []state.ServicePort{
				{Name: "u", Protocol: state.UDP, Port: 53, EndPort: 60}, {Name: "t", Protocol: state.TCP, Port: 53, EndPort: 60},
				{Name: "x", Protocol: state.TCP, Port: 80}, {Name: "h", Protocol: state.TCP, Port: 8000, EndPort: 65535},
			}
		}},
		{"no protocol is TCP", func(o *corev1.Service) { o.Spec.Ports[0].Protocol = "" }, func(*state.Service) {}},
		{"load balancer", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o,
				corev1.LoadBalancerIngress{IP: "198.51.100.1"},
				corev1.LoadBalancerIngress{IP: "198.51.100.2", IPMode: new(corev1.LoadBalancerIPModeVIP)},
				corev1.LoadBalancerIngress{IP: "198.51.100.3", IPMode: new(corev1.LoadBalancerIPModeProxy)},
				corev1.LoadBalancerIngress{Hostname: "lb.example.com"},
				corev1.LoadBalancerIngress{IP: "2001:db8::1"},
				corev1.LoadBalancerIngress{IP: "198.51.100.1"})
		}, func(s *state.Service) {
			s.LoadBalancerIPs = sourcetest.Addrs("198.51.100.1", "198.51.100.2", "2001:db8::1")
		}},
		{"source ranges", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o, corev1.LoadBalancerIngress{IP: "198.51.100.1"})
			o.Spec.LoadBalancerSourceRanges = []string{" 10.0.0.0/8", "192.0.2.7/24 ", "2001:db8::/32", "010.0.0.0/8", "::ffff:172.16.0.0/108"}
		}, func(s *state.Service) {
			s.LoadBalancerIPs = sourcetest.Addrs("198.51.100.1")
			s.SourceRanges = sourcetest.Prefixes("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32", "172.16.0.0/12")
		}},
		{"external policy Local", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
			o.Spec.HealthCheckNodePort = 31000 // from the time when it was a load balancer
		}, func(s *state.Service) { s.ExternalLocal = true }},
		{"external policy Local with external IPs only", func(o *corev1.Service) {
			o.Spec.ExternalIPs, o.Spec.ExternalTrafficPolicy = []string{"192.0.2.1"}, corev1.ServiceExternalTrafficPolicyLocal
		}, func(s *state.Service) { s.ExternalIPs, s.ExternalLocal = sourcetest.Addrs("192.0.2.1"), true }},
		{"external policy Local, not reachable from outside", func(o *corev1.Service) {
			o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, func(*state.Service) {}},
		{"health check", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o)
			o.Spec.ExternalTrafficPolicy, o.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
		}, func(s *state.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 31000 }},
		{"no health check with policy Cluster", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o)
			o.Spec.ExternalTrafficPolicy, o.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyCluster, 31000
		}, func(*state.Service) {}},
		{"internal policy Local", func(o *corev1.Service) { o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) },
			func(s *state.Service) { s.InternalLocal = true }},
		{"internal policy Cluster", func(o *corev1.Service) {
			o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
		},
			func(*state.Service) {}},
		{"affinity", func(o *corev1.Service) {
			o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(86400))}}
		}, func(s *state.Service) { s.Affinity = 24 * time.Hour }},
		{"affinity by default", func(o *corev1.Service) { o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			func(s *state.Service) { s.Affinity = 3 * time.Hour }},
		{"affinity None", func(o *corev1.Service) { o.Spec.SessionAffinity = corev1.ServiceAffinityNone }, func(*state.Service) {}},
		{"scheduler", func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationScheduler: " mh ", annotationSchedulerRouter: "lc", annotationSchedulerFlags: "mh-port"}
		}, func(s *state.Service) { s.Balancing = state.Balancing{Scheduler: "mh", Flags: "mh-port"} }},
		{"kube-router's scheduler", func(o *corev1.Service) { o.Annotations = map[string]string{annotationSchedulerRouter: "lc"} },
			func(s *state.Service) { s.Balancing.Scheduler = "lc" }},
		{"forwarding", func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationForwarding: "tunnel,gue,6081,csum"}
		},
			func(s *state.Service) { s.Balancing.Forwarding = state.Tunnel + ",gue,6081,csum" }},
		{"outlier detection", func(o *corev1.Service) { o.Annotations = map[string]string{annotationOutliers: "refusals, observe"} },
			func(s *state.Service) {
				s.Outliers = state.OutlierDetection{Mode: state.OutlierObserve, Refusals: true}
			}},
		{"outlier detection off", func(o *corev1.Service) { o.Annotations = map[string]string{annotationOutliers: "off"} },
			func(s *state.Service) { s.Outliers.Mode = state.OutlierOff }},
		{"health check", func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationHealthCheck: "tcp interval=2s", annotationAllDown: "backup"}
		}, func(s *state.Service) {
			s.Check = &state.HealthCheck{Kind: state.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
			s.AllDown = state.BackupOnly
		}},
		{"open connections of removed endpoints are reset", func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationOnRemoval: "reset"}
		}, func(s *state.Service) { s.OnRemoval = state.ResetThose }},
		{"health check off", func(o *corev1.Service) { o.Annotations = map[string]string{annotationHealthCheck: "off"} },
			func(s *state.Service) { s.Check = &state.HealthCheck{} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := New().Service(sourcetest.Service(tt.api))
			if diff := cmp.Diff(wantService(tt.want), got, sourcetest.CompareValues); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
			if len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
		})
	}
}

func TestServiceNotServed(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"headless":             func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "None", []string{"None"} },
		"headless by the list": func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "", []string{"None"} },
		"no cluster IP yet":    func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil },
		"ExternalName with a cluster IP": func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		},
		"of another proxy":               func(o *corev1.Service) { o.Labels = map[string]string{LabelProxyName: "other"} },
		"of another proxy without value": func(o *corev1.Service) { o.Labels = map[string]string{LabelProxyName: ""} },
	} {
		t.Run(name, func(t *testing.T) {
			if got, problems := New().Service(sourcetest.Service(change)); got != nil || problems != nil {
				t.Errorf("got %v with problems %v, want neither", got, problems)
			}
		})
	}
}

// problem is the part of a Problem in which the rows of a table differ.
type problem struct{ Field, Reason string }

func checkProblems(t *testing.T, kind string, object state.Name, want []problem, got []state.Problem) {
	t.Helper()
	var full []state.Problem
	for _, p := range want {
		full = append(full, state.Problem{Kind: kind, Object: object, Field: p.Field, Reason: p.Reason})
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

type malformed struct {
	name     string
	api      func(*corev1.Service)
	want     func(*state.Service)
	problems []problem
}

// portRanges is a row of TestMalformedService with this value of the annotation.
func portRanges(value, reason string) malformed {
	return malformed{"port ranges " + value, func(o *corev1.Service) { o.Annotations = map[string]string{annotationPortRanges: value} },
		func(*state.Service) {},
		[]problem{{state.AnnotationField(annotationPortRanges), reason + ": the annotation is ignored, and its ports are no ranges"}}}
}

// TestMalformedService has one row for each field that can be malformed. It checks what remains and what is reported.
func TestMalformedService(t *testing.T) {
	for _, tt := range []malformed{
		{"cluster IPs", func(o *corev1.Service) {
			o.Spec.ClusterIPs = []string{"10.96.0.300", "fd00::10", "0.0.0.0", "ff02::1", "fe80::1%eth0", ""}
		},
			func(s *state.Service) { s.ClusterIPs = sourcetest.Addrs("fd00::10") },
			[]problem{
				{"spec.clusterIPs[0]", `"10.96.0.300" is not an IP address`},
				{"spec.clusterIPs[2]", `"0.0.0.0" is the unspecified address`},
				{"spec.clusterIPs[3]", `"ff02::1" is a multicast address`},
				{"spec.clusterIPs[4]", `"fe80::1%eth0" has a zone`},
				{"spec.clusterIPs[5]", `"" is not an IP address`},
			}},
		{"cluster IP", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "tomorrow", nil },
			func(s *state.Service) { s.ClusterIPs = nil },
			[]problem{{"spec.clusterIP", `"tomorrow" is not an IP address`}}},
		portRanges("80", `"80" is not a range such as 5000-6000`),
		portRanges("80-x", `"80-x" is not a port from 1 to 65535, or a range such as 5000-6000`),
		portRanges("80-65536", `"80-65536" is not a port from 1 to 65535, or a range such as 5000-6000`),
		portRanges("80-80", `the last port of "80-80" must be higher than the first one`),
		portRanges("80-81,80-82", "port 80 begins two ranges"),
		portRanges("80-90,81-82", `the Service has no port 81, which would be the first one of "81-82"`),
		{"outlier detection", func(o *corev1.Service) { o.Annotations = map[string]string{annotationOutliers: "eject,maybe"} },
			func(*state.Service) {},
			[]problem{{state.AnnotationField(annotationOutliers),
				`"eject,maybe" is not off, observe or eject, with or without ",refusals": --outlier-detection decides`}}},
		{"health check", func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationHealthCheck: "http interval=1ms", annotationAllDown: "drop", annotationOnRemoval: "cut"}
		}, func(*state.Service) {}, []problem{
			{state.AnnotationField(annotationHealthCheck), `interval="1ms" is not a time from 1s to 10m0s: the annotation is ignored`},
			{state.AnnotationField(annotationAllDown), `"drop" is not keep, reject or backup: keep is used`},
			{state.AnnotationField(annotationOnRemoval), `"cut" is not keep or reset: keep is used`},
		}},
		{"external IPs", func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"192.0.2.1/32", "192.0.2.1", "224.0.0.1", "::"} },
			func(s *state.Service) { s.ExternalIPs = sourcetest.Addrs("192.0.2.1") },
			[]problem{
				{"spec.externalIPs[0]", `"192.0.2.1/32" is not an IP address`},
				{"spec.externalIPs[2]", `"224.0.0.1" is a multicast address`},
				{"spec.externalIPs[3]", `"::" is the unspecified address`},
			}},
		{"external IPs that stay on this node or link", func(o *corev1.Service) {
			o.Spec.ExternalIPs = []string{"127.0.0.1", "169.254.169.254", "255.255.255.255", "fe80::1", "::1", "::ffff:127.0.0.2", "192.0.2.1"}
		}, func(s *state.Service) { s.ExternalIPs = sourcetest.Addrs("192.0.2.1") },
			[]problem{
				{"spec.externalIPs[0]", `"127.0.0.1" is a loopback address: it is not served`},
				{"spec.externalIPs[1]", `"169.254.169.254" is a link-local address: it is not served`},
				{"spec.externalIPs[2]", `"255.255.255.255" is the broadcast address: it is not served`},
				{"spec.externalIPs[3]", `"fe80::1" is a link-local address: it is not served`},
				{"spec.externalIPs[4]", `"::1" is a loopback address: it is not served`},
				{"spec.externalIPs[5]", `"::ffff:127.0.0.2" is a loopback address: it is not served`},
			}},
		{"ingress", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o, corev1.LoadBalancerIngress{IP: "lb.example.com"}, corev1.LoadBalancerIngress{IP: "198.51.100.1"})
		}, func(s *state.Service) { s.LoadBalancerIPs = sourcetest.Addrs("198.51.100.1") },
			[]problem{{"status.loadBalancer.ingress[0].ip", `"lb.example.com" is not an IP address`}}},
		{"some source ranges", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o, corev1.LoadBalancerIngress{IP: "198.51.100.1"})
			o.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0", "10.0.0.0/33", "::ffff:10.0.0.0/64", "10.0.0.0/8"}
		}, func(s *state.Service) {
			s.LoadBalancerIPs, s.SourceRanges = sourcetest.Addrs("198.51.100.1"), sourcetest.Prefixes("10.0.0.0/8")
		},
			[]problem{
				{"spec.loadBalancerSourceRanges[0]", `"10.0.0.0" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`},
				{"spec.loadBalancerSourceRanges[1]", `"10.0.0.0/33" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`},
				{"spec.loadBalancerSourceRanges[2]", `"::ffff:10.0.0.0/64" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`},
			}},
		{"all source ranges", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o, corev1.LoadBalancerIngress{IP: "198.51.100.1"})
			o.Spec.LoadBalancerSourceRanges = []string{"office"}
		}, func(s *state.Service) { s.LoadBalancerIPs, s.NoSource = sourcetest.Addrs("198.51.100.1"), true },
			[]problem{
				{"spec.loadBalancerSourceRanges[0]", `"office" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`},
				{"spec.loadBalancerSourceRanges", "no range is valid: packets to the load balancer addresses are dropped, because otherwise these would be open to everyone"},
			}},
		{"port numbers", func(o *corev1.Service) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "zero"}, corev1.ServicePort{Name: "big", Port: 65536},
				corev1.ServicePort{Name: "negative", Port: -1})
		}, func(*state.Service) {},
			[]problem{
				{"spec.ports[1].port", "0 is not a port number (1 to 65535)"},
				{"spec.ports[2].port", "65536 is not a port number (1 to 65535)"},
				{"spec.ports[3].port", "-1 is not a port number (1 to 65535)"},
			}},
		{"protocol", func(o *corev1.Service) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "x", Protocol: "tcp", Port: 81}, corev1.ServicePort{Name: "y", Protocol: "ICMP", Port: 0})
		}, func(*state.Service) {},
			[]problem{
				{"spec.ports[1].protocol", `"tcp" is not one of TCP, UDP and SCTP`},
				{"spec.ports[2].protocol", `"ICMP" is not one of TCP, UDP and SCTP`},
				{"spec.ports[2].port", "0 is not a port number (1 to 65535)"},
			}},
		{"node port", func(o *corev1.Service) { o.Spec.Ports[0].NodePort = 70000 }, func(*state.Service) {},
			[]problem{{"spec.ports[0].nodePort", "70000 is not a port number (1 to 65535)"}}},
		{"port twice", func(o *corev1.Service) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "again", Port: 80})
		},
			func(*state.Service) {},
			[]problem{{"spec.ports[1].port", "tcp port 80 occurs twice: the first one is used"}}},
		{"port name twice", func(o *corev1.Service) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "http", Port: 81})
		},
			func(*state.Service) {},
			[]problem{{"spec.ports[1].name", `tcp port name "http" occurs twice: the first one is used`}}},
		{"port name that ends a line", func(o *corev1.Service) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "x\"\n\x1b[2J", Port: 81}, corev1.ServicePort{Name: "c:d", Port: 82})
		}, func(*state.Service) {},
			[]problem{
				{"spec.ports[1].name", `"x\"\n\x1b[2J" is not a DNS label: the port is not used`},
				{"spec.ports[2].name", `"c:d" is not a DNS label: the port is not used`},
			}},
		{"port names that only protocols tell apart", func(o *corev1.Service) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolUDP, Port: 80}, corev1.ServicePort{Port: 81})
		}, func(s *state.Service) {
			s.Ports = append(s.Ports, state.ServicePort{Name: "http", Protocol: state.UDP, Port: 80}, state.ServicePort{Protocol: state.TCP, Port: 81})
		},
			[]problem{
				{"spec.ports[1].name", `"http" occurs twice: an API server accepts a name only once, whatever the protocol; the port is served`},
				{"spec.ports[2].name", "missing: an API server accepts a port without a name only as the only port; the port is served"},
			}},
		{"node port twice", func(o *corev1.Service) {
			o.Spec.Ports[0].NodePort = 30080
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "alt", Port: 81, NodePort: 30080})
		}, func(s *state.Service) {
			s.Ports[0].NodePort = 30080
			s.Ports = append(s.Ports, state.ServicePort{Name: "alt", Protocol: state.TCP, Port: 81})
		}, []problem{{"spec.ports[1].nodePort", "tcp node port 30080 occurs twice: the first one is used"}}},
		{"health check port", func(o *corev1.Service) {
			sourcetest.LoadBalancer(o)
			o.Spec.ExternalTrafficPolicy, o.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 99999
		}, func(s *state.Service) { s.ExternalLocal = true },
			[]problem{{"spec.healthCheckNodePort", "99999 is not a port number (1 to 65535)"}}},
		{"affinity too short", affinityOf(0), func(s *state.Service) { s.Affinity = 3 * time.Hour },
			[]problem{{"spec.sessionAffinityConfig.clientIP.timeoutSeconds", "0 is outside 1 to 86400: the default 10800 is used"}}},
		{"affinity too long", affinityOf(86401), func(s *state.Service) { s.Affinity = 3 * time.Hour },
			[]problem{{"spec.sessionAffinityConfig.clientIP.timeoutSeconds", "86401 is outside 1 to 86400: the default 10800 is used"}}},
		{"affinity unknown", func(o *corev1.Service) { o.Spec.SessionAffinity = "Cookie" }, func(*state.Service) {},
			[]problem{{"spec.sessionAffinity", `"Cookie" is not ClientIP or None: None is used`}}},
		{"policies", func(o *corev1.Service) {
			o.Spec.ExternalTrafficPolicy, o.Spec.InternalTrafficPolicy = "local", new(corev1.ServiceInternalTrafficPolicy("local"))
		}, func(*state.Service) {},
			[]problem{
				{"spec.internalTrafficPolicy", `"local" is not Cluster or Local: Cluster is used`},
				{"spec.externalTrafficPolicy", `"local" is not Cluster or Local: Cluster is used`},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := New().Service(sourcetest.Service(tt.api))
			if diff := cmp.Diff(wantService(tt.want), got, sourcetest.CompareValues); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
			checkProblems(t, KindService, wantService().Name, tt.problems, problems)
		})
	}
}

func affinityOf(seconds int32) func(*corev1.Service) {
	return func(o *corev1.Service) {
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

func TestServiceWithoutName(t *testing.T) {
	got, problems := New().Service(sourcetest.Service(func(o *corev1.Service) { o.Name = "" }))
	if got != nil {
		t.Errorf("got %v", got)
	}
	checkProblems(t, KindService, state.Name{Namespace: "shop"},
		[]problem{{"metadata.name", "missing: the object is ignored"}}, problems)
}
