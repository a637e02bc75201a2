package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// note names what has no counterpart.
type note struct {
	line int
	text string
}

// balancer is a LoadBalancer and where it comes from.
type balancer struct {
	shortform.LoadBalancer
	line   int
	origin string
}

// conversion is what has been read.
type conversion struct {
	fates      map[place]string
	recognized bool // something of it is of the format
	balancers  []*balancer
	notes      []note
}

// note adds a note.
func (c *conversion) note(line int, text string, args ...any) {
	c.notes = append(c.notes, note{line, state.Printable(state.Clip(fmt.Sprintf(text, args...), 400))})
}

// balancer adds one.
func (c *conversion) balancer(line int, origin string) *balancer {
	b := &balancer{line: line, origin: origin}
	b.APIVersion, b.Kind = shortform.APIVersion, shortform.Kind
	c.balancers = append(c.balancers, b)
	return b
}

// named gives a balancer a name that no other one has.
func (c *conversion) named(b *balancer, name string) {
	base := label(name)
	name = base
	for n := 2; slices.ContainsFunc(c.balancers, func(o *balancer) bool { return string(o.Metadata.Name) == name }); n++ {
		name = label(fmt.Sprintf("%.58s-%d", base, n))
	}
	b.Metadata.Name = shortform.Label(name)
}

// label turns a text into a name of an object.
func label(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	clean = strings.Trim(clean, "-")
	return cmp.Or(strings.TrimRight(clean[:min(len(clean), 63)], "-"), "balancer")
}

// listen sets where a balancer listens. Port 0 is all ports.
func (b *balancer) listen(protocol string, port uint16, addresses ...netip.Addr) {
	for _, a := range addresses {
		b.Spec.Addresses = append(b.Spec.Addresses, shortform.Address{Addr: a})
	}
	b.Spec.Ports = []shortform.Port{{Port: shortform.Ports{First: port}}}
	if port == 0 {
		b.Spec.Ports[0].Port = shortform.Ports{First: 1, Last: 65535}
	}
	if protocol != "TCP" {
		b.Spec.Ports[0].Protocols = []string{protocol}
	}
}

// What is said of a statement that is in no table, and of firewall marks.
const (
	unknown = "convert does not know it; it is left out"
	noMarks = "Verdict has no virtual servers by mark; it is left out. A balancer can have several addresses and ranges of ports"
)

// frontendName is the name of a balancer that has one in no format.
func frontendName(protocol string, at netip.AddrPort) string {
	return fmt.Sprintf("%s-%s-%d", protocol, at.Addr(), at.Port())
}

// schedule sets the scheduler.
func (c *conversion) schedule(b *balancer, line int, name string) {
	was := b.Spec.Scheduler
	b.Spec.Scheduler = name
	if faults := c.faults(b, "spec.scheduler"); len(faults) > 0 {
		c.note(line, "scheduler %s: Verdict has no such scheduler; %s is written", name, cmp.Or(was, "the default"))
		b.Spec.Scheduler = was
	}
}

// flag sets a flag of the scheduler. IPVS calls them flag-1 and flag-2, too.
func (c *conversion) flag(b *balancer, line int, flag string) {
	switch {
	case flag == "":
		return
	case flag == "flag-1" || strings.HasSuffix(flag, "-fallback"):
		return // always on
	case flag == "flag-2":
		flag = b.Spec.Scheduler + "-port"
	}
	b.Spec.SchedulerFlags = append(b.Spec.SchedulerFlags, flag)
	if len(c.faults(b, "spec.schedulerFlags")) > 0 {
		b.Spec.SchedulerFlags = nil
		c.note(line, "flag %s of scheduler %s: Verdict has no such flag", flag, b.Spec.Scheduler)
	}
}

// persist sets the affinity. The text is a number of seconds; ipvsadm and keepalived mean 360 by none.
func (c *conversion) persist(b *balancer, line int, text string) {
	seconds, err := strconv.ParseUint(cmp.Or(text, "360"), 10, 32)
	if err != nil {
		c.note(line, "persistence %s: it is no number of seconds; none is written", text)
	}
	t := time.Duration(min(seconds, uint64(shortform.MaxAffinity/time.Second))) * time.Second
	if b.Spec.Affinity = shortform.Duration(t); seconds > uint64(shortform.MaxAffinity/time.Second) {
		c.note(line, "persistence of %d seconds: Verdict has at most 24h, which are written", seconds)
	}
}

// weight parses the weight of an endpoint; "": 1.
func (c *conversion) weight(line int, text string) *uint16 {
	n, err := strconv.ParseUint(cmp.Or(text, "1"), 10, 16)
	if err != nil {
		n = cmp.Or(n, 1) // the largest one if it is too large
		c.note(line, "weight %s: Verdict has 0 to 65535; %d is written", text, n)
	}
	return new(uint16(n))
}

