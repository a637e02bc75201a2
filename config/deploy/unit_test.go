package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// directives are those keys of systemd.unit(5), systemd.service(5), systemd.exec(5) and systemd.kill(5) that are useful
// here. systemd itself only warns about an unknown key and ignores it.
func directives() map[string][]string {
	return map[string][]string{
		"Unit": {"After", "Description", "Documentation", "PartOf", "StartLimitIntervalSec", "Wants"},
		"Service": {
			"AmbientCapabilities", "CapabilityBoundingSet", "ConfigurationDirectory", "DynamicUser", "Environment", "EnvironmentFile", "ExecReload", "ExecStart", "ExecStartPre", "ExecStop", "RemainAfterExit", "RuntimeDirectory", "RuntimeDirectoryPreserve",
			"NotifyAccess", "TimeoutStartSec", "WatchdogSec",
			"LockPersonality", "MemoryDenyWriteExecute", "NoNewPrivileges", "OOMScoreAdjust", "PrivateDevices", "PrivateTmp",
			"ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
			"ProtectKernelTunables", "ProtectProc", "ProtectSystem", "Restart", "RestartPreventExitStatus", "RestartSec",
			"RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures",
			"SystemCallFilter", "TimeoutStopSec", "Type", "UMask",
		},
		"Install": {"WantedBy"},
	}
}

// unit reads verdict.service, or another unit, as section, key and value. The test fails if systemd would not understand a line.
func unit(t *testing.T, name ...string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(append(name, "verdict.service")[0])
	if err != nil {
		t.Fatal(err)
	}
	known, got, section := directives(), map[string]map[string]string{}, ""
	for i, line := range strings.Split(string(text), "\n") {
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			if known[section] == nil || got[section] != nil {
				t.Errorf("line %d: section %s is unknown or occurs twice", i+1, section)
			}
			got[section] = map[string]string{}
		case !ok || !slices.Contains(known[section], key):
			t.Errorf("line %d: %q is unknown in section %q", i+1, line, section)
		case got[section][key] != "":
			t.Errorf("line %d: %s occurs twice", i+1, key)
		default:
			got[section][key] = value
		}
	}
	return got
}

func TestUnit(t *testing.T) {
	got := unit(t)
	for _, tt := range []struct{ section, key, want, why string }{
		{"Service", "Type", "notify", "units after this one need the rules"},
		{"Service", "NotifyAccess", "main", "no other process speaks for the daemon"},
		{"Service", "ExecReload", "/usr/local/bin/verdict reload", "it waits, and says what became of it"},
		{"Service", "TimeoutStopSec", "10", ""},
		{"Service", "Restart", "on-failure", "a node without its proxy is of no use"},
		{"Service", "RestartPreventExitStatus", "2", "exit code 2 says that the flags are wrong"},
		{"Service", "ExecStartPre", "-+" + strings.Replace(got["Service"]["ExecStart"], " run ", " run --init-only ", 1), "RestartPreventExitStatus is not for this command"},
		{"Service", "Environment", "GOTRACEBACK=crash", "a panic must not look like wrong flags"},
		{"Unit", "StartLimitIntervalSec", "0", "systemd would give up after five failures"},
		{"Service", "AmbientCapabilities", got["Service"]["CapabilityBoundingSet"], "an ordinary user gets no others"},
		{"Service", "NoNewPrivileges", "yes", ""},
		{"Service", "DynamicUser", "yes", "a state folder or a socket is not needed"},
		{"Install", "WantedBy", "multi-user.target", ""},
	} {
		if v := got[tt.section][tt.key]; v != tt.want {
			t.Errorf("%s=%s, want %s: %s", tt.key, v, tt.want, tt.why)
		}
	}
	if after := strings.Fields(got["Unit"]["After"]); !slices.Contains(after, "network-pre.target") || !slices.Contains(after, "nftables.service") || slices.Contains(after, "network.target") {
		t.Errorf("After=%v", after)
	}
	leave := unit(t, "verdict-leave.service")
	for key, want := range map[string]string{
		"After": "verdict.service network.target", "PartOf": "verdict.service", // it ends before both, and with the first
		"Type": "oneshot", "RemainAfterExit": "yes", "ExecStop": "-/usr/local/bin/verdict leave --settle=5s --timeout=1m", "TimeoutStopSec": "75",
	} {
		if v := leave["Unit"][key] + leave["Service"][key]; v != want {
			t.Errorf("verdict-leave.service: %s=%s, want %s", key, v, want)
		}
	}
	if wants := strings.Fields(got["Unit"]["Wants"]); !slices.Contains(wants, "verdict-leave.service") {
		t.Errorf("Wants=%v", wants)
	}
	start := command(got)
	if start[0] != "/usr/local/bin/verdict" || !slices.Contains(start, "--manifests=/etc/"+got["Service"]["ConfigurationDirectory"]) {
		t.Errorf("ExecStart=%v: the folder is not the one that systemd creates", start)
	}
}

// command returns ExecStart without the variable for further flags.
func command(unit map[string]map[string]string) []string {
	return slices.DeleteFunc(strings.Fields(unit["Service"]["ExecStart"]), func(word string) bool { return word == "$VERDICT_ARGS" })
}
