// Package ipvs prepares IPVS on this host: modules, schedulers, sysctls and timeouts. It also has the host forward packets, which
// both engines need. Package ipvsctl has the engine.
package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// Open has the host forward packets, and finds out what IPVS can do. The engine is nil if IPVS has nothing to do.
func Open(s *config.Settings, log *slog.Logger) (*ipvsctl.Engine, dataplane.Scheduling, error) {
	for _, f := range program.Families() {
		if err := forward(f, log); err != nil {
			log.Warn("this host forwards no packets; connections through it time out", "family", f.Version(), "error", logging.OneLine(err))
		}
	}
	if err := checkScheduler(s.DefaultScheduler); err != nil {
		return nil, dataplane.Scheduling{}, err
	}
	engine, scheduling, err := chooseIPVS(s, log)
	byNFT := []string{"", "random", "sh", "mh"}
	if p := s.DefaultScheduler; err == nil && !slices.Contains(byNFT, p) && !slices.Contains(scheduling.Available, p) {
		log.Warn("IPVS has no such scheduler here; nft serves Services that name none, in the nearest way",
			"flag", "--default-scheduler", "scheduler", p)
	}
	return engine, scheduling, err
}

func chooseIPVS(s *config.Settings, log *slog.Logger) (engine *ipvsctl.Engine, scheduling dataplane.Scheduling, err error) {
	scheduling = dataplane.Scheduling{Backend: s.Backend, Default: s.IPVS.Scheduler, Preferred: s.DefaultScheduler}
	if s.Backend == config.BackendNFT {
		scheduling.Unavailable = "--backend is nft"
		return retireIPVS(s, log), scheduling, nil
	}
	engine, scheduling.Available, err = prepareIPVS(s, log)
	if err == nil {
		return engine, scheduling, nil
	}
	if _, usage := errors.AsType[flags.UsageError](err); usage {
		return nil, scheduling, err
	}
	if s.Backend == config.BackendIPVS && !s.IPVS.Fallback {
		return nil, scheduling, fmt.Errorf("--backend=ipvs: %w; --ipvs-fallback would serve all Services by nft instead", err)
	}
	log.Log(context.Background(), howBad(s), "IPVS cannot be used; nft serves all Services", "backend", string(s.Backend), "reason", logging.OneLine(err))
	scheduling.Unavailable = reason(err)
	return retireIPVS(s, log), scheduling, nil
}

