package convert

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented returns what the table of README.md says: what becomes of each statement, and in which words.
func documented(t *testing.T) (fate, text map[place]string) {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	fate, text = map[place]string{}, map[place]string{}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \| (converted|named|refused) \| (.*) \|$`).FindAllStringSubmatch(string(readme), -1) {
		for _, block := range quoted.FindAllStringSubmatch(strings.ReplaceAll(row[1], "any check", checkers), -1) {
			for _, word := range quoted.FindAllStringSubmatch(row[2], -1) {
				at := place{block[1], word[1]}
				if fate[at] != "" {
					t.Errorf("README.md has %s of %s twice", at.word, at.block)
				}
				fate[at], text[at] = row[3], row[4]
			}
		}
	}
	return fate, text
}

const checkers = "`TCP_CHECK`, `HTTP_GET`, `SSL_GET`, `DNS_CHECK`, `SMTP_CHECK`"

// TestTable: the table of README.md has each statement that the code knows, with the words that the code names it by.
func TestTable(t *testing.T) {
	fate, text := documented(t)
	for at, says := range fates() {
		if fate[at] == "" || says != "" && (text[at] != says || fate[at] == "converted") {
			t.Errorf("README.md: %s of %s is %q, %q; the code names it with %q", at.word, at.block, fate[at], text[at], says)
		}
		delete(fate, at)
	}
	if len(fate) > 0 {
		t.Errorf("README.md has what the code does not know: %v", fate)
	}
}

// example is a statement of a block: what it needs before it, and the statement itself, which may have several lines.
type example struct{ before, statement string }

// exampleOf returns an example of a word. Those with a value of their own are here.
func exampleOf(block, word string) example {
	const server = "real_server 10.0.0.7 80 {\nHTTP_GET {\nurl {\npath /\n}\n}\n}"
	e, found := map[string]example{
		"virtual_server":          {statement: "virtual_server 192.0.2.7 80 {\nprotocol TCP\n" + server + "\n}"},
		"virtual_server_group":    {"virtual_server group h {\nprotocol TCP\n" + server + "\n}\n", "virtual_server_group h {\n192.0.2.8 80\n}"},
		"ADDRESS":                 {statement: "192.0.2.77 80"},
		"lb_algo":                 {statement: "lb_algo rr"},
		"lvs_sched":               {statement: "lvs_sched rr"},
		"lb_kind":                 {statement: "lb_kind TUN"},
		"lvs_method":              {statement: "lvs_method TUN"},
		"protocol":                {statement: "protocol UDP"},
		"mh-port":                 {"lb_algo mh\n", "mh-port"},
		"mh-fallback":             {"lb_algo mh\n", "mh-fallback"},
		"real_server":             {statement: server},
		"sorry_server":            {statement: "sorry_server 10.0.0.8 80"},
		"sorry_server_lvs_method": {"sorry_server 10.0.0.8 80\n", "sorry_server_lvs_method DR"},
		"persistence_granularity": {statement: "persistence_granularity 255.255.255.0"},
		"virtualhost":             {statement: "virtualhost www.example.org"},
		"connect_port":            {statement: "connect_port 81"},
		"connect_ip":              {statement: "connect_ip 10.0.0.1"},
		"url":                     {statement: "url {\npath /\n}"},
		"name":                    {statement: "name example.org"},
		"type":                    {statement: "type A"},
		"path":                    {statement: "path /other"},
		"status_code":             {statement: "status_code 204"},
		"HTTP_GET":                {statement: "HTTP_GET {\nurl {\npath /\n}\n}"},
		"SSL_GET":                 {statement: "SSL_GET {\nurl {\npath /\n}\n}"},
		"-p":                      {statement: "-p 600"},
		"-s":                      {statement: "-s rr"},
		"-b":                      {statement: "-b sh-port"},
		"-w":                      {statement: "-w 7"},
		"--tun-type":              {"-i ", "--tun-type gre"},
		"--tun-port":              {"-i --tun-type gue ", "--tun-port 6081"},
		"--tun-csum":              {"-i --tun-type gue ", "--tun-csum"},
		"--tun-remcsum":           {"-i --tun-type gue ", "--tun-remcsum"},
		"--tun-nocsum":            {"-i --tun-type gue ", "--tun-nocsum"},
	}[word]
	switch {
	case found:
	case strings.HasSuffix(word, "_CHECK"), block == "file" && word != "include":
		e.statement = word + " {\n}"
	case strings.HasPrefix(word, "sh-"), strings.HasPrefix(word, "flag-"), strings.HasPrefix(word, "-") && word != "-x" && word != "-y":
		e.statement = word
	default:
		e.statement = word + " 7"
	}
	return e
}

// configured returns a file with a text at the end of a block, and the line at which the text begins. The word is what the
// text is about.
func configured(block, word, text string) (file string, line int) {
	check := "HTTP_GET"
	if strings.Contains(checkers, block) {
		check = block
	}
	url := ""
	if strings.HasSuffix(check, "_GET") && word != "url" {
		url = "url {\npath /\nurl_END}\n"
	}
	check += " {\n" + url + check + "_END}"
	if block == "real_server" && strings.ToUpper(word) == word {
		check = ""
	}
	file = "virtual_server_group g {\n192.0.2.9 80\nvirtual_server_group_END}\nvirtual_server group g {\nprotocol TCP\nreal_server 10.0.0.9 80 {\n}\n}\n" +
		"virtual_server 192.0.2.1 80 {\nprotocol TCP\nlb_algo sh\nreal_server 10.0.0.1 80 {\n" + check + "\nreal_server_END}\n" +
		"virtual_server_END}\nfile_END"
	switch block {
	case "-A":
		file = "-A -t 192.0.2.1:80 -s sh " + block + "_END\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\n"
	case "-a":
		file = "-A -t 192.0.2.1:80 -s sh\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 " + block + "_END\n"
	default:
		text += "\n"
	}
	before, after, found := strings.Cut(file, block+"_END")
	if !found {
		panic("no block " + block)
	}
	unused := regexp.MustCompile(`\w+_END`)
	before, after = unused.ReplaceAllString(before, ""), unused.ReplaceAllString(after, "")
	return before + text + after, strings.Count(before, "\n") + 1
}

// always are statements of what holds without them, those of which each line of ipvsadm is made, and those with a test of their own.
var always = []string{"$NAME=", "sh-fallback", "mh-fallback", "flag-1", "connect_ip", "type", "-A", "-a", "-t", "-u", "--sctp-service", "-r", "-f",
	"-g", "--tun-nocsum"}

// TestFates: what README.md calls converted changes what is written and is not named, what is named has its line, and what is
// refused is left out.
func TestFates(t *testing.T) {
	fate, _ := documented(t)
	for at, f := range fate {
		if slices.Contains(always, at.word) {
			continue
		}
		e := exampleOf(at.block, at.word)
		file, line := configured(at.block, at.word, e.before+e.statement)
		line += strings.Count(e.before, "\n")
		bare, _ := configured(at.block, at.word, e.before+strings.Repeat("\n", strings.Count(e.statement, "\n")))
		balancers, notes := converted(t, file)
		without, _ := converted(t, bare)
		isNoted := strings.Contains("\n"+notes, fmt.Sprintf("\n%d: ", line))
		same := balancers == without || at.word == "persistence_granularity" // which persists
		switch {
		case f == "converted" && (!isNoted || at.word == "SMTP_CHECK") && balancers != without:
		case f == "named" && isNoted && same:
		case f == "refused" && isNoted && same && strings.Contains(notes, "left out"):
		default:
			t.Errorf("%s of %s is not %s: noted %v, changes %v\n%s\n%s", at.word, at.block, f, isNoted, balancers != without, file, notes)
		}
	}
}
