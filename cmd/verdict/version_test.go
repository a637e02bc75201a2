package main

import (
	"regexp"
	"runtime/debug"
	"testing"
)

func TestDescribeBuild(t *testing.T) {
	info := func(mainVersion string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: mainVersion}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc123"}
	clean, modified := debug.BuildSetting{Key: "vcs.modified", Value: "false"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		name    string
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		{"make build", "v1.2.3", info("v1.2.4-0.20260102-abc123", revision, clean), "verdict v1.2.3 (revision abc123, go1.26.1)"},
		{"make build with changes", "v1.2.3-dirty", info("", revision, modified), "verdict v1.2.3-dirty (revision abc123-modified, go1.26.1)"},
		{"go install module@v1.2.3", "", info("v1.2.3"), "verdict v1.2.3 (revision unknown, go1.26.1)"},
		{"go build", "", info("v0.0.0-20260102-abc123", revision, clean), "verdict v0.0.0-20260102-abc123 (revision abc123, go1.26.1)"},
		{"go build without git", "", info(""), "verdict unversioned (revision unknown, go1.26.1)"},
		{"no build information", "", nil, "verdict unversioned (revision unknown, unknown)"},
	} {
		if got := describeBuild(tt.stamped, tt.info).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestVersionCommands: both ways of asking give the same answer.
func TestVersionCommands(t *testing.T) {
	_, command, _ := inNamespace(t, "version")
	_, flag, _ := inNamespace(t, "--version")
	if command != flag || !regexp.MustCompile(`^verdict v0\.0\.0-test \(revision \S+, go1\.\S+\)\n$`).MatchString(command) {
		t.Errorf("version prints %q, --version prints %q", command, flag)
	}
}