// howBad is the level of a line about what IPVS lacks: it is no trouble if nobody asks for IPVS.
func howBad(s *config.Settings) slog.Level {
	if s.AsksForIPVS() {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// checkScheduler checks the value of --default-scheduler.
func checkScheduler(name string) error {
	if name == "" || slices.Contains(dataplane.Schedulers(), name) {
		return nil
	}
	return flags.Wrong(fmt.Errorf("--default-scheduler=%s: must be one of %s", name, strings.Join(dataplane.Schedulers(), " ")))
}

// reason returns the text for Events on Services.
func reason(err error) string {
	if errors.Is(err, ipvsctl.ErrNoIPVS) {
		return "the kernel has no IPVS"
	}
	return "IPVS cannot be used on this node, see the log of verdict"
}

// prepareIPVS sets the sysctls, opens the engine, and lists the schedulers of the kernel.
func prepareIPVS(s *config.Settings, log *slog.Logger) (*ipvsctl.Engine, []string, error) {
	options := Options(s)
	if s.IPVS.SyncDaemon != "" {
		var err error
		if options.Sync, err = wire.ParseDaemons(s.IPVS.SyncDaemon); err != nil {
			return nil, nil, flags.Wrong(fmt.Errorf("--ipvs-sync-daemon: %w", err))
		}
	}
	support, err := probeIPVS(s, options, log)
	if err != nil {
		return nil, nil, err
	}
	// Without these, IPVS connections would fail.
	if err := setSysctls(append(ipvsctl.Sysctls(s.IPVS.StrictARP), forwarding(program.IPv4)), log); err != nil {
		return nil, nil, err
	}
	engine, err := ipvsctl.Open(options)
	if err != nil {
		return nil, nil, err
	}
	changes, err := engine.SetTimeouts(ipvsctl.Timeouts{TCP: s.IPVS.TCPTimeout, TCPFin: s.IPVS.TCPFinTimeout, UDP: s.IPVS.UDPTimeout})
	if err != nil {
		log.Error("cannot set the timeouts of IPVS; they stay as they were", "error", err)
	}
	logChanges(log, changes)
	changes, err = engine.SetDaemons()
	if err != nil {
		log.Error("cannot set the synchronization daemons of IPVS; trying again", "flag", "--ipvs-sync-daemon", "error", logging.OneLine(err))
	}
	logChanges(log, changes)
	return engine, support.Schedulers, nil
}

// Options are those of the engine.
func Options(s *config.Settings) ipvsctl.Options {
	return ipvsctl.Options{Exclude: config.Prefixes(s.IPVS.ExcludeCIDR), GracefulPeriod: s.IPVS.GracefulPeriod}
}

func probeIPVS(s *config.Settings, options ipvsctl.Options, log *slog.Logger) (ipvsctl.Support, error) {
	if !slices.Contains(ipvsctl.Schedulers(), s.IPVS.Scheduler) {
		return ipvsctl.Support{}, flags.Wrong(fmt.Errorf("--ipvs-scheduler=%s: must be one of %s", s.IPVS.Scheduler, strings.Join(ipvsctl.Schedulers(), " ")))
	}
	support, err := ipvsctl.Probe(options, ipvsctl.Schedulers())
	if err != nil {
		return support, err
	}
	if len(support.Missing) > 0 {
		log.Log(context.Background(), howBad(s), "schedulers of IPVS are missing; Services that ask for one of them get another one", "detail", support.String())
	}
	if s.Backend == config.BackendIPVS && !support.Has(s.IPVS.Scheduler) {
		return support, fmt.Errorf("--ipvs-scheduler=%s: the kernel does not have it (module %s)", s.IPVS.Scheduler, ipvsctl.Module(s.IPVS.Scheduler))
	}
	return support, nil
}

// setSysctls sets what differs, and records it before. It returns an error if it cannot set one.
func setSysctls(list []ipvsctl.Sysctl, log *slog.Logger) error {
	if err := recordSysctls(list); err != nil {
		return fmt.Errorf("record the sysctls before they are set: %w", err)
	}
	changes, err := ipvsctl.SetSysctls(ipvsctl.ProcSys, list)
	logChanges(log, changes)
	return nodesetup.Refused(err)
}

func logChanges(log *slog.Logger, changes []ipvsctl.Change) {
	for _, c := range changes {
		log.Info("kernel setting changed", "name", c.Name, "from", c.Old, "to", c.New)
	}
}

// retireIPVS returns an engine that drains and removes the virtual servers of an earlier process with another backend,
// or nil if there are none. It does not load the module.
func retireIPVS(s *config.Settings, log *slog.Logger) *ipvsctl.Engine {
	if !ipvsctl.Loaded() {
		return nil
	}
	engine, err := ipvsctl.Open(Options(s))
	if err != nil {
		log.Warn("cannot look for virtual servers of an earlier process; if there are any, they stay", "error", err)
		return nil
	}
	if _, err := engine.SetDaemons(); err != nil {
		log.Warn("synchronization daemons of an earlier process stay", "error", logging.OneLine(err))
	}
	if engine.Empty() {
		engine.Close()
		return nil
	}
	log.Info("draining and removing the virtual servers of an earlier process")
	return engine
}

// CleanUp removes the virtual servers and local addresses of Verdict at once, without a drain.
func CleanUp(log *slog.Logger) error {
	if !ipvsctl.Loaded() {
		return nil
	}
	removed, err := ipvsctl.Cleanup(ipvsctl.Options{})
	if err != nil {
		return fmt.Errorf("clean up IPVS: %w", err)
	}
	if removed > 0 {
		log.Info("removed virtual servers and addresses", "count", removed)
	}
	return nil
}

// Sysctls that Verdict sets here go back with --cleanup. Before it sets them, it records their former values in the
// comment of a table, as "name=value name=value" without "net.". The kernel keeps both for the same time. What is in the record
// already is the former value, whatever the sysctl has now.

// forwarding is the sysctl without which the kernel drops packets of a family that are not for this host. kube-proxy sets that of
// IPv4 in mode ipvs as well.
func forwarding(f program.Family) ipvsctl.Sysctl {
	s := ipvsctl.Sysctl{Name: "net.ipv4.ip_forward", Value: "1", Reason: "this node forwards nothing to pods and other nodes"}
	if f == program.IPv6 {
		s.Name = "net.ipv6.conf.all.forwarding"
	}
	return s
}

// Forwards reports whether this host forwards packets of a family, and which sysctl says so. Without the family, there is none.
func Forwards(f program.Family) (sysctl string, is bool) {
	sysctl = forwarding(f).Name
	value, err := nodesetup.ReadSysctl(sysctl)
	return sysctl, err != nil || value != "0"
}

// forward has this host forward packets of a family. A router accepts router advertisements, and keeps the routes that it has from
// them, only if accept_ra is 2.
func forward(f program.Family, log *slog.Logger) error {
	if _, is := Forwards(f); is {
		return nil
	}
	var files []string
	if f == program.IPv6 {
		files, _ = filepath.Glob(ipvsctl.ProcSys + "/net/ipv6/conf/*/accept_ra") // the pattern is right
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && string(text) == "1\n" {
			if err := os.WriteFile(file, []byte("2"), 0); err != nil {
				return nodesetup.Refused(fmt.Errorf("keep the routes from router advertisements before forwarding is on: %w", err))
			}
		}
	}
	return setSysctls([]ipvsctl.Sysctl{forwarding(f)}, log)
}

// liberal is the sysctl with which connection tracking takes packets outside of the TCP window for valid ones.
func liberal() ipvsctl.Sysctl {
	return ipvsctl.Sysctl{
		Name: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: "1", Reason: "packets outside of the TCP window leave the node without translation",
	}
}

// SetLiberal sets what --conntrack-tcp-be-liberal asks for. Without the flag, the sysctl gets its former value back if Verdict has set it.
func SetLiberal(is bool, log *slog.Logger) {
	set := func() error {
		return restoreSysctls([]ipvsctl.Sysctl{liberal()}, "--conntrack-tcp-be-liberal is off", log)
	}
	if is {
		set = func() error { return setSysctls([]ipvsctl.Sysctl{liberal()}, log) }
	}
	if err := set(); err != nil {
		log.Warn("cannot change a kernel setting; it stays as it is", "name", liberal().Name, "wanted", is, "error", logging.OneLine(err))
	}
}

// word is how a sysctl begins in the record, which has little room.
func word(s *ipvsctl.Sysctl) string { return strings.TrimPrefix(s.Name, "net.") + "=" }

// recordSysctls adds the settings that differ to the record.
func recordSysctls(list []ipvsctl.Sysctl) error {
	record, err := kernel.ReadRecord(kernel.Options{})
	if err != nil {
		return err
	}
	words := strings.Fields(record)
	for _, s := range list {
		now, err := nodesetup.ReadSysctl(s.Name)
		if err == nil && now != s.Value && place(words, &s) < 0 { // otherwise nothing is set
			words = append(words, word(&s)+now)
		}
	}
	return replaceRecord(record, words)
}

// place finds a sysctl among the words of the record; -1: it is not there.
func place(words []string, s *ipvsctl.Sysctl) int {
	return slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, word(s)) })
}

