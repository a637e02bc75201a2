// Package nodesetup sets what the proxy needs on its host, as kube-proxy does: the size and the timeouts of connection
// tracking, and the OOM score of the process. A write that the kernel refuses is reported with what follows from it, and
// is no reason to end: most of these settings matter under load only, and an init container may have made them.
package nodesetup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/verdict-proxy/verdict/config"
)

// Host is the place of the settings. The zero value is this host; tests have another root and another number of cores.
type Host struct {
	Root  string // before /proc and /sys
	Cores int    // 0: those of this host
}

// setting is one file of the kernel with a number.
type setting struct {
	name    string // as the log names it
	file    string
	value   int
	onlyUp  bool   // a larger value stays
	enough  int    // if not 0, lower values are as good
	without string // what follows if it cannot be set
	remedy  string // empty: that of sysctls
}

// maxConnections bounds the size of the table of connection tracking on hosts with many cores, as in kube-proxy.
const maxConnections = 1 << 20

// criticalScore is the OOM score that the kubelet gives to pods with a critical priority class.
const criticalScore = -997

// Apply makes the settings that differ. It logs each change, and each failure with what follows from it.
func (h *Host) Apply(n *config.Node, log *slog.Logger) {
	h.loadModule()
	for _, s := range h.settings(n) {
		old, changed, err := h.set(&s)
		switch {
		case err == nil && changed:
			log.Info("kernel setting changed", "name", s.name, "from", old, "to", s.value)
		case err != nil:
			log.Warn("cannot change a kernel setting; it stays as it is", "name", s.name, "from", old, "to", s.value,
				"consequence", s.without, "error", err, "remedy", cmp.Or(s.remedy, remedy(err)))
		}
	}
}

// settings lists the settings in the order in which they are made.
func (h *Host) settings(n *config.Node) []setting {
	c := &n.Conntrack
	var list []setting
	for _, s := range []setting{
		{name: "max", value: h.connections(c), onlyUp: true, without: "new connections fail when the table of connections is full"},
		{name: "tcp_timeout_established", value: seconds(c.TCPEstablished),
			without: "idle TCP connections are forgotten earlier or later than --conntrack-tcp-timeout-established"},
		{name: "tcp_timeout_close_wait", value: seconds(c.TCPCloseWait),
			without: "a client that reuses the port of a connection that was half closed for long may be refused"},
		{name: "udp_timeout", value: seconds(c.UDP), without: "UDP flows without a reply are forgotten earlier or later than --conntrack-udp-timeout"},
		{name: "udp_timeout_stream", value: seconds(c.UDPStream), without: "UDP flows are forgotten earlier or later than --conntrack-udp-timeout-stream"},
	} {
		if s.value > 0 { // 0 leaves it as it is
			s.file, s.name = "/proc/sys/net/netfilter/nf_conntrack_"+s.name, "net.netfilter.nf_conntrack_"+s.name
			list = append(list, s)
		}
	}
	list = append(list, setting{
		name: "oom_score_adj of this process", file: "/proc/self/oom_score_adj", value: n.OOMScoreAdj,
		enough:  criticalScore,
		without: "when memory is short, the kernel may end Verdict earlier than --oom-score-adj asks for",
		remedy:  "give the process the capability SYS_RESOURCE; in a cluster, a critical priority class is enough",
	})
	if size := h.connections(&n.Conntrack); size > 0 {
		list = append(list, setting{
			name: "hashsize of nf_conntrack", file: "/sys/module/nf_conntrack/parameters/hashsize", value: size / 4, onlyUp: true,
			without: "lookups of connections get slower when there are many",
		})
	}
	return list
}

// connections returns how many connections the kernel has to be able to track; 0: as many as it can now.
func (h *Host) connections(c *config.Conntrack) int {
	if c.MaxPerCore == 0 {
		return 0
	}
	scaled := c.MaxPerCore * h.cores()
	if scaled > maxConnections {
		return maxConnections
	}
	return max(scaled, c.Min)
}

// cores returns the number of cores of the host. A process that is confined to some of them sees fewer.
func (h *Host) cores() int {
	if h.Cores > 0 {
		return h.Cores
	}
	if n, err := cpuset.NumCPU(); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// loadModule loads nf_conntrack, whose files exist only then. It is loaded already when the tables are in the kernel.
func (h *Host) loadModule() {
	if _, err := os.Stat(filepath.Join(h.Root, "/proc/sys/net/netfilter/nf_conntrack_max")); errors.Is(err, fs.ErrNotExist) {
		_ = exec.Command("modprobe", "-q", "nf_conntrack").Run() // set reports the missing file
	}
}

// set writes a setting if its value differs, because /proc/sys is read-only in many containers.
func (h *Host) set(s *setting) (old int, changed bool, err error) {
	file := filepath.Join(h.Root, s.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false, err
	}
	if old, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", file, err)
	}
	low := s.enough != 0 && old <= s.enough && s.value <= s.enough
	if old == s.value || s.onlyUp && old > s.value || low {
		return old, false, nil
	}
	return old, true, os.WriteFile(file, []byte(strconv.Itoa(s.value)), 0)
}

// ErrRefused is the case that the process may not write sysctls. Its text says what helps. In the DaemonSet, /proc/sys is
// read-only for the proxy.
var ErrRefused = errors.New(`run "verdict run --init-only" with the same flags as root in the network namespace of the host; ` +
	"the init container of the DaemonSet does that when a pod starts, so there, kubectl rollout restart helps")

// remedy says what helps against an error.
func remedy(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "load the kernel module nf_conntrack"
	}
	return ErrRefused.Error()
}

// Refused adds ErrRefused to the error of a sysctl that the process may not write.
func Refused(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; %w", err, ErrRefused)
	}
	return err
}

// ReadSysctl reads a sysctl, such as net.ipv4.ip_forward.
func ReadSysctl(name string) (string, error) {
	text, err := os.ReadFile(sysctlFile(name))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// WriteSysctl sets a sysctl, and says why in the error and in the log.
func WriteSysctl(name, value, reason string, log *slog.Logger) error {
	if err := os.WriteFile(sysctlFile(name), []byte(value), 0); err != nil {
		return Refused(fmt.Errorf("set sysctl %s=%s (%s): %w", name, value, reason, err))
	}
	log.Info("kernel setting changed", "name", name, "to", value, "reason", reason)
	return nil
}

func sysctlFile(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }
