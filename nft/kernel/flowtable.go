package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Attributes of flowtables (linux/netfilter/nf_tables.h), which package unix does not have.
const (
	flowtableTable = 1
	flowtableName  = 2
	flowtableHook  = 3
	flowtableFlags = 7

	flowtableHookNumber   = 1
	flowtableHookPriority = 2
	flowtableHookDevices  = 3

	deviceName = 1
)

// flowtable writes a flowtable, or devices that it gets or loses. With devices, it must be there: the kernel makes none without a hook.
func (b *Batch) flowtable(o *program.Operation, kind uint16) {
	start := b.open(o, kind, 0)
	b.Text(flowtableTable, o.TableName())
	b.Text(flowtableName, o.Name)
	creates := kind == unix.NFT_MSG_NEWFLOWTABLE && len(o.Devices) == 0
	if creates || len(o.Devices) > 0 {
		hook := b.Nest(flowtableHook)
		if shape := program.OurFlowtable(); creates {
			b.Uint32(flowtableHookNumber, shape.Hook)
			b.Uint32(flowtableHookPriority, shape.Priority)
		}
		list := b.Nest(flowtableHookDevices)
		for _, name := range o.Devices {
			b.Text(deviceName, name)
		}
		b.Unnest(list)
		b.Unnest(hook)
	}
	if creates {
		b.Uint32(flowtableFlags, program.OurFlowtable().Flags)
	}
	b.End(start)
}

// A flaw of some kernels, for which the fast path stays off. The last version is the last one that has it for certain or perhaps.
type flaw struct {
	first, last [2]int
	what        string
}

func fastPathFlaws() []flaw {
	return []flaw{
		{[2]int{6, 19}, [2]int{6, 19}, "breaks TCP connections with NAT (firewalld/firewalld #1555)"},
		// Since 03428ca5cee9 ("rework offload nf_conn timeout extension logic"), connection tracking forgets a connection that is on the fast
		// path for long, with and without hardware. Some stable versions got the fix in 2026, but their numbers do not tell.
		{[2]int{6, 14}, [2]int{7, 0}, "ends connections that are long on it (openwrt/openwrt #23611)"},
	}
}

// flawOf returns the flaw of a version of the kernel; "": it has none, or nobody knows.
func flawOf(release string) string {
	is := versionOf(release)
	for _, x := range fastPathFlaws() {
		if slices.Compare(is[:], x.first[:]) >= 0 && slices.Compare(is[:], x.last[:]) <= 0 {
			return x.what
		}
	}
	return ""
}

// versionOf is the version of a release of the kernel; 0.0: nobody knows.
func versionOf(release string) (is [2]int) {
	if n, _ := fmt.Sscanf(release, "%d.%d", &is[0], &is[1]); n < 2 {
		return [2]int{}
	}
	return is
}

// SlowPath returns why the kernel cannot have the fast path; "": it can. It changes nothing.
func SlowPath(o Options) (why string, err error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("read the version of the kernel: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	if what := flawOf(release); what != "" {
		return "the fast path of Linux " + release + " " + what, nil
	}
	err = With(o, func(c *Conn) error {
		list, err := TryFeatures(c, o.Served(), []program.Feature{program.GoingBack(), program.Offering()})
		for _, x := range slices.Backward(list) {
			if x.Err != nil {
				why = fmt.Sprintf("the kernel (%s) has no %s (modules %s): %v", release, x.Name, x.Module, x.Err)
			}
		}
		return err
	})
	return why, err
}

// throughNoBridge is the first version of the kernel that takes no connection by a bridge whose ports are not in the flowtable. Verdict
// leaves them out, because a machine may move from port to port. (7.3 is the one that was tried; 6.14 to 7.0 have flaws.)
var throughNoBridge = [2]int{7, 1}

// BridgesStay reports whether connections by a bridge stay on the rules, in the network namespace of the calling thread: because bridges
// show their packets to these (br_netfilter), or the kernel wants it so.
func BridgesStay() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		if is := versionOf(unix.ByteSliceToString(name.Release[:])); slices.Compare(is[:], throughNoBridge[:]) >= 0 {
			return true
		}
	}
	return slices.ContainsFunc([]string{"iptables", "ip6tables"}, func(name string) bool {
		text, _ := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-" + name) // without the module, there is none
		return strings.TrimSpace(string(text)) == "1"
	})
}

// WhyBridgesStay says what follows for the fast path.
const WhyBridgesStay = "connections by a bridge stay on the rules, because bridges show their packets to these first " +
	"(net.bridge.bridge-nf-call-iptables or -ip6tables is 1), or because Linux 7.1 and later want it so"

// WhySlow is SlowPath for callers that leave the fast path off if nobody knows.
func WhySlow(o Options) string {
	why, err := SlowPath(o)
	if err != nil {
		return "nobody knows whether the kernel can have the fast path: " + err.Error()
	}
	return why
}

// FoundFlowtable is a flowtable that the kernel has.
type FoundFlowtable struct {
	program.Flowtable
	Devices []string
}

// Flowtables reads the flowtables of our table, by name.
func (c *Conn) Flowtables(f program.Family) (map[string]FoundFlowtable, error) {
	list := map[string]FoundFlowtable{}
	err := c.Dump(unix.NFT_MSG_GETFLOWTABLE, f, ofOurTable, func(a nlmsg.Attributes) {
		if a.Find(flowtableTable).Text() != program.TableName {
			return
		}
		hook := a.Find(flowtableHook).Nested()
		found := FoundFlowtable{Flowtable: program.Flowtable{
			Hook: hook.Find(flowtableHookNumber).Uint32(), Priority: hook.Find(flowtableHookPriority).Uint32(), Flags: a.Find(flowtableFlags).Uint32(),
		}}
		for devices := hook.Find(flowtableHookDevices).Nested(); devices.Next(); {
			found.Devices = append(found.Devices, devices.Text())
		}
		list[a.Find(flowtableName).Text()] = found
	})
	return list, err
}
