package demo

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen writes human-readable text. It uses colors only on a terminal, and block characters only in a UTF-8 locale.
type screen struct {
	w       io.Writer
	color   bool
	unicode bool
	width   int // the width of a line
}

// lineWidth limits the width of a line on a wider terminal.
const lineWidth = 100

// longestBar limits the length of a bar, so that the numbers stay near the bars.
const longestBar = 48

func newScreen(w io.Writer) *screen {
	s := &screen{w: w, width: lineWidth}
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	s.unicode = strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.color = os.Getenv("NO_COLOR") == ""
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.width = min(width, lineWidth)
	}
	return s
}

// heading writes the heading of a step.
func (s *screen) heading(text string) {
	if s.color {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	fmt.Fprintf(s.w, "\n%s\n\n", text)
}

// say writes text and indents each line.
func (s *screen) say(format string, args ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	for line := range strings.Lines(text + "\n") {
		fmt.Fprint(s.w, strings.TrimRight("  "+line, " \n")+"\n")
	}
}

// bars draws a round: one bar for each pod, and beside it the numbers of each family.
func (s *screen) bars(names []string, r *round) {
	totals := map[string]int{}
	longest, label := 1, 0
	for _, name := range names {
		for _, c := range r.columns {
			totals[name] += c.hits[name]
		}
		longest, label = max(longest, totals[name]), max(label, len(name))
	}
	const columnWidth = 7
	room := min(max(s.width-2-label-4-columnWidth*len(r.columns), 8), longestBar)
	fmt.Fprintf(s.w, "  %*s  %*s  ", label, "", room, "")
	for _, c := range r.columns {
		fmt.Fprintf(s.w, "%*s", columnWidth, c.name)
	}
	for _, name := range names {
		fmt.Fprintf(s.w, "\n  %-*s  %s  ", label, name, s.bar(totals[name], longest, room))
		for _, c := range r.columns {
			fmt.Fprintf(s.w, "%*d", columnWidth, c.hits[name])
		}
	}
	fmt.Fprintln(s.w)
}

// bar returns a bar that fills n/longest of the room, padded to the room. If n is not 0, the bar is visible.
func (s *screen) bar(n, longest, room int) string {
	const eighths = " ▏▎▍▌▋▊▉"
	filled := math.Max(float64(n)/float64(longest)*float64(room), 0)
	if !s.unicode {
		whole := int(math.Round(filled))
		if n > 0 {
			whole = max(whole, 1)
		}
		return strings.Repeat("#", whole) + strings.Repeat(" ", room-whole)
	}
	parts := int(math.Round(filled * 8))
	if n > 0 {
		parts = max(parts, 1)
	}
	text := strings.Repeat("█", parts/8)
	used := parts / 8
	if rest := parts % 8; rest > 0 {
		text, used = text+string([]rune(eighths)[rest]), used+1
	}
	if s.color {
		text = "\x1b[32m" + text + "\x1b[0m"
	}
	return text + strings.Repeat(" ", room-used)
}
