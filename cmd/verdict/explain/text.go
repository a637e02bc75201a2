package explain

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// topicWidth is the width of the first column.
const topicWidth = 13

func (e *Explanation) writeText(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, s := range e.Steps {
		fmt.Fprintf(w, "%-*s %s\n", topicWidth, s.Topic, s.Text)
		for _, line := range s.Evidence {
			fmt.Fprintf(w, "%*s   %s\n", topicWidth, "", line)
		}
	}
	fmt.Fprintf(w, "%-*s %s\n", topicWidth, "verdict", e.Verdict.Text)
	return w.Flush()
}

func writeJSON(out io.Writer, value any) error {
	j := json.NewEncoder(out)
	j.SetIndent("", "  ")
	j.SetEscapeHTML(false)
	return j.Encode(value)
}

// plural is "1 endpoint", "2 endpoints".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// upTo joins the first lines, and says how many there are besides.
func upTo(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most:most], fmt.Sprintf("... and %d more", len(lines)-most))
}
