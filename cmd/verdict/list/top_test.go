package list

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

func topRows() []topRow {
	return []topRow{
		{Load: snapshot.Load{Service: "shop/web:http", Rate: 11, Refused: 5, Total: 132}},
		{Load: snapshot.Load{Service: "shop/busy:http", Rate: 1, Total: 1002}},
		{Load: snapshot.Load{Service: "shop/anew:http", Rate: 0, Refused: 1, Total: 3}},
	}
}

func TestTopRows(t *testing.T) {
	for column, want := range map[string]string{
		"connections": "shop/web:http shop/busy:http shop/anew:http", "refused": "shop/web:http shop/anew:http shop/busy:http",
		"total": "shop/busy:http shop/web:http shop/anew:http", "name": "shop/anew:http shop/busy:http shop/web:http",
	} {
		o := top{sort: column, rows: topRows()}
		o.sortRows()
		var names []string
		for _, r := range o.rows {
			names = append(names, r.Service)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", column, got, want)
		}
	}
}

// TestTopScreen: the screen fits, whatever there is to show.
func TestTopScreen(t *testing.T) {
	rows := topRows()
	for i := range 1000 {
		rows = append(rows, topRow{Load: snapshot.Load{Service: fmt.Sprintf("namespace/%s-%d:http", strings.Repeat("long", 20), i)}})
	}
	o := top{interval: time.Second, sort: "connections", rows: rows}
	o.daemon = []string{strings.Repeat("daemon ", 50), "latest pass"}
	for _, size := range [][2]int{{80, 24}, {60, 10}, {200, 50}} {
		text := o.screen(size[0], size[1])
		lines := strings.Split(text, "\n")
		if len(lines) != size[1] || !strings.Contains(text, "shop/web:http") {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if len(line) > size[0] {
				t.Errorf("%v: %d columns: %s", size, len(line), line)
			}
		}
	}
}

// TestTopFastPath: the column is there only if connections may take the fast path, and the screen fits with it.
func TestTopFastPath(t *testing.T) {
	rows := topRows()
	rows[0].Open = []socket.Passing{{Open: 5, FastPath: 3}, {Open: 2, FastPath: 2}}
	rows = append(rows, topRow{Load: snapshot.Load{Service: strings.Repeat("long", 30)}})
	o := top{interval: time.Second, sort: "connections", rows: rows}
	if text := o.screen(80, 24); strings.Contains(text, "Fast path") {
		t.Errorf("it is off, but:\n%s", text)
	}
	o.fast = true
	text := o.screen(80, 24)
	for _, want := range []string{"Fast path  Stranded\n", "132         5         0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if len(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

func TestTopMistakes(t *testing.T) {
	for _, args := range []string{"--sort=size", "--interval=1ms", "a/b/c"} {
		cmd := NewTop()
		cmd.SetFlagErrorFunc(flags.WrongValue)
		cmd.SetArgs(strings.Fields(args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if _, wrong := cmd.Execute().(flags.UsageError); !wrong { //nolint:errorlint // NewTop returns it as it is
			t.Errorf("top %s is no wrong usage", args)
		}
	}
}
