package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFullTable: a table that gets full is logged once, and again after some minutes; so is the end.
func TestFullTable(t *testing.T) {
	root := t.TempDir()
	set := func(entries, dropped int) {
		for name, text := range map[string]string{
			"sys/net/netfilter/nf_conntrack_count": fmt.Sprintln(entries), "sys/net/netfilter/nf_conntrack_max": "1000\n",
			"thread-self/net/stat/nf_conntrack": fmt.Sprintf("drop early_drop\n%08x 00000000\n", dropped),
		} {
			file := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(10, 7)
	var out bytes.Buffer
	w := newFullWatch(root, slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Now()
	for i, step := range []struct {
		entries, dropped int
		after            time.Duration
		want             string // "": nothing is logged
	}{
		{10, 7, roomPeriod, ""},
		{899, 7, roomPeriod, ""},
		{900, 7, roomPeriod, "nearly full"},
		{1000, 9, roomPeriod, ""},
		{1000, 10, roomSayAgain, "dropped=1 "},
		{850, 10, roomPeriod, ""},
		{799, 10, roomPeriod, "has room again"},
		{700, 12, roomPeriod, "dropped=2 "}, // full for a moment
	} {
		now = now.Add(step.after)
		out.Reset()
		set(step.entries, step.dropped)
		w.look(now)
		if got := out.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("step %d: logged %q, want %q", i, got, step.want)
		}
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if w.look(now); out.Len() > 0 {
		t.Errorf("without connection tracking: %s", out.String())
	}
}
