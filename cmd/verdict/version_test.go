package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestDescribeBuild(t *testing.T) {
	info := func(mainVersion string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: mainVersion}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "abc123"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		name    string
		stamped build
		info    *debug.BuildInfo
		want    string
	}{
		{"make build", build{version: "v1.2.3", revision: "def456"}, info("v1.2.4-0.20260102-abc123", commit, clean),
			"verdict v1.2.3 (revision def456, " + runtime.Version() + ")"},
		{"go install module@v1.2.3", build{}, info("v1.2.3"), "verdict v1.2.3 (revision unknown, " + runtime.Version() + ")"},
		{"go build", build{}, info("v0.0.0-20260102-abc123", commit, clean),
			"verdict v0.0.0-20260102-abc123 (revision abc123, " + runtime.Version() + ")"},
		{"go build with changes", build{}, info("v0.0.0-20260102-abc123+dirty", commit, modified),
			"verdict v0.0.0-20260102-abc123+dirty (revision abc123-modified, " + runtime.Version() + ")"},
		{"go build without git", build{}, info("(devel)"), "verdict unversioned (revision unknown, " + runtime.Version() + ")"},
		{"no build information", build{}, nil, "verdict unversioned (revision unknown, " + runtime.Version() + ")"},
	} {
		if got := describeBuild(tt.stamped, tt.info).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
