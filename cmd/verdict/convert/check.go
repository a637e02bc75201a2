package convert

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// kinds are the checks for the checkers of keepalived.
func kinds() map[string]string {
	return map[string]string{"TCP_CHECK": "tcp", "HTTP_GET": "http", "SSL_GET": "https", "DNS_CHECK": "dns", "SMTP_CHECK": "tcp"}
}

// check writes the check of a balancer. Verdict checks all endpoints of a balancer alike: the check is that of the first
// real server, and others are named.
func (c keepalived) check(b *balancer, s *statement, serving []*statement) {
	var first *statement
	common := ""
	for _, r := range serving {
		text := c.checkOf(b, s, r)
		switch {
		case first == nil:
			first, common = r, text
		case text != common:
			c.note(r.line, "real_server %s has another check (%s) than %s (%s): Verdict checks all endpoints of a balancer alike, "+
				"by the first one", r.word(1), cmp.Or(text, "none"), first.word(1), cmp.Or(common, "none"))
		}
	}
	if common != "" && b.Spec.Ports[0].Port.Last != 0 && !strings.Contains(common, " port=") {
		c.note(first.line, "check %s: it asks port 1, the first one of all ports; add port=NUMBER to the check", common)
	}
	b.Spec.Check = shortform.Check(common)
}

// checkOf returns the check of a real server, or "".
func (c keepalived) checkOf(b *balancer, s, r *statement) (check string) {
	for _, checker := range r.block {
		kind := kinds()[checker.word(0)]
		switch {
		case kind == "":
			continue
		case check != "":
			c.note(checker.line, "%s: an endpoint has one check; this one is left out", checker.word(0))
			continue
		case checker.word(0) == "SMTP_CHECK":
			c.note(checker.line, "SMTP_CHECK: Verdict only checks that the port accepts connections")
		}
		k := keepalivedCheck{conversion: c.conversion, kind: kind, virtual: s, real: r, checker: checker}
		check = k.text(b)
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

// text returns the check as Verdict writes it, or "".
func (k *keepalivedCheck) text(b *balancer) string {
	words := []string{k.kind}
	add := func(key, value string) {
		if value != "" {
			words = append(words, key+"="+value)
		}
	}
	switch k.kind {
	case "http", "https":
		u := k.url()
		if u == nil {
			k.note(k.checker.line, "%s: it has no url with a path, so keepalived asks nothing; it is left out", k.checker.word(0))
			return ""
		}
		add("path", strings.ReplaceAll(value("path", u), " ", "%20"))
		add("status", k.status(u))
		add("server-name", k.host(u))
	case "dns":
		add("name", strings.TrimSuffix(value("name", k.checker), "."))
	}
	add("port", k.port(b))
	interval := k.seconds("delay_loop", time.Minute, state.MinCheckInterval, state.MaxCheckInterval)
	add("interval", interval.String())
	add("timeout", k.seconds("connect_timeout", 5*time.Second, state.MinCheckTimeout, interval).String())
	add("rise", "1")
	add("fall", strconv.Itoa(k.fall()))
	if o := find("connect_ip", k.checker); o.line > 0 && o.word(1) != k.real.word(1) {
		k.note(o.line, "%s: Verdict asks the address of the real server", o)
	}
	if o := find("type", k.checker); o.line > 0 && !strings.EqualFold(o.word(1), "A") {
		k.note(o.line, "%s: Verdict asks for the type A, or without a name for NS", o)
	}
	return strings.Join(words, " ")
}

// port returns the port that keepalived asks, unless the endpoint has it. Packets by route or tunnel keep their port, but
// keepalived asks the one that is written.
func (k *keepalivedCheck) port(b *balancer) string {
	own := k.real.word(2)
	asked := cmp.Or(value("connect_port", k.checker), own)
	if p := b.Spec.Ports[0].Port; p.Last != 0 {
		own = ""
	} else if b.Spec.Forwarding != "" || own == "" {
		own = p.String()
	}
	if asked == own || asked == "0" {
		return ""
	}
	return asked
}

// seconds returns a time of the checker, its real server or the virtual server, within what Verdict has.
func (k *keepalivedCheck) seconds(name string, otherwise, least, most time.Duration) time.Duration {
	o := find(name, k.checker, k.real, k.virtual)
	t, err := time.ParseDuration(o.word(1) + "s")
	if err != nil {
		t = otherwise
	}
	within := min(max(t, least), most)
	if o.line > 0 && (err != nil || t != within) {
		k.note(o.line, "%s: expected seconds between %s and %s; %s is written", o, least, most, within)
	}
	return within
}

// fall returns after how many failures an endpoint is not good: keepalived counts those after the first one.
func (k *keepalivedCheck) fall() int {
	o := find("retry", k.checker, k.real, k.virtual)
	n, err := strconv.ParseUint(cmp.Or(o.word(1), map[string]string{"dns": "3"}[k.kind], "1"), 10, 32)
	fall := min(n+1, state.MaxCheckCount)
	if err != nil || fall != n+1 {
		k.note(o.line, "%s: expected a number up to %d; fall=%d is written", o, state.MaxCheckCount-1, fall)
	}
	return int(fall)
}

// url returns the first url of a web check that has a path.
func (k *keepalivedCheck) url() (first *statement) {
	for _, u := range k.checker.all("url") {
		switch {
		case value("path", u) == "":
			k.note(u.line, "url: it has no path, so keepalived does not ask it; it is left out")
		case first != nil:
			k.note(u.line, "url %s: a check asks for one path; this one is left out", value("path", u))
		default:
			first = u
		}
	}
	return first
}

// status returns the statuses that a web check wants, as one range: with fewer of them, endpoints would fail that keepalived
// uses.
func (k *keepalivedCheck) status(u *statement) string {
	var low, high string
	list := u.all("status_code")
	for _, o := range list {
		for _, code := range o.words[1:] {
			from, to, _ := strings.Cut(code, "-")
			low, high = min(cmp.Or(low, from), from), max(high, cmp.Or(to, from))
		}
	}
	text := low + "-" + high
	switch low {
	case "":
		return "200-299" // of keepalived
	case high:
		text = low
	}
	for _, o := range list {
		if o.word(1) != text {
			k.note(o.line, "%s: a check has one range of statuses; %s is written", o, text)
		}
	}
	return text
}

// host returns the name that a web check sends.
func (k *keepalivedCheck) host(u *statement) string {
	o := find("virtualhost", u, k.checker, k.real, k.virtual)
	name, port, _ := strings.Cut(o.word(1), ":")
	if _, err := state.ParseHealthCheck("http server-name=" + name); name != "" && err != nil {
		k.note(o.line, "%s: %s; it is left out", o, err)
		return ""
	}
	if port != "" {
		k.note(o.line, "%s: a check sends a name without a port; %s is written", o, name)
	}
	return name
}
