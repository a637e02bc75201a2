package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// followed starts a source on a folder.
func followed(t *testing.T, files map[string]string) *folder {
	t.Helper()
	f := newFolder(t, files)
	f.follow()
	return f
}

func (f *folder) follow() {
	f.t.Helper()
	sourcetest.Run(f.t, f.m.Run)
	sourcetest.Eventually(f.t, "the directory is read", func() bool { return sourcetest.Synced(f.m) })
	f.store.MarkSynced()
}

// becomes waits until the Service web has the given address.
func (f *folder) becomes(ip string) {
	f.t.Helper()
	sourcetest.Eventually(f.t, "web has "+ip, func() bool { return f.webIP() == ip })
}

// webIP returns the address of the Service web, or "" if there is none.
func (f *folder) webIP() string {
	svc, _ := f.store.Service(state.Name{Namespace: "shop", Name: "web"})
	if svc == nil {
		return ""
	}
	return svc.ClusterIPs[0].String()
}

func (f *folder) rename(from, to string) {
	f.t.Helper()
	if err := os.Rename(filepath.Join(f.dir, from), filepath.Join(f.dir, to)); err != nil {
		f.t.Fatal(err)
	}
}

// TestFollow has one row for each way in which programs change files.
func TestFollow(t *testing.T) {
	before, after := service("web", "10.96.0.1"), service("web", "10.96.0.2")
	for _, tt := range []struct {
		name   string
		change func(*folder)
		want   string
	}{
		{"written in place", func(f *folder) { f.write("a.yaml", after) }, "10.96.0.2"},
		{"renamed over, as editors do", func(f *folder) {
			f.write(".a.yaml.tmp", after)
			f.rename(".a.yaml.tmp", "a.yaml")
		}, "10.96.0.2"},
		{"old one moved away first, as other editors do", func(f *folder) {
			f.rename("a.yaml", "a.yaml~")
			f.write("a.yaml", after)
			f.delete("a.yaml~")
		}, "10.96.0.2"},
		{"deleted", func(f *folder) { f.delete("a.yaml") }, ""},
		{"moved out", func(f *folder) { f.rename("a.yaml", "../a.yaml") }, ""},
		{"added before", func(f *folder) { f.write("0.yaml", after) }, "10.96.0.2"},
		{"renamed to what is no manifest", func(f *folder) { f.rename("a.yaml", "a.yaml.off") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := followed(t, map[string]string{"a.yaml": before})
			f.becomes("10.96.0.1")
			tt.change(f)
			f.becomes(tt.want)
			f.write("a.yaml", service("web", "10.96.0.77"))
			f.write("0.yaml", service("web", "10.96.0.77"))
			f.becomes("10.96.0.77") // the directory is still watched
		})
	}
}

// TestFollowHalfWritten: a program writes slowly. The previous content stays in force until the file is complete.
func TestFollowHalfWritten(t *testing.T) {
	f := followed(t, map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), service("mail", "10.96.0.5"))})
	whole := docs(service("web", "10.96.0.2"), service("mail", "10.96.0.5"))
	for _, step := range []struct {
		length int
		fault  string
	}{{0, "line 1: the file is empty"}, {31, "line 3: could not find"}, {72, "line 4: could not find"}, {len(whole) - 4, "line 13: did not find"}} {
		f.write("a.yaml", whole[:step.length])
		sourcetest.Eventually(t, fmt.Sprintf("the first %d bytes are found wanting", step.length), func() bool {
			p := f.problems()
			return len(p) == 1 && strings.Contains(p[0], step.fault) && strings.Contains(p[0], "previous content stays in force")
		})
		f.expectServices("shop/web=10.96.0.1", "shop/mail=10.96.0.5")
	}
	f.write("a.yaml", whole)
	f.becomes("10.96.0.2")
	sourcetest.Eventually(t, "the problem is gone", func() bool { return len(f.problems()) == 0 })
	f.expectServices("shop/web=10.96.0.2", "shop/mail=10.96.0.5")
}

