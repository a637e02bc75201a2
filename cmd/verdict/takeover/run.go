package takeover

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/source/host"
)

// syncPeriod is longer than the time after which a kube-proxy that runs writes its rules again.
const syncPeriod = 40 * time.Second

// attempts is how often the removal is tried. Other software may change the same tables at the same time.
const attempts = 5

// Run takes the node over from kube-proxy: it removes what kube-proxy left. The rules of Verdict are in the kernel before.
func Run(log *slog.Logger) {
	start := time.Now()
	var removed []string
	var keeps bool // the device of the mode ipvs stays
	for n := 1; ; n++ {
		names, kept, err := remove(log)
		keeps = kept
		removed = append(removed, names...)
		if err == nil {
			break
		}
		if n == attempts {
			log.Error("cannot remove all that kube-proxy may have left; its rules stay beside those of Verdict and get out of date; "+
				"remove them with \"kube-proxy --cleanup\", or restart the node", "error", logging.OneLine(err))
			return
		}
		time.Sleep(time.Duration(n) * 200 * time.Millisecond)
	}
	if len(removed) == 0 {
		log.Info("kube-proxy has left nothing on this node")
		return
	}
	log.Info("took over from kube-proxy; its rules are removed", "removed", strings.Join(removed, ", "), "duration", time.Since(start))
	time.Sleep(syncPeriod)
	again, _ := Find() // what it cannot find is no reason for an alarm
	if again.Device = again.Device && !keeps; !again.Empty() {
		log.Error("kube-proxy has written its rules again, so it runs on this node; stop it, and start Verdict again",
			"found", strings.Join(again.Names(), ", "))
	}
}

// remove removes what it finds, and returns its names. It reports whether the device of the mode ipvs stays.
func remove(log *slog.Logger) (names []string, keeps bool, err error) {
	found, err := Find()
	if found.Empty() {
		return nil, false, err
	}
	err = errors.Join(err, found.Remove())
	if kept := found.Kept(); err == nil && len(kept) > 0 {
		log.Warn("chains of kube-proxy stay, without rules that translate, because rules of other software lead to them", "chains", strings.Join(kept, ", "))
	}
	if err == nil && found.Device {
		keeps, err = removeDevice(log)
	}
	return found.Names(), keeps, err
}

// removeDevice removes the device of the mode ipvs, unless a virtual server still needs it.
func removeDevice(log *slog.Logger) (keeps bool, err error) {
	places, err := Places()
	left := 0
	if err == nil && ipvsctl.Loaded() {
		left, err = ipvsctl.Foreign(ipvsctl.Options{}, places)
	}
	if err != nil {
		return false, err
	}
	if left > 0 {
		log.Warn("virtual servers that Verdict has not made stay, with the device of kube-proxy; if nothing else needs them, remove them "+
			"with ipvsadm, and start Verdict again", "virtualServers", left, "device", host.KubeProxyDevice)
		return true, nil
	}
	return false, RemoveDevice()
}

// AdoptVirtualServers makes Verdict the owner of the virtual servers of kube-proxy. Their connections live on, and the
// virtual servers end with the last one. It comes before IPVS is opened.
func AdoptVirtualServers(o ipvsctl.Options, log *slog.Logger) {
	places, err := Places()
	n := 0
	if err == nil && len(places) > 0 && ipvsctl.Loaded() {
		n, err = ipvsctl.Adopt(o, places)
	}
	if err != nil {
		log.Error("cannot take over all virtual servers of kube-proxy; they stay until somebody removes them; "+
			"new connections do not use them where nft serves", "error", logging.OneLine(err))
	}
	if n > 0 {
		log.Info("took over the virtual servers of kube-proxy; each goes when its last connection ends", "virtualServers", n)
	}
}

// HandOver gives the virtual servers to a kube-proxy in the mode ipvs that serves by now. It reports whether there is one.
func HandOver(log *slog.Logger) (bool, error) {
	places, err := Places()
	if err != nil || len(places) == 0 || !ipvsctl.Loaded() {
		return false, err
	}
	n, err := ipvsctl.HandOver(ipvsctl.Options{}, places)
	if err != nil {
		return true, fmt.Errorf("hand the virtual servers over to kube-proxy: %w; nothing else was removed", err)
	}
	if n > 0 {
		log.Info("handed virtual servers over to kube-proxy", "count", n)
	}
	return true, nil
}

// Places are the addresses at which the mode ipvs has virtual servers: those of the device, with the value true, and
// those of other devices, for node ports. There are none without the device.
func Places() (map[netip.Addr]bool, error) {
	device, err := host.FindKubeProxyDevice()
	if device == nil || err != nil {
		return nil, err
	}
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this node: %w", err)
	}
	places := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addr = addr.Unmap()
			places[addr] = a.LinkIndex == device.Attrs().Index
		}
	}
	return places, nil
}

// RemoveDevice removes the device and its addresses. Virtual servers at these addresses get no packets after that, unless
// something else makes the addresses local.
func RemoveDevice() error {
	device, err := host.FindKubeProxyDevice()
	if device == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(device); err != nil {
		return fmt.Errorf("remove the device %s: %w", host.KubeProxyDevice, err)
	}
	return nil
}
