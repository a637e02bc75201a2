package preflight

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

func TestKernel(t *testing.T) {
	for release, want := range map[string]Status{
		"5.12.19": Error, "4.19.0-26-amd64": Error, "5.13.0": OK, "5.15.0-105-generic": OK, "6.1.0-18": OK, "unknown": Warning,
	} {
		if f := Kernel(release); f.Status != want || (want == OK) != (f.Remedy == "") {
			t.Errorf("%s: %+v, want %s", release, f, want)
		}
	}
}

func TestNFTables(t *testing.T) {
	refused := errors.New("refused")
	list := []kernel.Feature{{Family: program.IPv4, Name: "nat"}, {Family: program.IPv6, Name: "nat", Module: "nft_nat", Err: refused}}
	got := NFTables(list, nil)
	if len(got) != 1 || got[0].Status != Error || !strings.Contains(got[0].Remedy, "nft_nat") {
		t.Errorf("a refused feature: %+v", got)
	}
	if got := NFTables(list[:1], nil); len(got) != 1 || got[0].Status != OK {
		t.Errorf("no refused feature: %+v", got)
	}
	list[1].Err = fs.ErrPermission
	for _, got := range [][]Finding{NFTables(list, nil), NFTables(nil, fs.ErrPermission)} {
		if len(got) != 1 || got[0].Remedy != asRoot {
			t.Errorf("without the right: %+v", got)
		}
	}
}

func TestIPVS(t *testing.T) {
	s := config.Default()
	if f := IPVS(&s, nil, ipvsctl.ErrNoIPVS); f.Status != OK || f.Remedy != "" {
		t.Errorf("no IPVS, and no flag asks for it: %+v", f)
	}
	s.DefaultScheduler = "lc"
	some := &ipvsctl.Support{Schedulers: []string{"rr"}, Missing: []string{"lc"}}
	if f := IPVS(&s, some, nil); f.Status != Warning || !strings.Contains(f.Detail, "ip_vs_lc") {
		t.Errorf("a scheduler is missing: %+v", f)
	}
	if f := IPVS(&s, &ipvsctl.Support{Schedulers: []string{"rr"}}, nil); f.Status != OK {
		t.Errorf("all schedulers: %+v", f)
	}
	if f := IPVS(&s, nil, ipvsctl.ErrNoIPVS); f.Status != Warning {
		t.Errorf("no IPVS: %+v", f)
	}
	s.Backend, s.IPVS.Fallback = config.BackendIPVS, false
	if f := IPVS(&s, nil, ipvsctl.ErrNoIPVS); f.Status != Error {
		t.Errorf("no IPVS and no fallback: %+v", f)
	}
	s.Backend = config.BackendNFT
	if f := IPVS(&s, nil, nil); f.Status != OK {
		t.Errorf("not needed: %+v", f)
	}
}

func TestSysctls(t *testing.T) {
	root := t.TempDir()
	for _, s := range sysctls {
		file := filepath.Join(root, strings.ReplaceAll(s.name, ".", "/"))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(s.wrong+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range Sysctls(root, false, false) {
		if f.Status != sysctls[i].status || f.Remedy == "" {
			t.Errorf("%+v, want %s", f, sysctls[i].status)
		}
	}
	if f := Sysctls(root, true, false)[0]; f.Status != Warning {
		t.Errorf("on a node with IPv6 only: %+v", f)
	}
	if f := Sysctls(root, false, true)[0]; f.Status != Warning || !strings.HasPrefix(f.Remedy, "none, if Verdict has not run yet") {
		t.Errorf("before the first start: %+v", f)
	}
	if list := Sysctls(t.TempDir(), false, false); len(list) > 0 {
		t.Errorf("without files: %+v", list)
	}
}

func TestPrintTable(t *testing.T) {
	var b strings.Builder
	list := []Finding{{"kernel", OK, "fine", ""}, {"a longer name", Error, "bad", "mend it"}}
	if err := PrintTable(&b, list); err != nil {
		t.Fatal(err)
	}
	want := "ok       kernel         fine\nerror    a longer name  bad\n                        -> mend it\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

func TestRoom(t *testing.T) {
	for _, tt := range []struct {
		room conntrack.Room
		err  error
		want Status
	}{
		{conntrack.Room{Entries: 10, Limit: 100}, nil, OK},
		{conntrack.Room{Entries: 95, Limit: 100}, nil, Warning},
		{conntrack.Room{}, fs.ErrNotExist, OK},
		{conntrack.Room{}, fs.ErrPermission, Warning},
	} {
		if f := Room(tt.room, tt.err); f.Status != tt.want || (f.Remedy == "") != (tt.want == OK) || f.Detail == "" {
			t.Errorf("%+v, %v: %+v", tt.room, tt.err, f)
		}
	}
}

// TestManifests: the daemon of the systemd unit is an ordinary user, so a folder or file that others cannot read is named, and
// one that this user cannot look at is no error.
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	for _, tt := range []struct {
		dir, file fs.FileMode
		names     string // in the finding; "": all is well
	}{{0o755, 0o644, ""}, {0o755, 0o600, file}, {0o700, 0o644, dir}, {0o754, 0o644, dir}} {
		if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Chmod(dir, tt.dir), os.Chmod(file, tt.file)); err != nil {
			t.Fatal(err)
		}
		want := Finding{Check: "manifests", Status: OK, Detail: dir + " can be read"}
		if tt.names != "" {
			want.Status, want.Detail = Warning, tt.names+" can be read by its owner and group only"
			want.Remedy = "chmod o+rX " + tt.names + ", unless the daemon runs as one of them"
		}
		if f := Manifests(dir); f != want {
			t.Errorf("%o, %o: %+v, want %+v", tt.dir, tt.file, f, want)
		}
	}
	if f := Manifests(filepath.Join(dir, "none")); f.Status != Error {
		t.Errorf("no folder: %+v", f)
	}
	if os.Geteuid() != 0 {
		return
	}
	found := make(chan Finding)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_ = syscall.Setfsuid(65534)
		found <- Manifests(dir)
	}()
	if f := <-found; f.Status != Warning || f.Remedy != asRoot {
		t.Errorf("another user looks at the folder: %+v", f)
	}
}
