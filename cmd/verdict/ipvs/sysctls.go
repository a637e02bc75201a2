package ipvs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// Sysctls that Verdict sets for IPVS go back with --cleanup. Before it sets them, it records their former values in the
// comment of a table, as "name=value name=value". The kernel keeps both for the same time. What is in the record
// already is the former value, whatever the sysctl has now.

// forwarding is what kube-proxy sets in mode ipvs as well.
var forwarding = ipvsctl.Sysctl{
	Name: "net.ipv4.ip_forward", Value: "1", Reason: "this node forwards nothing to pods and other nodes",
}

// recordSysctls adds the settings that differ to the record.
func recordSysctls(list []ipvsctl.Sysctl) error {
	record, err := kernel.ReadRecord(kernel.Options{})
	if err != nil {
		return err
	}
	words := strings.Fields(record)
	for _, s := range list {
		now, err := readSysctl(s.Name)
		known := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, s.Name+"=") })
		if err == nil && now != s.Value && !known { // otherwise nothing is set
			words = append(words, s.Name+"="+now)
		}
	}
	if text := strings.Join(words, " "); text != record {
		return kernel.WriteRecord(kernel.Options{}, text)
	}
	return nil
}

// RestoreSysctls gives sysctls their former values, unless they have got another value since Verdict set them. With a
// successor that uses IPVS, they stay: it needs the same values, and does not set them again.
func RestoreSysctls(successor bool, log *slog.Logger) error {
	record, err := kernel.ReadRecord(kernel.Options{})
	if err != nil || record == "" {
		return err
	}
	if successor {
		return kernel.DeleteRecord(kernel.Options{})
	}
	var errs []error
	for _, s := range append(ipvsctl.Sysctls(true), forwarding) {
		former, found := recorded(record, s.Name)
		now, err := readSysctl(s.Name)
		if !found || err != nil || now != s.Value {
			continue
		}
		if err := os.WriteFile(sysctlFile(s.Name), []byte(former), 0); err != nil {
			errs = append(errs, fmt.Errorf("restore sysctl %s=%s: %w; %w", s.Name, former, err, nodesetup.ErrRefused))
			continue
		}
		log.Info("kernel setting changed", "name", s.Name, "from", now, "to", former)
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the record stays for the next attempt
	}
	return kernel.DeleteRecord(kernel.Options{})
}

func recorded(record, name string) (value string, found bool) {
	for word := range strings.FieldsSeq(record) {
		if value, found = strings.CutPrefix(word, name+"="); found {
			return value, true
		}
	}
	return "", false
}

func sysctlFile(name string) string {
	return filepath.Join(ipvsctl.ProcSys, strings.ReplaceAll(name, ".", "/"))
}

func readSysctl(name string) (string, error) {
	text, err := os.ReadFile(sysctlFile(name))
	return strings.TrimSpace(string(text)), err
}
