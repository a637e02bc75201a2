package convert

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/source/shortform"
)

// options of ipvsadm: how a long one is written in short form, and whether it has a value.
var ipvsadmOptions = map[string]string{
	"--add-service": "-A", "--add-server": "-a", "--edit-service": "-A", "-E": "-A", "--edit-server": "-a", "-e": "-a",
	"--tcp-service": "-t", "--udp-service": "-u", "--fwmark-service": "-f", "--scheduler": "-s",
	"--persistent": "-p", "--netmask": "-M", "--real-server": "-r", "--masquerading": "-m", "--gatewaying": "-g", "--ipip": "-i",
	"--weight": "-w", "--u-threshold": "-x", "--l-threshold": "-y", "--sched-flags": "-b", "--ops": "-o", "--ipv6": "-6",
}

// command is one line of ipvsadm.
type command struct {
	line   int
	values map[string]string
}

func (c *command) has(option string) bool {
	_, found := c.values[option]
	return found
}

// ipvsadm reads the output of "ipvsadm -Sn".
type ipvsadm struct{ *conversion }

func (c ipvsadm) read(text string) {
	servers := map[string]*balancer{} // nil: one that is left out
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		cmd := command{line: i + 1, values: options(words)}
		protocol, at := cmd.virtual()
		b, known := servers[protocol+at]
		switch {
		case cmd.has("-A") && at != "":
			c.recognized = true
			servers[protocol+at] = c.virtualServer(&cmd, protocol, at)
		case cmd.has("-a") && b != nil:
			c.realServer(&cmd, b)
		case !cmd.has("-a") || !known:
			c.note(cmd.line, "%q: not a line of ipvsadm -Sn; it is left out", line)
		}
	}
	for _, b := range c.balancers {
		c.finish(b)
	}
}

// options reads the words of a line. A word after an option is its value.
func options(words []string) map[string]string {
	values := map[string]string{}
	last := ""
	for _, w := range words {
		short, known := ipvsadmOptions[w]
		switch {
		case known:
			last = short
		case strings.HasPrefix(w, "-"):
			last = w
		default:
			values[last] = strings.TrimSpace(values[last] + " " + w)
			continue
		}
		values[last] = ""
	}
	return values
}

// virtual returns what a line is about. A firewall mark has no protocol.
func (c *command) virtual() (protocol, at string) {
	for option, name := range map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP", "-f": ""} {
		if c.has(option) {
			return name, c.values[option]
		}
	}
	return "", ""
}

// virtualServer reads a line -A. It returns nil if the virtual server has no counterpart.
func (c ipvsadm) virtualServer(cmd *command, protocol, at string) *balancer {
	if protocol == "" {
		c.others(cmd, "-A")
		return nil
	}
	where, err := hostPort(at)
	if err != nil {
		c.note(cmd.line, "virtual server %s: %s; it is left out", at, err)
		return nil
	}
	b := c.balancer(cmd.line, fmt.Sprintf("%s %s", protocol, at))
	c.named(b, frontendName(protocol, where))
	b.listen(protocol, where.Port(), where.Addr())
	if s := cmd.values["-s"]; s != "" {
		c.schedule(b, cmd.line, s)
	}
	for flag := range strings.SplitSeq(cmd.values["-b"], ",") {
		c.flag(b, cmd.line, flag)
	}
	if cmd.has("-p") {
		c.persist(b, cmd.line, cmd.values["-p"])
	}
	c.others(cmd, "-A")
	return b
}

// realServer reads a line -a.
func (c ipvsadm) realServer(cmd *command, b *balancer) {
	at, err := hostPort(cmd.values["-r"])
	if err != nil {
		c.note(cmd.line, "real server %s: %s; it is left out", cmd.values["-r"], err)
		return
	}
	way := shortform.Forwarding("route")
	switch {
	case cmd.has("-i"):
		words := []string{cmd.values["--tun-type"], cmd.values["--tun-port"]}
		for _, sum := range []string{"csum", "remcsum"} {
			if cmd.has("--tun-" + sum) {
				words = append(words, sum)
			}
		}
		way = tunnel(words...)
	case cmd.has("-m"):
		way = ""
	}
	if len(b.Spec.Endpoints) == 0 {
		b.Spec.Forwarding = way
	}
	c.endpoint(b, cmd.line, at, way, c.weight(cmd.line, cmd.values["-w"]), false)
	c.others(cmd, "-a")
}

// hostPort parses an address and a port as ipvsadm prints them with -n.
func hostPort(text string) (netip.AddrPort, error) {
	address, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return addrPort(address, port)
}

// others names the options that are not converted.
func (c ipvsadm) others(cmd *command, block string) {
	for _, option := range slices.Sorted(maps.Keys(cmd.values)) {
		if fate, found := c.fates[place{block, option}]; !found || fate != "" {
			c.note(cmd.line, "%s: %s", strings.TrimSpace(option+" "+cmd.values[option]), cmp.Or(fate, unknown))
		}
	}
}
