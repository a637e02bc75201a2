package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestBackupsAndSilence: which endpoints get connections when primaries and backups are silent, drain or fail.
func TestBackupsAndSilence(t *testing.T) {
	const share = 50
	for _, tt := range []struct {
		name             string
		primary, backup  []string
		failed, silent   string // last numbers of addresses; the first of the silent ones was silent first
		ejected          int
		allDown          state.AllDown
		want, wantBackup string
	}{
		{"silent primaries, and one drains", []string{"1", "2", "3 draining"}, nil, "", "1 2", share, 0, "2", ""},
		{"a good backup is better than a silent primary and one that drains",
			[]string{"1", "2", "3 draining"}, []string{"8"}, "", "1 2", share, 0, "", "8"},
		{"a failed backup is not", []string{"1", "2", "3 draining"}, []string{"8"}, "8", "1 2", share, 0, "2", ""},
		{"a backup that is not ready is not", []string{"1", "2", "3 draining"}, []string{"8 notready"}, "", "1 2", share, 0, "2", ""},
		{"one primary is good", []string{"1", "2", "3 draining"}, []string{"8"}, "", "1", share, 0, "2", ""},
		{"of the backups, a share", []string{"1"}, []string{"7", "8", "9"}, "1", "9 7", share, 0, "", "7 8"},
		{"all backups are silent", []string{"1"}, []string{"8", "9"}, "1", "8 9", share, 0, "1", ""},
		{"all backups are silent, and backups are asked for", []string{"1"}, []string{"8", "9"}, "1", "8 9", share, state.BackupOnly, "", "8 9"},
		{"only a backup that drains is good", []string{"1"}, []string{"8 draining", "9"}, "1 9", "", share, 0, "", "8"},
		{"all fail and drain", []string{"1 draining"}, []string{"9 draining"}, "1 9", "", share, 0, "1", ""},
		{"all fail and drain, and backups are asked for", []string{"1 draining"}, []string{"9 draining"}, "1 9", "", share, state.BackupOnly, "", "9"},
		{"backups fail and drain", nil, []string{"9 draining"}, "9", "", share, 0, "", "9"},
		{"primaries fail and drain, and backups are asked for", []string{"1 draining"}, nil, "1", "", share, state.BackupOnly, "1", ""},
		{"primaries fail, and backups are asked for", []string{"1", "2 draining"}, nil, "1 2", "", share, state.BackupOnly, "1", ""},
		{"all fail", []string{"1"}, []string{"9"}, "1 9", "", share, 0, "1", ""},
		{"only backups, and all fail", nil, []string{"9"}, "9", "", share, 0, "", "9"},
		{"what is not ready has no part in the share", []string{"1 notready", "2", "3", "4"}, nil, "", "1 2", share, 0, "3 4", ""},
		{"one of two", []string{"1", "2"}, nil, "", "1", 1, 0, "2", ""},
		{"never the last one", []string{"1", "2", "3"}, nil, "", "3 1", 100, 0, "2", ""},
		{"a third of six", []string{"1", "2", "3", "4", "5", "6"}, nil, "", "6 5 4 3", 34, 0, "1 2 3 4", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := func(numbers []string) (lines []string) {
				for _, n := range numbers {
					lines = append(lines, "10.0.0."+n)
				}
				return lines
			}
			p := Planner{MaxEjected: tt.ejected}
			p.Health = slices.Concat(fails(true, at(strings.Fields(tt.failed))...), fails(false, at(strings.Fields(tt.silent))...))
			slices.SortFunc(p.Health, state.Failure.Compare)
			list := []*state.Slice{slice("a", at(tt.primary)...), ofBackups(slice("b", at(tt.backup)...))}
			got := p.Plan(service(func(s *state.Service) { s.AllDown = tt.allDown }), list, environment())
			var primaries, backups []string
			for _, e := range portOf(t, got, state.IPv4, "shop/web:http").Cluster {
				if number := strings.TrimPrefix(e.Addr.Addr().String(), "10.0.0."); slices.ContainsFunc(tt.backup, func(b string) bool { return strings.Fields(b)[0] == number }) {
					backups = append(backups, number)
				} else {
					primaries = append(primaries, number)
				}
			}
			equal(t, "primaries", strings.Join(primaries, " "), tt.want)
			equal(t, "backups", strings.Join(backups, " "), tt.wantBackup)
		})
	}
}

// TestHealthOfOneEndpoint: a failure counts for the endpoint that has failed, and for none that only resembles it.
func TestHealthOfOneEndpoint(t *testing.T) {
	list := []*state.Slice{
		slice("a", "10.0.0.1", "10.0.0.2"), numbered(9090, slice("b", "10.0.0.1")),
		slice("c", "::a00:1", "fd00::1", "fd00:0:0:1::1"), numbered(9090, slice("d", "fd00::1")),
	}
	for at, want := range map[string]string{
		"10.0.0.1:8080":             "10.0.0.1:9090 10.0.0.2:8080 [::a00:1]:8080 [fd00::1]:8080 [fd00::1]:9090 [fd00:0:0:1::1]:8080",
		"10.0.0.1:9090":             "10.0.0.1:8080 10.0.0.2:8080 [::a00:1]:8080 [fd00::1]:8080 [fd00::1]:9090 [fd00:0:0:1::1]:8080",
		"[::a00:1]:8080":            "10.0.0.1:8080 10.0.0.1:9090 10.0.0.2:8080 [fd00::1]:8080 [fd00::1]:9090 [fd00:0:0:1::1]:8080",
		"[fd00::1]:8080":            "10.0.0.1:8080 10.0.0.1:9090 10.0.0.2:8080 [::a00:1]:8080 [fd00::1]:9090 [fd00:0:0:1::1]:8080",
		"[fd00:0:0:1::1]:8080":      "10.0.0.1:8080 10.0.0.1:9090 10.0.0.2:8080 [::a00:1]:8080 [fd00::1]:8080 [fd00::1]:9090",
		"10.0.0.1:8080 but for UDP": "10.0.0.1:8080 10.0.0.1:9090 10.0.0.2:8080 [::a00:1]:8080 [fd00::1]:8080 [fd00::1]:9090 [fd00:0:0:1::1]:8080",
	} {
		text, udp := strings.CutSuffix(at, " but for UDP")
		f := state.Failure{At: netip.MustParseAddrPort(text), Protocol: state.TCP, Sure: true}
		if udp {
			f.Protocol = state.UDP
		}
		p := Planner{Health: state.Health{f}}
		got := p.Plan(service(nil), list, environment())
		is := show(slices.Concat(got.Ports[0].Cluster, got.Ports[1].Cluster))
		equal(t, "without "+at, is, want)
	}
}

