package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Role is what a synchronization daemon of IPVS does. The numbers are those of the kernel. A network namespace has at most
// one daemon in each role.
type Role uint8

// The roles.
const (
	Master Role = 1 // sends the connections of this host
	Backup Role = 2 // takes over the connections of others
)

func (r Role) String() string {
	if r == Backup {
		return "backup"
	}
	return "master"
}

// Daemon is a synchronization daemon of IPVS: a thread of the kernel.
type Daemon struct {
	Role   Role
	Device string
	ID     uint8      // a backup takes what masters with this number send; 0: what all send
	Group  netip.Addr // multicast
	Port   uint16
	Ours   bool // Verdict started it
}

// The kernel's own defaults.
func defaultGroup() netip.Addr { return netip.AddrFrom4([4]byte{224, 0, 0, 81}) }

const defaultSyncPort = 8848

// ParseDaemons parses words separated by commas: master, backup or both, and device=NAME, id=NUMBER, group=ADDRESS, port=NUMBER
// for both.
func ParseDaemons(text string) ([]Daemon, error) {
	d, roles := Daemon{Group: defaultGroup(), Port: defaultSyncPort, Ours: true}, map[Role]bool{}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		switch word {
		case Master.String():
			roles[Master] = true
		case Backup.String():
			roles[Backup] = true
		default:
			if err := d.parse(word); err != nil {
				return nil, fmt.Errorf("%q: %w", word, err)
			}
		}
	}
	var list []Daemon
	for _, d.Role = range []Role{Master, Backup} {
		if roles[d.Role] {
			list = append(list, d)
		}
	}
	if len(list) == 0 || d.Device == "" {
		return nil, fmt.Errorf("%q does not name a role (master or backup) and a device=NAME", text)
	}
	return list, nil
}

func (d *Daemon) parse(word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	var n uint64
	switch name {
	case "device":
		if d.Device = value; value == "" || len(value) >= unix.IFNAMSIZ {
			err = fmt.Errorf("not the name of a device")
		}
	case "id":
		n, err = strconv.ParseUint(value, 10, 8)
		d.ID = uint8(n)
	case "port":
		n, err = strconv.ParseUint(value, 10, 16)
		if d.Port = uint16(n); err == nil && n == 0 {
			err = fmt.Errorf("0 is no port")
		}
	case "group":
		if d.Group, err = netip.ParseAddr(value); err == nil && (!d.Group.IsMulticast() || d.Group.Zone() != "") {
			err = fmt.Errorf("not a multicast address")
		}
	default:
		err = fmt.Errorf("not master, backup, device=, id=, group= or port=")
	}
	return err
}

// SameRole reports whether only one of the two can run.
func (d Daemon) SameRole(o Daemon) bool { return d.Role == o.Role }

func (d Daemon) String() string {
	return fmt.Sprintf("%s on %s, id %d, group %s, port %d", d.Role, d.Device, d.ID, d.Group, d.Port)
}

// Attributes of a daemon.
const (
	cmdNewDaemon   = 9
	cmdDelDaemon   = 10
	cmdGetDaemons  = 11
	cmdAttrDaemon  = 3
	daemonState    = 1
	daemonDevice   = 2
	daemonID       = 3
	daemonLongest  = 4
	daemonGroup    = 5
	daemonGroupSix = 6
	daemonPort     = 7
)

// mark is the longest message of a daemon that Verdict has started: the kernel stores no owner, but it returns this number.
// No other tool has a reason to set it. A backup accepts the longest messages of other masters (1472 bytes by default).
func (r Role) mark() uint16 {
	if r == Backup {
		return 1999
	}
	return 1399
}

func (d Daemon) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(cmdAttrDaemon, nil)
	a.AddRtAttr(daemonState, nl.Uint32Attr(uint32(d.Role)))
	a.AddRtAttr(daemonDevice, nl.ZeroTerminated(d.Device))
	a.AddRtAttr(daemonID, nl.Uint32Attr(uint32(d.ID)))
	if d.Ours {
		a.AddRtAttr(daemonLongest, nl.Uint16Attr(d.Role.mark()))
	}
	group := daemonGroup
	if d.Group.Is6() {
		group = daemonGroupSix
	}
	a.AddRtAttr(group, d.Group.AsSlice())
	a.AddRtAttr(daemonPort, nl.Uint16Attr(d.Port))
	return a
}

func parseDaemon(message []byte) (Daemon, error) {
	attrs, err := inner(message, cmdAttrDaemon)
	if err != nil {
		return Daemon{}, err
	}
	d := Daemon{Role: Role(number(attrs[daemonState])), ID: uint8(number(attrs[daemonID])), Port: uint16(number(attrs[daemonPort]))}
	d.Device, _, _ = strings.Cut(string(attrs[daemonDevice]), "\x00")
	group := attrs[daemonGroup]
	if six := attrs[daemonGroupSix]; six != nil {
		group = six
	}
	d.Group, _ = netip.AddrFromSlice(group)
	d.Ours = uint16(number(attrs[daemonLongest])) == d.Role.mark()
	return d, nil
}

// Daemons lists the daemons of the network namespace.
func (s *Socket) Daemons() ([]Daemon, error) {
	messages, err := s.execute(cmdGetDaemons, unix.NLM_F_DUMP)
	list := make([]Daemon, len(messages))
	for i, m := range messages {
		var parseErr error
		list[i], parseErr = parseDaemon(m)
		err = errors.Join(err, parseErr)
	}
	return list, os.NewSyscallError("list synchronization daemons", err)
}

// StartDaemon starts a daemon. It is an error if one has the role.
func (s *Socket) StartDaemon(d Daemon) error { return s.change(cmdNewDaemon, d.attribute()) }

// StopDaemon stops the daemon that has the role.
func (s *Socket) StopDaemon(d Daemon) error { return s.change(cmdDelDaemon, d.attribute()) }
