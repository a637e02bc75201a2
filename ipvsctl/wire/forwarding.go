package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Forwarding is how packets reach a real server. The zero value is NAT.
type Forwarding struct {
	Method   Method
	Tunnel   Tunnel   // for ByTunnel
	Port     uint16   // UDP port of GUE
	Checksum Checksum // of GUE and GRE
}

// Method is the method of forwarding. The numbers are those of the kernel.
type Method uint8

// The methods.
const (
	NAT      Method = 0
	ByTunnel Method = 2
	ByRoute  Method = 3 // the packet keeps its addresses and goes to the MAC address of the real server
)

// Tunnel is the encapsulation. The numbers are those of the kernel.
type Tunnel uint8

// The encapsulations.
const (
	IPIP Tunnel = iota
	GUE         // IP in UDP
	GRE
)

// Checksum is the checksum of the encapsulation. The numbers are those of the kernel.
type Checksum uint8

// The checksums.
const (
	NoChecksum Checksum = iota
	WithChecksum
	RemoteChecksum // GUE only: the outer checksum stands for the inner one
)

func tunnels() []string   { return []string{"ipip", "gue", "gre"} }
func checksums() []string { return []string{"nocsum", "csum", "remcsum"} }

// gueDefault is the port that IANA has assigned to GUE.
const gueDefault = 6080

// ParseForwarding parses "nat", "route" or "tunnel". After "tunnel" may follow the encapsulation (ipip, gue or gre), the
// port of GUE, and the checksum (csum, or remcsum for GUE), separated by commas.
func ParseForwarding(text string) (Forwarding, error) {
	words := strings.Split(text, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	f := Forwarding{}
	switch words[0] {
	case "nat":
	case "route":
		f.Method = ByRoute
	case "tunnel":
		f.Method = ByTunnel
	default:
		return Forwarding{}, fmt.Errorf("%q is not nat, route or tunnel", text)
	}
	for i, word := range words[1:] {
		if f.Method != ByTunnel || i == 0 && !f.parseTunnel(word) || i > 0 && !f.parseDetail(word) {
			return Forwarding{}, fmt.Errorf("%q has no meaning in forwarding %q", word, text)
		}
	}
	if f.Tunnel == GUE && f.Port == 0 {
		f.Port = gueDefault
	}
	return f, nil
}

func (f *Forwarding) parseTunnel(word string) bool {
	i := slices.Index(tunnels(), word)
	f.Tunnel = Tunnel(max(i, 0))
	return i >= 0
}

// parseDetail parses a port or a checksum. Each may be given once.
func (f *Forwarding) parseDetail(word string) bool {
	if sum := slices.Index(checksums(), word); sum > 0 {
		fits := f.Checksum == NoChecksum && (f.Tunnel == GUE || f.Tunnel == GRE && Checksum(sum) == WithChecksum)
		f.Checksum = Checksum(sum)
		return fits
	}
	port, err := strconv.ParseUint(word, 10, 16)
	fits := err == nil && port != 0 && f.Port == 0 && f.Tunnel == GUE
	f.Port = uint16(port)
	return fits
}

// Options returns the options of ipvsadm that choose the forwarding.
func (f Forwarding) Options() string {
	switch f.Method {
	case NAT:
		return "-m"
	case ByRoute:
		return "-g"
	case ByTunnel:
		return "-i" + f.tunnelOptions()
	}
	return fmt.Sprintf("forwarding %d", f.Method)
}

func (f Forwarding) tunnelOptions() string {
	if int(f.Tunnel) >= len(tunnels()) || int(f.Checksum) >= len(checksums()) {
		return fmt.Sprintf(" --tun-type %d --tun-port %d, flags %d", f.Tunnel, f.Port, f.Checksum)
	}
	text := ""
	if f.Tunnel != IPIP {
		text = " --tun-type " + tunnels()[f.Tunnel]
	}
	if f.Port != 0 {
		text += fmt.Sprintf(" --tun-port %d", f.Port)
	}
	if f.Tunnel != IPIP || f.Checksum != NoChecksum {
		text += " --tun-" + checksums()[f.Checksum]
	}
	return text
}
