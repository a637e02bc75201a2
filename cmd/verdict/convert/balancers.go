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
	balancers []*balancer
	notes     []note
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

// noMarks names a virtual server that is left out.
func (c *conversion) noMarks(line int, mark string) {
	c.note(line, "firewall mark %s: Verdict has no virtual servers by mark; it is left out. A balancer can have several addresses and "+
		"ranges of ports", mark)
}

// defaultPersistence is how many seconds ipvsadm and keepalived mean by none.
const defaultPersistence = 360

// frontendName is the name of a balancer that has one in no format.
func frontendName(protocol string, at netip.AddrPort) string {
	return fmt.Sprintf("%s-%s-%d", protocol, at.Addr(), at.Port())
}

// schedule sets the scheduler.
func (c *conversion) schedule(b *balancer, line int, name string) {
	b.Spec.Scheduler = name
	if faults := c.faults(b, "spec.scheduler"); len(faults) > 0 {
		c.note(line, "scheduler %s: Verdict has no such scheduler; the default is written", name)
		b.Spec.Scheduler = ""
	}
}

// forward sets how packets reach the endpoints: all of a balancer in the same way.
func (c *conversion) forward(b *balancer, line int, way shortform.Forwarding) {
	if way == "nat" {
		way = ""
	}
	if len(b.Spec.Endpoints) > 0 && way != b.Spec.Forwarding {
		c.note(line, "this real server has another forwarding than those before it: Verdict forwards to all endpoints of a balancer alike, "+
			"by %s", cmp.Or(b.Spec.Forwarding, "nat"))
		return
	}
	b.Spec.Forwarding = way
}

// persist sets the affinity. The text is a number of seconds.
func (c *conversion) persist(b *balancer, line int, text string) {
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		seconds = defaultPersistence
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
		c.note(line, "weight %s: Verdict has 0 to 65535; 1 is written", text)
		n = 1
	}
	return new(uint16(n))
}

// endpoint adds an endpoint. It reports one that cannot serve the balancer. Those of all ports have none of their own.
func (c *conversion) endpoint(b *balancer, line int, at netip.AddrPort, weight *uint16, backup bool) {
	family := func(a netip.Addr) bool { return a.Is4() == at.Addr().Is4() }
	if !slices.ContainsFunc(b.Spec.Addresses, func(a shortform.Address) bool { return family(a.Addr) }) {
		c.note(line, "real server %s: it is of another family than the virtual address, and nat cannot reach it; it is left out", at.Addr())
		return
	}
	if b.Spec.Ports[0].Port.Last != 0 {
		at = netip.AddrPortFrom(at.Addr(), 0)
	}
	e := shortform.Endpoint{Address: shortform.Address{Addr: at.Addr()}, Port: at.Port(), Weight: weight, Backup: backup}
	if e.Weight != nil && *e.Weight == 1 {
		e.Weight = nil
	}
	if slices.ContainsFunc(b.Spec.Endpoints, func(o shortform.Endpoint) bool { return o.Address == e.Address && o.Port == e.Port }) {
		c.note(line, "real server %s: it occurs twice; the first one is used", at)
		return
	}
	b.Spec.Endpoints = append(b.Spec.Endpoints, e)
}

// finish completes a balancer when all its endpoints are known. A port that all of them have is the target port. Like IPVS,
// a balancer with NAT leaves the address of the client as it is.
func (b *balancer) finish() {
	if b.Spec.Forwarding == "" {
		b.Spec.Masquerade = new(false)
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