// TestUses: of an endpoint that several ports have, the first use counts that holds for any of them.
func TestUses(t *testing.T) {
	svc := service(func(s *state.Service) {
		s.InternalLocal, s.ClusterIPs = true, s.ClusterIPs[:1]
		s.Ports = []state.ServicePort{
			{Name: "in", Protocol: state.TCP, Port: 80}, {Name: "out", Protocol: state.TCP, Port: 81, NodePort: 30080},
			{Name: "dns", Protocol: state.UDP, Port: 53},
		}
	})
	list := slice("a", "10.0.0.1 @node-a", "10.0.0.2")
	list.Ports = []state.SlicePort{
		{Name: "in", Protocol: state.TCP, Port: 8080}, {Name: "out", Protocol: state.TCP, Port: 8080}, {Name: "dns", Protocol: state.UDP, Port: 8080},
	}
	text := func(p Planner, list ...*state.Slice) (lines []string) {
		for _, c := range p.Plan(svc, list, environment()).Choices {
			lines = append(lines, fmt.Sprint(c.At, " ", c.Protocol, " ", c.Use, " ", c.Local))
		}
		return lines
	}
	equal(t, "all are good", text(Planner{Watched: true}, list), []string{
		fmt.Sprint("10.0.0.1:8080 ", state.TCP, " ", InUse, " true"), fmt.Sprint("10.0.0.1:8080 ", state.UDP, " ", InUse, " true"),
		fmt.Sprint("10.0.0.2:8080 ", state.TCP, " ", InUse, " false"), fmt.Sprint("10.0.0.2:8080 ", state.UDP, " ", Idle, " false"),
	})
	equal(t, "all fail at TCP", text(Planner{Health: fails(true, "10.0.0.1", "10.0.0.2")}, list), []string{
		fmt.Sprint("10.0.0.1:8080 ", state.TCP, " ", KeptLast, " true"), fmt.Sprint("10.0.0.1:8080 ", state.UDP, " ", InUse, " true"),
		fmt.Sprint("10.0.0.2:8080 ", state.TCP, " ", KeptLast, " false"), fmt.Sprint("10.0.0.2:8080 ", state.UDP, " ", Idle, " false"),
	})
}

// TestFatesOfHealth: why an endpoint is in no pool when others of its Service fail, or are backups.
func TestFatesOfHealth(t *testing.T) {
	for _, tt := range []struct {
		name            string
		primary, backup []string
		failed          string
		allDown         state.AllDown
		want            string // for policy Cluster
	}{
		{"one fails", []string{"1", "2"}, nil, "1", 0, "1: not good; 2: "},
		{"a good primary", []string{"1"}, []string{"8"}, "", 0, "1: ; 8: a backup, and another endpoint is good"},
		{"a good backup", []string{"1"}, []string{"8"}, "1", 0, "1: not good; 8: "},
		{"all fail", []string{"1"}, []string{"8"}, "1 8", 0, "1: ; 8: a backup, and another endpoint is good"},
		{"all fail, and backups are asked for", []string{"1"}, []string{"8"}, "1 8", state.BackupOnly, "1: not a backup, and no endpoint is good; 8: "},
		{"all fail, and get nothing", []string{"1"}, []string{"8"}, "1 8", state.RefuseAll,
			"1: not good, and on-all-down is reject; 8: not good, and on-all-down is reject"},
		{"hints", []string{"1 node=node-a", "2 node=node-b,node-c"}, nil, "", 0, "1: ; 2: its hints are for other nodes: node-b, node-c"},
		{"one drains", []string{"1", "2 draining", "3 gone", "4 notready"}, nil, "", 0,
			"1: ; 2: terminating, while others are ready; 3: terminating and not serving; 4: not ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := func(numbers []string) (lines []string) {
				for _, n := range numbers {
					lines = append(lines, "10.0.0."+n)
				}
				return lines
			}
			p := Planner{Health: fails(true, at(strings.Fields(tt.failed))...)}
			svc := service(func(s *state.Service) { s.AllDown = tt.allDown })
			list := []*state.Slice{slice("a", at(tt.primary)...), ofBackups(slice("b", at(tt.backup)...))}
			var lines []string
			for _, f := range p.Fates(svc, list, environment()) {
				lines = append(lines, strings.TrimPrefix(f.Addr.Addr().String(), "10.0.0.")+": "+f.OutOfCluster)
				equal(t, "protocol", f.Protocol, state.TCP)
			}
			equal(t, "fates", strings.Join(lines, "; "), tt.want)
		})
	}
}