// TestFollowUnreadable: what could not be read is read again soon, although no event says that it can be read: when a
// process has run out of descriptors, nothing changes in the directory. Here a link leads in a circle outside of it.
func TestFollowUnreadable(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("mail", "10.96.0.5")})
	outside := filepath.Join(t.TempDir(), "web.yaml")
	for _, circle := range []string{outside, filepath.Join(f.dir, "web.yaml")} {
		if err := os.Symlink(outside, circle); err != nil {
			t.Fatal(err)
		}
	}
	f.follow()
	f.expectServices("shop/mail=10.96.0.5")
	replace := func(ip string) {
		t.Helper()
		if err := os.WriteFile(outside+".new", []byte(service("web", ip)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(outside+".new", outside); err != nil {
			t.Fatal(err)
		}
	}
	replace("10.96.0.1")
	f.becomes("10.96.0.1")
	sourcetest.Eventually(t, "the problem is gone", func() bool { return len(f.problems()) == 0 })
	replace("10.96.0.2")
	f.becomes("10.96.0.2") // its directory is watched now
}

// TestFollowConfigMap: the kubelet makes every file a link through ..data and replaces that directory as a whole.
func TestFollowConfigMap(t *testing.T) {
	f := newFolder(t, nil)
	publish := func(version int, files map[string]string) {
		t.Helper()
		dir := fmt.Sprintf("..version_%d", version)
		f.mkdir(dir)
		for name, text := range files {
			f.write(filepath.Join(dir, name), text)
		}
		f.link(dir, "..data_tmp")
		f.rename("..data_tmp", "..data")
		if version > 0 {
			if err := os.RemoveAll(filepath.Join(f.dir, fmt.Sprintf("..version_%d", version-1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(0, map[string]string{"a.yaml": service("web", "10.96.0.1"), "b.yaml": service("mail", "10.96.0.5")})
	f.link("..data/a.yaml", "a.yaml")
	f.link("..data/b.yaml", "b.yaml")
	f.follow()
	f.becomes("10.96.0.1")
	for version := 1; version < 5; version++ {
		ip := fmt.Sprintf("10.96.1.%d", version)
		sourcetest.Applied(t, f.store)
		publish(version, map[string]string{"a.yaml": service("web", ip), "b.yaml": service("mail", "10.96.0.5")})
		f.becomes(ip)
		f.expectChanged(false, "shop/web")
		f.expectProblems()
	}
	publish(5, map[string]string{"a.yaml": service("web", "10.96.0.9")}) // b.yaml is a link without a target now
	f.becomes("10.96.0.9")
	sourcetest.Eventually(t, "mail is gone", func() bool { return sourcetest.LacksService(f.store, "shop", "mail") })
}

// TestFollowDirectoryReplaced: the directory is a link that changes, or it is replaced by another directory.
func TestFollowDirectoryReplaced(t *testing.T) {
	for name, place := range map[string]func(f *folder, version string){
		"link": func(f *folder, version string) {
			f.link(version, "../next")
			f.rename("../next", "../manifests")
		},
		"directory": func(f *folder, version string) {
			f.rename("../manifests", "../before-"+version)
			f.rename("../"+version, "../manifests")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t, nil)
			for i := range 3 {
				f.mkdir(fmt.Sprintf("../v%d", i))
				f.write(fmt.Sprintf("../v%d/a.yaml", i), service("web", fmt.Sprintf("10.96.0.%d", i)))
			}
			if name == "link" {
				f.delete("../manifests")
				f.link("v0", "../manifests")
			} else {
				f.write("a.yaml", service("web", "10.96.0.0"))
			}
			f.follow()
			f.becomes("10.96.0.0")
			for i := 1; i < 3; i++ {
				place(f, fmt.Sprintf("v%d", i))
				f.becomes(fmt.Sprintf("10.96.0.%d", i))
			}
			f.write("a.yaml", service("web", "10.96.0.9"))
			f.becomes("10.96.0.9")
		})
	}
}

func (f *folder) mkdir(name string) {
	f.t.Helper()
	if err := os.Mkdir(filepath.Join(f.dir, name), 0o755); err != nil {
		f.t.Fatal(err)
	}
}

// TestFollowDirectoryLost: the objects stay in force when the directory disappears.
func TestFollowDirectoryLost(t *testing.T) {
	f := followed(t, map[string]string{"a.yaml": service("web", "10.96.0.1")})
	f.rename("../manifests", "../away")
	sourcetest.Eventually(t, "the loss is logged", func() bool {
		return len(f.lines.Lines("level=WARN", "cannot read the manifest directory", "stay in force")) == 1
	})
	f.becomes("10.96.0.1")
	f.mkdir("../manifests")
	f.write("a.yaml", service("web", "10.96.0.2"))
	f.becomes("10.96.0.2")
	sourcetest.Eventually(t, "the return is logged", func() bool { return len(f.lines.Lines("level=INFO", "can be read again")) == 1 })
}

// TestFollowLinkedFile: a file is a link into another directory, where it changes.
func TestFollowLinkedFile(t *testing.T) {
	for name, target := range map[string]string{"elsewhere": "../elsewhere/web", "in the parent": "../web"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t, nil)
			f.mkdir("../elsewhere")
			f.write(target, service("web", "10.96.0.1"))
			f.link(target, "a.yaml")
			f.follow()
			f.becomes("10.96.0.1")
			f.write(target, service("web", "10.96.0.2"))
			f.becomes("10.96.0.2")
		})
	}
}

// TestLinkThatLeadsNowhere: a link without a target counts as deleted.
func TestLinkThatLeadsNowhere(t *testing.T) {
	f := newFolder(t, map[string]string{"target": service("web", "10.96.0.1")})
	f.link("target", "a.yaml")
	f.load()
	f.expectServices("shop/web=10.96.0.1")
	f.delete("target")
	f.load()
	f.expectServices()
	f.expectProblems()
}
