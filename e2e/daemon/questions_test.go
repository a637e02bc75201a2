//go:build !nokernel

package daemon

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// asked is a command of the README, and lines of its answer.
type asked struct {
	question, command string
	answer            []string
}

// readmeQuestions reads the chapter of cmd/verdict/README.md. A command is an indented line. Indented lines that begin with "#" are
// lines of its answer, in which "..." stands for anything.
func readmeQuestions(t *testing.T) (list []asked) {
	t.Helper()
	text, err := os.ReadFile("../../cmd/verdict/README.md")
	lab.Must(t, err)
	_, chapter, found := strings.Cut(string(text), "\n## Reading with nft alone\n")
	if !found {
		t.Fatal("cmd/verdict/README.md has no chapter about reading with nft alone")
	}
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	question := ""
	for line := range strings.Lines(chapter) {
		line = strings.TrimRight(line, "\n")
		code, indented := strings.CutPrefix(line, "    ")
		answer, isAnswer := strings.CutPrefix(code, "# ")
		switch {
		case strings.HasPrefix(line, "**"):
			question = strings.Trim(line, "*")
		case indented && isAnswer:
			last := &list[len(list)-1]
			last.answer = append(last.answer, answer)
		case indented:
			list = append(list, asked{question: question, command: code})
		}
	}
	return list
}

// bookshop writes the Services that the chapter asks about.
func bookshop(t *testing.T, dir string) {
	t.Helper()
	address := netip.MustParseAddr
	both := []string{"10.0.1.1", "10.0.1.2"}
	WriteFile(t, dir, "shop.yaml", strings.Join([]string{
		(&Service{Name: "default/web", ClusterIP: address("10.96.0.10"), NodePort: 30080, Node: "n1", Endpoints: both}).Manifest(),
		(&Service{
			Name: "default/cart", ClusterIP: address("10.96.0.20"), Spec: `"sessionAffinity": "ClientIP",`, Node: "n1",
			Endpoints: both,
		}).Manifest(),
		(&Service{Name: "default/empty", ClusterIP: address("10.96.0.30"), Node: "n1", Endpoints: []string{"-10.0.1.1"}}).Manifest(),
		strings.Replace((&Service{
			Name: "default/office", ClusterIP: address("10.96.0.40"), Node: "n1", Endpoints: both,
			Spec: `"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/24"],`,
		}).Manifest(), "}]}}\n---", `}]}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}}`+"\n---", 1),
	}, ""))
}

// TestReadmeQuestions runs each command of the chapter, and finds the answer that stands below it.
func TestReadmeQuestions(t *testing.T) {
	list := readmeQuestions(t)
	w, dir := lab.New(t), t.TempDir()
	bookshop(t, dir)
	d := Start(t, binary, w.Node, dir)
	for vip, from := range map[string]string{"10.96.0.10:80": "a", "10.96.0.20:80": "b"} {
		_, _ = w.At(t, from).Hold(t, lab.Question{Protocol: lab.TCP, To: netip.MustParseAddrPort(vip), Patience: Patience})
	}
	pool := regexp.MustCompile(`: ([0-9a-f]+:[0-9a-f]+)`).FindStringSubmatch(
		w.Node.Must(t, "", "nft", "get", "element", "ip", "verdict", "services", "{ 10.96.0.10 . tcp . 80 }"))
	if pool == nil {
		t.Fatal("the frontend of the README has no pool")
	}
	programs := t.TempDir()
	lab.Must(t, os.Symlink(binary, filepath.Join(programs, "verdict")))
	commands := map[string]map[string]bool{}
	for _, a := range list {
		if commands[a.question] == nil {
			commands[a.question] = map[string]bool{}
		}
		commands[a.question][strings.Fields(a.command)[0]] = true
		number := strings.NewReplacer("0:2", pool[1], "20:2", "20:"+strings.Split(pool[1], ":")[1], "/etc/verdict", dir)
		checkAnswer(t, w.Node, programs, number.Replace(a.command), number, a)
	}
	if len(commands) < 10 {
		t.Errorf("the chapter has %d questions, want 10", len(commands))
	}
	for question, by := range commands {
		if !by["verdict"] || !by["nft"] && !by["conntrack"] {
			t.Errorf("%s: wants commands of nft or conntrack beside those of verdict", question)
		}
	}
	_ = d
}

// checkAnswer runs a command until its output has all lines of the answer: connection tracking takes a moment.
func checkAnswer(t *testing.T, node *lab.Namespace, programs, command string, number *strings.Replacer, a asked) {
	t.Helper()
	if len(a.answer) == 0 {
		t.Errorf("%s: %s has no answer", a.question, a.command)
	}
	var got, lacks string
	for late := time.Now().Add(Patience); time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Env = append(os.Environ(), "PATH="+programs+":/usr/sbin:"+os.Getenv("PATH"))
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		lab.Must(t, node.Start(cmd))
		err := cmd.Wait()
		got, lacks = plain(out.String()), ""
		for _, line := range a.answer {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(plain(number.Replace(line))), `\.\.\.`, ".*")
			if !regexp.MustCompile(pattern).MatchString(got) {
				lacks = line
			}
		}
		if err == nil && lacks == "" {
			return
		}
	}
	t.Errorf("%s\n$ %s\nlacks %q in\n%s", a.question, command, lacks, got)
}

// plain has one space where there are several.
func plain(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
