package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBar(t *testing.T) {
	tests := []struct {
		n, longest, room int
		ascii, blocks    string
	}{
		{0, 10, 10, "          ", "          "},
		{10, 10, 10, "##########", "██████████"},
		{5, 10, 10, "#####     ", "█████     "},
		{1, 1000, 4, "#   ", "▏   "}, // a small number is visible
		{3, 4, 1, "#", "▊"},
		{333, 1000, 8, "###     ", "██▋     "},
		{0, 1, 3, "   ", "   "},
	}
	for _, tt := range tests {
		for _, unicode := range []bool{false, true} {
			s, want := screen{unicode: unicode}, tt.ascii
			if unicode {
				want = tt.blocks
			}
			if got := s.bar(tt.n, tt.longest, tt.room); got != want {
				t.Errorf("bar(%d, %d, %d) = %q, want %q", tt.n, tt.longest, tt.room, got, want)
			}
		}
	}
}

// A bar always fills its room exactly, so that the columns of numbers beside it are straight.
func TestBarFillsItsRoom(t *testing.T) {
	const room = 17
	for longest := 1; longest <= 400; longest += 7 {
		for n := 0; n <= longest; n++ {
			for _, s := range []screen{{}, {unicode: true}} {
				bar := s.bar(n, longest, room)
				if len([]rune(bar)) != room || (n > 0) == (strings.TrimSpace(bar) == "") {
					t.Fatalf("bar(%d, %d, %d) = %q", n, longest, room, bar)
				}
			}
		}
	}
}

func TestBars(t *testing.T) {
	names := []string{"pod-a", "b"}
	r := &round{columns: []column{{"IPv4", tally{"pod-a": 6, "b": 1}}, {"IPv6", tally{"pod-a": 2, "b": 3}}}}
	tests := []struct {
		name   string
		screen screen
		want   string
	}{
		{"plain", screen{width: 40}, `
                       IPv4   IPv6
  pod-a  ###############        6      2
  b      ########               1      3
`},
		{"blocks", screen{width: 40, unicode: true}, `
                       IPv4   IPv6
  pod-a  ███████████████        6      2
  b      ███████▌               1      3
`},
		{"colored", screen{width: 40, color: true, unicode: true}, `
                       IPv4   IPv6
  pod-a  GREEN███████████████OFF        6      2
  b      GREEN███████▌OFF               1      3
`},
		{"narrow", screen{width: 10}, `
                IPv4   IPv6
  pod-a  ########        6      2
  b      ####            1      3
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			tt.screen.w = &out
			tt.screen.bars(names, r)
			got := strings.NewReplacer("\x1b[32m", "GREEN", "\x1b[0m", "OFF").Replace(out.String())
			_, header, _ := strings.Cut(tt.want, "\n")
			if fields := func(s string) []string { return strings.Split(s, "\n")[1:] }; strings.Join(fields(got), "\n") != strings.Join(fields(header), "\n") {
				t.Errorf("got\n%swant\n%s", got, header)
			}
			if first, _, _ := strings.Cut(got, "\n"); !strings.HasSuffix(first, "   IPv4   IPv6") {
				t.Errorf("the header is %q", first)
			}
		})
	}
}

// On a wide terminal, the bars still have a limited length.
func TestBarsAreNoLongerThanUseful(t *testing.T) {
	var out strings.Builder
	s := screen{w: &out, width: 500}
	s.bars([]string{"pod-a"}, &round{columns: []column{{"IPv4", tally{"pod-a": 6}}}})
	if n := strings.Count(out.String(), "#"); n != longestBar {
		t.Errorf("a bar of %d, want %d", n, longestBar)
	}
}

func TestScreenOfAFile(t *testing.T) {
	tests := []struct {
		name    string
		env     map[string]string
		unicode bool
	}{
		{"no locale", nil, false},
		{"C", map[string]string{"LC_ALL": "C"}, false},
		{"UTF-8", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"utf8", map[string]string{"LC_CTYPE": "C.utf8"}, true},
		{"LC_ALL wins", map[string]string{"LC_ALL": "C", "LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
				t.Setenv(name, tt.env[name])
			}
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if s := newScreen(f); s.color || s.unicode != tt.unicode || s.width != lineWidth {
				t.Errorf("newScreen: %+v, want no color, unicode %v, width %d", s, tt.unicode, lineWidth)
			}
		})
	}
}

func TestSay(t *testing.T) {
	tests := []struct{ text, want string }{
		{"one", "  one\n"},
		{"one\n", "  one\n"},
		{"one\n\ntwo", "  one\n\n  two\n"},
		{"", "\n"},
		{"\nafter a gap  ", "\n  after a gap\n"},
		{"    deep\n\ttab", "      deep\n  \ttab\n"},
	}
	for _, tt := range tests {
		var out strings.Builder
		s := screen{w: &out}
		s.say("%s", tt.text)
		if out.String() != tt.want {
			t.Errorf("say(%q) wrote %q, want %q", tt.text, out.String(), tt.want)
		}
	}
}

func TestHeading(t *testing.T) {
	for color, want := range map[bool]string{false: "\n1. A\n\n", true: "\n\x1b[1m1. A\x1b[0m\n\n"} {
		var out strings.Builder
		s := screen{w: &out, color: color}
		if s.heading("1. A"); out.String() != want {
			t.Errorf("color %v: %q, want %q", color, out.String(), want)
		}
	}
}

func TestDuration(t *testing.T) {
	tests := map[time.Duration]string{
		0:                        "0.00 ms",
		123 * time.Microsecond:   "0.12 ms",
		1234 * time.Microsecond:  "1.2 ms",
		9949 * time.Microsecond:  "9.9 ms",
		12345 * time.Microsecond: "12 ms",
		999 * time.Millisecond:   "999 ms",
		1500 * time.Millisecond:  "1.5 s",
	}
	for d, want := range tests {
		if got := duration(d); got != want {
			t.Errorf("duration(%d) = %q, want %q", d, got, want)
		}
	}
}
