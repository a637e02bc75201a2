//go:build ipvs

package fastpath

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// says runs a command of Verdict until it prints what is wanted, and not what is not.
func (b *bed) says(wanted []string, not string, command ...string) {
	b.t.Helper()
	lab.Eventually(b.t, strings.Join(command, " "), func() error {
		if b.busy != nil {
			b.busy()
		}
		text, err := b.World.Node.Command(command[0], command[1:]...)
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				err = errors.Join(err, fmt.Errorf("no %q", want))
			}
		}
		if not != "" && strings.Contains(text, not) {
			err = errors.Join(err, fmt.Errorf("it has %q", not))
		}
		if err != nil {
			err = fmt.Errorf("%w in\n%s", err, text)
		}
		return err
	})
}

// passing has the daemon look at the table of connections anew.
func (b *bed) passing() (open, fast int) {
	b.t.Helper()
	lab.Must(b.t, b.World.Node.Do(func() error {
		rows, err := socket.NewClient().Passing(0)
		for _, r := range rows {
			open += r.Open
		}
		fast = socket.OnFastPath(rows)
		return err
	}))
	return open, fast
}

// TestVisible: list, explain, top and the metrics say which connections are on the fast path, and why others are not.
func TestVisible(t *testing.T) {
	const metrics = "127.0.0.1:10249" // in the namespace of the node
	flags := []string{"--fast-path=services", fmt.Sprintf("--fast-path-after=%d", after), "--metrics-bind-address=" + metrics, "--ui"}
	b := newBed(t, "", flags...)
	w := way{lab.IPv4, lab.TCP, "a", "VIP1", servicePort}
	flow := b.open(t, w)
	b.busy = func() { exchange(t, flow, 1) }
	slow, _ := b.At(t, w.place).Hold(t, w.question()) // it stays open
	exchange(t, slow, 1)
	lab.Eventually(t, "the daemon counts connections", func() error {
		b.busy()
		if open, fast := b.passing(); open != 2 || fast != 1 {
			return fmt.Errorf("%d connections are open, %d of them on the fast path, want 2 and 1", open, fast)
		}
		return nil
	})
	line := "\nOn the fast path: 1 open connection"
	if !isLinux(t, 7, 1) { // there, it goes on: connections by bridges stay
		line += "\n"
	}
	b.says([]string{line}, "on-the-rules", binary, "list", "shop/web")
	b.says([]string{`"fastPath": 1`, fmt.Sprintf(`"afterPackets": %d`, after)}, `"onRules"`, binary, "list", "-o", "json")
	b.says([]string{"Fast path  Stranded\n"}, "", binary, "top", "--once", "--interval=100ms")
	b.says([]string{"verdict_fast_path{reason=\"\"} 1\n",
		"verdict_service_fast_path_connections{client=\"pod\",endpoint=\"elsewhere\",namespace=\"shop\",port=\"tcp\",service=\"web\"} 1\n",
		"verdict_service_open_connections{client=\"pod\",endpoint=\"elsewhere\",namespace=\"shop\",port=\"tcp\",service=\"web\"} 2\n",
	}, "", "curl", "-fsS", "http://"+metrics+"/metrics")
	page := func(path string) []string {
		return []string{"curl", "-fsS", "-H", "Sec-Fetch-Site: same-origin", "http://" + metrics + "/ui/api/" + path}
	}
	b.says([]string{`"fastPathConnections":1`}, "fastPathIdle", page("overview")...)
	b.says([]string{`"fastPathConnections":{"shop/web:tcp":1,"shop/web:udp":0}`}, "onRules", page("service?name=shop/web")...)
	client, to := lab.PodAddress(w.family, w.place), w.to().String()
	b.says([]string{fmt.Sprintf("After %d packets, packets of the connection skip the rules of this node.", after), "verdict fast-path {"}, "",
		binary, "explain", client.String(), to)
	atNode := way{lab.IPv4, lab.TCP, lab.Outside, "NODE", nodePort}
	b.says([]string{"packets of the connection skip the rules", "verdict fast-path-nodeports {"}, "", binary, "explain", "outside", atNode.to().String())
	b.says([]string{"The connection stays on the rules: this node itself is one of its ends"}, "", binary, "explain", "node", to)
	offload := regexp.MustCompile(` sport=(\d+) dport=` + fmt.Sprint(servicePort) + ` .*\[OFFLOAD\]`)
	var connection []string
	lab.Eventually(t, "a connection is on the fast path", func() error {
		b.busy()
		text, err := b.World.Node.Command("cat", "/proc/net/nf_conntrack")
		if connection = offload.FindStringSubmatch(text); connection == nil {
			err = errors.Join(err, errors.New(text))
		}
		return err
	})
	b.says([]string{"It is on the fast path: its packets skip the rules of this node.", "[OFFLOAD]"}, "", binary, "explain", client.String()+":"+connection[1], to)
	const why = "the annotation verdict-proxy.github.io/fast-path is off"
	b.web(`verdict-proxy.github.io/fast-path: "off"`, "c")
	b.says([]string{"on-the-rules (" + why + ")"}, "", binary, "list", "shop/web")
	b.says([]string{`"onRules":"` + why + `"`}, "", page("service?name=shop/web")...)
	b.says([]string{"The connection stays on the rules: " + why + "."}, "", binary, "explain", client.String(), to)
}

// TestInvisible: without the option, nothing mentions the fast path.
func TestInvisible(t *testing.T) {
	const metrics = "127.0.0.1:10249"
	b := newBed(t, "", "--fast-path=off", "--metrics-bind-address="+metrics)
	w := ways()[0]
	b.open(t, w)
	for _, command := range [][]string{
		{binary, "list"}, {binary, "list", "-o", "json"}, {binary, "top", "--once", "--interval=100ms"}, {binary, "explain", lab.PodAddress(w.family, w.place).String(), w.to().String()},
		{"curl", "-fsS", "http://" + metrics + "/metrics"},
	} {
		text, err := b.World.Node.Command(command[0], command[1:]...)
		lab.Must(t, err)
		for line := range strings.Lines(text) {
			if strings.Contains(line, "verdict_map_elements") { // it names all sets
				continue
			}
			if regexp.MustCompile(`(?i)fast.?path`).MatchString(line) || json.Valid([]byte(text)) && strings.Contains(line, "onRules") {
				t.Errorf("%v: %s", command, line)
			}
		}
	}
}