// endpoint adds an endpoint. It names one that cannot serve the balancer, and reports whether it can. Those of all ports have
// no port of their own, and neither have those that get packets as they are.
func (c *conversion) endpoint(b *balancer, line int, at netip.AddrPort, way shortform.Forwarding, weight *uint16, backup bool) bool {
	family := func(a shortform.Address) bool { return a.Is4() == at.Addr().Is4() }
	port := b.Spec.Ports[0].Port
	reason := ""
	switch {
	case !slices.ContainsFunc(b.Spec.Addresses, family):
		reason = "it is of another family than the virtual address, and nat cannot reach it"
	case way != b.Spec.Forwarding:
		reason = fmt.Sprintf("its packets go by %s, and those of the balancer by %s: Verdict forwards to all endpoints alike",
			cmp.Or(way, "nat"), cmp.Or(b.Spec.Forwarding, "nat"))
	case port.Last != 0:
		at = netip.AddrPortFrom(at.Addr(), 0)
	case way != "" && at.Port() != port.First:
		c.note(line, "real server %s: packets by %s keep their port, so it serves port %d", at, way, port.First)
		at = netip.AddrPortFrom(at.Addr(), port.First)
	}
	if own := slices.Contains(b.Spec.Addresses, shortform.Address{Addr: at.Addr()}); own && (at.Port() == port.First || port.Last != 0) {
		reason = "it is the virtual server itself"
	}
	e := shortform.Endpoint{Address: shortform.Address{Addr: at.Addr()}, Port: at.Port(), Weight: weight, Backup: backup}
	if e.Weight != nil && *e.Weight == 1 {
		e.Weight = nil
	}
	if slices.ContainsFunc(b.Spec.Endpoints, func(o shortform.Endpoint) bool { return o.Address == e.Address && o.Port == e.Port }) {
		reason = "it occurs twice, and the first one is used"
	}
	if reason != "" {
		c.note(line, "real server %s: %s; it is left out", at, reason)
		return false
	}
	b.Spec.Endpoints = append(b.Spec.Endpoints, e)
	return true
}

// finish completes a balancer when all its endpoints are known. A port that all of them have is the target port. Like IPVS,
// a balancer with NAT leaves the address of the client as it is.
func (c *conversion) finish(b *balancer) {
	switch {
	case b.Spec.Forwarding == "":
		b.Spec.Masquerade = new(false)
	case b.Spec.Ports[0].Port.Last != 0:
		c.note(b.line, "%s: Verdict forwards all ports with NAT only; NAT is written, and the endpoints see an address of this machine", b.origin)
		b.Spec.Forwarding = ""
	}
	ports := map[uint16]bool{}
	for _, e := range b.Spec.Endpoints {
		ports[e.Port] = true
	}
	for i := range b.Spec.Endpoints {
		e, p := &b.Spec.Endpoints[i], &b.Spec.Ports[0]
		switch {
		case len(ports) == 1 && e.Port != p.Port.First:
			p.TargetPort, e.Port = e.Port, 0
		case e.Port == p.Port.First || len(ports) == 1:
			e.Port = 0
		}
	}
}

// separate leaves out the addresses of a balancer that another one serves at the same port. As in IPVS, one port comes before
// all ports.
func (c *conversion) separate() {
	served := map[string]int{}
	for _, allPorts := range []bool{false, true} {
		for _, b := range c.balancers {
			p := b.Spec.Ports[0]
			if allPorts != (p.Port.Last != 0) {
				continue
			}
			b.Spec.Addresses = slices.DeleteFunc(b.Spec.Addresses, func(a shortform.Address) bool {
				anyPort := fmt.Sprint(a, p.Protocols)
				at := anyPort
				if !allPorts {
					at += p.Port.String()
				}
				line, taken := served[at]
				if taken {
					c.note(b.line, "%s: line %d has %s and this port, too; %s is left out here", b.origin, line, a, a)
				} else {
					served[at], served[anyPort] = b.line, b.line
				}
				return taken
			})
		}
	}
}

// faults returns what Verdict would not accept of a balancer, in fields that begin with a path.
func (c *conversion) faults(b *balancer, path string) (found []shortform.Fault) {
	_, faults := shortform.Decode(b.yaml())
	for _, f := range faults {
		if strings.HasPrefix(f.Field, path) {
			found = append(found, f)
		}
	}
	return found
}

func (b *balancer) yaml() []byte {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&b.LoadBalancer); err != nil {
		return []byte(err.Error()) // which Decode does not accept
	}
	return out.Bytes()
}

// nothing is what is written if there is no balancer.
const nothing = "# no balancer\n"

// text returns the balancers. One that Verdict would not accept is named instead.
func (c *conversion) text() string {
	var out strings.Builder
	c.separate()
	for _, b := range c.balancers {
		if faults := c.faults(b, ""); len(faults) > 0 {
			c.note(b.line, "%s: it is left out: %s", b.origin, faults[0])
			continue
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		fmt.Fprintf(&out, "# line %d: %s\n%s", b.line, state.Printable(b.origin), b.yaml())
	}
	if out.Len() == 0 {
		return nothing // a file that is empty counts as half written
	}
	return out.String()
}

// report returns the notes in the order of the lines.
func (c *conversion) report(file string) string {
	slices.SortStableFunc(c.notes, func(a, b note) int { return cmp.Compare(a.line, b.line) })
	var out strings.Builder
	seen := map[string]bool{}
	for _, n := range c.notes {
		if line := fmt.Sprintf("%s:%d: %s\n", state.Printable(file), n.line, n.text); !seen[line] {
			seen[line] = true
			out.WriteString(line)
		}
	}
	return out.String()
}