func replaceRecord(record string, words []string) error {
	switch text := strings.Join(words, " "); text {
	case record:
		return nil
	case "":
		return kernel.DeleteRecord(kernel.Options{})
	default:
		return kernel.WriteRecord(kernel.Options{}, text)
	}
}

// RestoreSysctls gives sysctls their former values, unless they have got another value since Verdict set them. With a
// successor that uses IPVS, they stay: it needs the same values, and does not set them again.
func RestoreSysctls(successor bool, log *slog.Logger) error {
	var err error
	if !successor {
		all := append(ipvsctl.Sysctls(true), forwarding(program.IPv4), forwarding(program.IPv6), liberal())
		err = restoreSysctls(all, "Verdict is gone", log)
	}
	if err != nil {
		return err // the record stays for the next attempt
	}
	return kernel.DeleteRecord(kernel.Options{})
}

// restoreSysctls does that for some sysctls, and takes them from the record.
func restoreSysctls(list []ipvsctl.Sysctl, reason string, log *slog.Logger) error {
	record, err := kernel.ReadRecord(kernel.Options{})
	if err != nil || record == "" {
		return err
	}
	words := strings.Fields(record)
	var errs []error
	for _, s := range list {
		at := place(words, &s)
		if at < 0 {
			continue
		}
		_, former, _ := strings.Cut(words[at], "=")
		if now, err := nodesetup.ReadSysctl(s.Name); err == nil && now == s.Value {
			if err := nodesetup.WriteSysctl(s.Name, former, reason, log); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		words = slices.Delete(words, at, at+1)
	}
	return errors.Join(append(errs, replaceRecord(record, words))...)
}
