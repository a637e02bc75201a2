package measure

import (
	"fmt"
	"strings"
	"unicode/utf8"
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
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	writeRow(&b, t.Head, widths)
	b.WriteString("|")
	for _, w := range widths {
		b.WriteString(strings.Repeat("-", w+2) + "|")
	}
	b.WriteString("\n")
	for _, row := range t.Rows {
		writeRow(&b, row, widths)
	}
	return b.String()
}

func writeRow(b *strings.Builder, row []string, widths []int) {
	for i, w := range widths {
		cell := ""
		if i < len(row) {
			cell = row[i]
		}
		b.WriteString("| " + cell + strings.Repeat(" ", w-utf8.RuneCountInString(cell)) + " ")
	}
	b.WriteString("|\n")
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
