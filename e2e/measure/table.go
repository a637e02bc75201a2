package measure

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table has rows of cells. It prints them as Markdown with aligned columns, which is readable as plain text, too.
type Table struct {
	Head []string
	Rows [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// String is the table in Markdown.
func (t *Table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	rule := slices.Repeat([]string{"---"}, len(t.Head))
	for _, row := range append([][]string{t.Head, rule}, t.Rows...) {
		cells := append(slices.Clone(row), make([]string, len(t.Head)-len(row))...)
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(cells, "\t| "))
	}
	_ = w.Flush() // a Builder takes everything
	return b.String()
}

// Count prints a number with commas: 50,000.
func Count(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Short prints a number with three significant digits.
func Short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return Count(int(v + 0.5))
}
