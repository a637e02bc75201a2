package convert

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// sharedOptions may stand in a checker, in its real server or in the virtual server.
func sharedOptions() []string {
	return []string{"delay_loop", "connect_timeout", "retry", "delay_before_retry", "virtualhost"}
}

// checkers are those of keepalived, with the kind of check that Verdict has; "": none.
func checkers() map[string]string {
	return map[string]string{
		"TCP_CHECK": "tcp", "HTTP_GET": "http", "SSL_GET": "https", "DNS_CHECK": "dns", "SMTP_CHECK": "tcp",
		"UDP_CHECK": "", "MISC_CHECK": "", "PING_CHECK": "", "BFD_CHECK": "", "FILE_CHECK": "",
	}
}

func isChecker(s *statement) bool {
	_, known := checkers()[s.word(0)]
	return known
}

// check writes the check of a balancer. Verdict checks all endpoints of a balancer alike: the check is that of the first
// real server, and others are named.
func (c *conversion) check(b *balancer, s *statement) {
	var first *statement
	common := ""
	for _, r := range s.all("real_server") {
		text := c.checkOf(s, r)
		switch {
		case first == nil:
			first, common = r, text
		case text != common:
			c.note(r.line, "real_server %s has another check (%s) than %s (%s): Verdict checks all endpoints of a balancer alike, "+
				"by the first one", r.word(1), orNone(text), first.word(1), orNone(common))
		}
	}
	if common != "" && b.Spec.Ports[0].Port.Last != 0 && !strings.Contains(common, " port=") {
		if port := first.word(2); port != "" && port != "0" {
			common += " port=" + port
		} else {
			c.note(first.line, "check %s: it asks port 1, the first one of all ports; add port=NUMBER to the check", common)
		}
	}
	b.Spec.Check = shortform.Check(common)
}

func orNone(check string) string {
	if check == "" {
		return "none"
	}
	return check
}

// checkOf returns the check of a real server, or "".
func (c *conversion) checkOf(s, r *statement) (check string) {
	for _, checker := range r.block {
		if !isChecker(checker) {
			continue
		}
		kind := checkers()[checker.word(0)]
		switch {
		case kind == "":
			c.note(checker.line, "%s: Verdict has no such check; it is left out", checker.word(0))
			continue
		case check != "":
			c.note(checker.line, "%s: an endpoint has one check; this one is left out", checker.word(0))
			continue
		case checker.word(0) == "SMTP_CHECK":
			c.note(checker.line, "SMTP_CHECK: Verdict only checks that the port accepts connections")
		}
		k := keepalivedCheck{conversion: c, kind: kind, virtual: s, real: r, checker: checker}
		check = k.text()
	}
	if _, err := state.ParseHealthCheck(check); check != "" && err != nil {
		c.note(r.line, "check %s: %s; it is left out", check, err)
		return ""
	}
	return check
}

// keepalivedCheck is a checker of keepalived and what is around it.
type keepalivedCheck struct {
	*conversion
	kind                   string
	virtual, real, checker *statement
}

// text returns the check as Verdict writes it.
func (k *keepalivedCheck) text() string {
	words := []string{k.kind}
	add := func(key, value string) {
		if value != "" {
			words = append(words, key+"="+value)
		}
	}
	switch k.kind {
	case "http", "https":
		path, status, host := k.url()
		add("path", path)
		add("status", status)
		add("server-name", host)
	case "dns":
		add("name", value("name", k.checker))
	}
	if port := value("connect_port", k.checker); port != k.real.word(2) {
		add("port", port)
	}
	interval := k.seconds("delay_loop", 60*time.Second)
	interval = min(max(interval, state.MinCheckInterval), 10*time.Minute)
	timeout := k.seconds("connect_timeout", 5*time.Second)
	if timeout > interval {
		k.note(k.checker.line, "connect_timeout %s is longer than delay_loop %s: the timeout of the check is %s", timeout, interval, interval)
		timeout = interval
	}
	add("interval", interval.String())
	add("timeout", timeout.String())
	add("rise", "1")
	add("fall", strconv.Itoa(k.fall()))
	k.name()
	return strings.Join(words, " ")
}

// seconds returns a time in seconds from the checker, its real server or the virtual server.
func (k *keepalivedCheck) seconds(word string, otherwise time.Duration) time.Duration {
	text := value(word, k.checker, k.real, k.virtual)
	n, err := strconv.ParseFloat(text, 32)
	if err != nil {
		return otherwise
	}
	return time.Duration(n*1000) * time.Millisecond
}

// fall returns after how many failures an endpoint is not good: keepalived counts those after the first one.
func (k *keepalivedCheck) fall() int {
	n, err := strconv.Atoi(value("retry", k.checker, k.real, k.virtual))
	if err != nil {
		n = 1
		if k.checker.word(0) == "HTTP_GET" || k.checker.word(0) == "SSL_GET" {
			n = 3
		}
	}
	return min(n+1, 100)
}

// url reads what a web check asks for.
func (k *keepalivedCheck) url() (path, status, host string) {
	host = value("virtualhost", k.checker, k.real, k.virtual)
	for i, u := range k.checker.all("url") {
		if i > 0 {
			k.note(u.line, "url %s: a check asks for one path; this one is left out", value("path", u))
			continue
		}
		for _, o := range u.block {
			switch o.word(0) {
			case "path":
				path = o.word(1)
			case "virtualhost":
				host = o.word(1)
			case "status_code":
				status = o.word(1)
				if len(o.words) > 2 {
					k.note(o.line, "%s: a check has one range of statuses; the first one is written", strings.Join(o.words, " "))
				}
			default:
				k.note(o.line, "%s: Verdict has no counterpart", strings.Join(o.words, " "))
			}
		}
	}
	return path, status, host
}

// name names what else a checker has.
func (k *keepalivedCheck) name() {
	known := append(sharedOptions(), "url", "connect_port", "name")
	for _, o := range k.checker.block {
		switch {
		case o.word(0) == "connect_ip" && o.word(1) == k.real.word(1), o.word(0) == "type" && strings.EqualFold(o.word(1), "A"):
		case o.word(0) == "delay_before_retry" && k.seconds(o.word(0), 0) != k.seconds("delay_loop", 0):
			k.note(o.line, "delay_before_retry %s: Verdict asks again after the interval of the check", o.word(1))
		case !slices.Contains(known, o.word(0)):
			k.note(o.line, "%s of %s: Verdict has no counterpart", strings.Join(o.words, " "), k.checker.word(0))
		}
	}
}
