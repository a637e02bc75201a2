package list

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func topRows() []Load {
	a, b := counted{engine: engineNFT, port: 80}, counted{engine: engineNFT, port: 30080}
	c, d := counted{engine: engineIPVS, port: 80}, counted{engine: engineNFT, port: 81}
	start := time.Unix(100, 0)
	before := counts{at: start, total: map[counted]totals{
		a: {"shop/web:http", 100, 0}, b: {"shop/web:http", 10, 5}, c: {"shop/busy:http", 1000, 0}, d: {"shop/anew:http", 50, 0},
	}}
	now := counts{at: start.Add(2 * time.Second), total: map[counted]totals{
		a: {"shop/web:http", 120, 0}, b: {"shop/web:http", 12, 15}, c: {"shop/busy:http", 1002, 0}, d: {"shop/anew:http", 3, 0},
	}}
	return loads(before, now)
}

func TestTopRows(t *testing.T) {
	for column, want := range map[string]string{
		"connections": "shop/web:http shop/busy:http shop/anew:http", "refused": "shop/web:http shop/anew:http shop/busy:http",
		"total": "shop/busy:http shop/web:http shop/anew:http", "name": "shop/anew:http shop/busy:http shop/web:http",
	} {
		rows := topRows()
		sortLoads(rows, column)
		var names []string
		for _, r := range rows {
			names = append(names, r.Service)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", column, got, want)
		}
		web := rows[slices.Index(names, "shop/web:http")]
		if web.Rate != 11 || web.Refused != 5 || web.Total != 132 {
			t.Errorf("%+v, want 11/s, 5 refused/s, 132", web)
		}
	}
}

// TestTopScreen: the screen fits, whatever there is to show.
func TestTopScreen(t *testing.T) {
	rows := topRows()
	for i := range 1000 {
		rows = append(rows, Load{Service: fmt.Sprintf("namespace/%s-%d:http", strings.Repeat("long", 20), i)})
	}
	o := top{topOptions: topOptions{interval: time.Second, sort: "connections"}, rows: rows}
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

func TestTopMistakes(t *testing.T) {
	for _, args := range []string{"--sort=size", "--interval=1ms", "a/b/c"} {
		cmd := NewTop(func(err error) error { return mistake{err} })
		cmd.SetArgs(strings.Fields(args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if _, wrong := cmd.Execute().(mistake); !wrong { //nolint:errorlint // NewTop returns it as it is
			t.Errorf("top %s is no wrong usage", args)
		}
	}
}
