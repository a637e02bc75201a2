package nodesetup

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/config"
)

func TestConnections(t *testing.T) {
	tests := []struct{ perCore, min, cores, want int }{
		{32768, 131072, 2, 131072},
		{32768, 131072, 8, 262144},
		{32768, 131072, 128, 1048576},
		{32768, 2000000, 2, 2000000},
		{0, 131072, 8, 0},
	}
	for _, tt := range tests {
		h := Host{Cores: tt.cores}
		if got := h.connections(&config.Conntrack{MaxPerCore: tt.perCore, Min: tt.min}); got != tt.want {
			t.Errorf("%d for each of %d cores, at least %d: got %d, want %d", tt.perCore, tt.cores, tt.min, got, tt.want)
		}
	}
}

// host makes files as the kernel has them before the proxy starts.
func host(t *testing.T, values map[string]string) *Host {
	t.Helper()
	h := &Host{Root: t.TempDir(), Cores: 8}
	for name, value := range values {
		file := filepath.Join(h.Root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

const conntrack = "/proc/sys/net/netfilter/nf_conntrack_"

func untouched() map[string]string {
	return map[string]string{
		conntrack + "max": "65536", conntrack + "tcp_timeout_established": "432000", conntrack + "tcp_timeout_close_wait": "60",
		conntrack + "udp_timeout": "30", conntrack + "udp_timeout_stream": "120",
		"/proc/self/oom_score_adj": "0", "/sys/module/nf_conntrack/parameters/hashsize": "16384",
	}
}

// TestApply has the values before and after.
func TestApply(t *testing.T) {
	node := config.Default().Node
	everything := node
	everything.Conntrack.UDP, everything.Conntrack.UDPStream = 20e9, 90e9
	nothing := config.Node{}
	tests := []struct {
		name          string
		node          *config.Node
		before, after map[string]string // those that differ from untouched, and from before
	}{
		{"the defaults", &node, nil, map[string]string{
			conntrack + "max": "262144", conntrack + "tcp_timeout_established": "86400", conntrack + "tcp_timeout_close_wait": "3600",
			"/proc/self/oom_score_adj": "-999", "/sys/module/nf_conntrack/parameters/hashsize": "65536",
		}},
		{"larger tables stay", &node, map[string]string{conntrack + "max": "999999", "/sys/module/nf_conntrack/parameters/hashsize": "999999"},
			map[string]string{
				conntrack + "tcp_timeout_established": "86400", conntrack + "tcp_timeout_close_wait": "3600", "/proc/self/oom_score_adj": "-999",
			}},
		{"the score of the kubelet", &config.Node{OOMScoreAdj: -999}, map[string]string{"/proc/self/oom_score_adj": "-997"}, nil},
		{"everything", &everything, nil, map[string]string{
			conntrack + "max": "262144", conntrack + "tcp_timeout_established": "86400", conntrack + "tcp_timeout_close_wait": "3600",
			conntrack + "udp_timeout": "20", conntrack + "udp_timeout_stream": "90",
			"/proc/self/oom_score_adj": "-999", "/sys/module/nf_conntrack/parameters/hashsize": "65536",
		}},
		{"nothing", &nothing, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := untouched()
			for name, value := range tt.before {
				before[name] = value
			}
			h := host(t, before)
			var log bytes.Buffer
			h.Apply(tt.node, slog.New(slog.NewTextHandler(&log, nil)))
			for name, want := range before {
				if value, ok := tt.after[name]; ok {
					want = value
				}
				got, err := os.ReadFile(filepath.Join(h.Root, name))
				if err != nil || strings.TrimSpace(string(got)) != want {
					t.Errorf("%s is %q, %v; want %s", name, got, err, want)
				}
			}
			if n := strings.Count(log.String(), "kernel setting changed"); n != len(tt.after) || strings.Contains(log.String(), "WARN") {
				t.Errorf("%d changes in the log, want %d:\n%s", n, len(tt.after), &log)
			}
			log.Reset()
			if h.Apply(tt.node, slog.New(slog.NewTextHandler(&log, nil))); log.Len() > 0 {
				t.Errorf("the second time:\n%s", &log)
			}
		})
	}
}

// TestMissing: without the module, each setting is reported once, with what follows.
func TestMissing(t *testing.T) {
	h := host(t, map[string]string{"/proc/self/oom_score_adj": "-999"})
	node := config.Default().Node
	var log bytes.Buffer
	h.Apply(&node, slog.New(slog.NewTextHandler(&log, nil)))
	for _, name := range []string{
		"nf_conntrack_max", "nf_conntrack_tcp_timeout_established", "nf_conntrack_tcp_timeout_close_wait", `"hashsize of nf_conntrack"`,
	} {
		name = strings.Replace(name, "nf_", "net.netfilter.nf_", 1)
		name = strings.Replace(name, "of net.netfilter.", "of ", 1)
		if n := strings.Count(log.String(), "name="+name+" "); n != 1 {
			t.Errorf("%s is %d times in the log:\n%s", name, n, &log)
		}
	}
	if n := strings.Count(log.String(), "consequence="); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, &log)
	}
}
