package snapshot

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/program"
)

// troubled is a daemon that knows a failing endpoint of each of many Services.
type troubled int

func (n troubled) Outliers() (list []socket.Outlier, err error) {
	for i := range int(n) {
		list = append(list, socket.Outlier{Services: []string{fmt.Sprintf("shop/web-%03d", i)}})
	}
	return list, nil
}

func (n troubled) Endpoints(service string) ([]socket.Endpoint, error) {
	return []socket.Endpoint{{Port: service + ":http", Addr: "10.0.2.1:80", Remark: "fails its check", NoNew: true}}, nil
}

// marked lists Services of a daemon that has trouble with many, and returns how many of them are marked.
func marked(t *testing.T, services ...int) (n int, notes []string) {
	t.Helper()
	var tab Table
	for _, i := range services {
		tab.Frontends = append(tab.Frontends, Frontend{Service: fmt.Sprintf("shop/web-%03d:http", i), Family: "IPv4"})
	}
	tab.noteOutliers(troubled(maxWatched + 50))
	for _, fe := range tab.Frontends {
		if len(fe.Endpoints) == 1 && fe.Endpoints[0].Outlier == "fails its check" {
			n++
		}
	}
	return n, tab.Notes
}

// TestManyOutliers: a Service that is listed is marked, however many others have trouble. A list with too many of them
// says so.
func TestManyOutliers(t *testing.T) {
	if n, notes := marked(t, maxWatched+49); n != 1 || len(notes) > 0 {
		t.Errorf("one Service is listed: %d marked, %q", n, notes)
	}
	all := make([]int, maxWatched+50)
	for i := range all {
		all[i] = i
	}
	n, notes := marked(t, all...)
	if n != maxWatched || len(notes) != 1 || !strings.HasPrefix(notes[0], "endpoints of 50 more Services ") {
		t.Errorf("all are listed: %d marked, %q", n, notes)
	}
}

// TestFastPath: frontends that stay on the rules are marked, each family for itself. If all do, a note says it once; if --fast-path is off,
// nothing mentions it.
func TestFastPath(t *testing.T) {
	long := "shop/" + strings.Repeat("long", 40) + ":http"
	for name, tt := range map[string]struct {
		fast        socket.FastPath
		want, notes string
	}{
		"off": {},
		"on": {fast: socket.FastPath{After: 20, OnRules: []socket.OnRules{
			{Port: "shop/web:http", Family: "IPv6", Why: "w6"}, {Port: long, Family: "IPv4", Why: "of long"}, {Port: "shop/other:http", Family: "IPv4", Why: "x"},
		}}, want: ",w6,of long"},
		"no effect": {fast: socket.FastPath{After: 20, NoEffect: "the kernel is old"}, want: ",,",
			notes: "--fast-path=services has no effect; all connections stay on the rules: the kernel is old"},
	} {
		tab := Table{Frontends: []Frontend{
			{Service: "shop/web:http", Family: "IPv4"}, {Service: "shop/web:http", Family: "IPv6"}, {Service: program.Label(long), Family: "IPv4"},
		}}
		tab.noteFastPath(tt.fast)
		var got []string
		for _, fe := range tab.Frontends {
			got = append(got, fe.OnRules)
		}
		if tt.want == "" {
			tt.want = ",,"
		}
		if strings.Join(got, ",") != tt.want || strings.Join(tab.Notes, ",") != tt.notes || len(tab.FastPath.OnRules) > 0 {
			t.Errorf("%s: marked %q, notes %q, %+v", name, got, tab.Notes, tab.FastPath)
		}
		text, err := json.Marshal(tab)
		if mentions := strings.Contains(string(text), "astPath") || strings.Contains(string(text), "onRules"); err != nil || mentions != (tt.fast.After > 0) {
			t.Errorf("%s: %v, JSON: %s", name, err, text)
		}
	}
}
