package conntrack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReadRoom(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadRoom(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without nf_conntrack: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("sys/net/netfilter/nf_conntrack_count", "90\n")
	write("sys/net/netfilter/nf_conntrack_max", "100\n")
	if r, err := ReadRoom(root); err != nil || r != (Room{Entries: 90, Limit: 100}) || !r.Tight() {
		t.Errorf("without statistics: %+v, %v", r, err)
	}
	write("thread-self/net/stat/nf_conntrack", "entries  clashres drop early_drop icmp_error\n00000001 00000000 0000000a 00000003 00000000\n"+
		"00000001 00000000 00000001 00000000 00000000\n")
	if r, err := ReadRoom(root); err != nil || r != (Room{Entries: 90, Limit: 100, Dropped: 11, Evicted: 3}) {
		t.Errorf("with statistics: %+v, %v", r, err)
	}
	for _, r := range []Room{{}, {Entries: 89, Limit: 100}, {Entries: 10}} {
		if r.Tight() {
			t.Errorf("%+v is tight", r)
		}
	}
}
