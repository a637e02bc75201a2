package preflight

import (
	"fmt"
	"io"
	"strings"
)

// Status is the outcome of a check.
type Status string

// The outcomes. A warning is something that Verdict can serve with.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Error   Status = "error"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // unless the status is ok
}

// Errors counts the findings that are errors.
func Errors(list []Finding) (n int) {
	for _, f := range list {
		if f.Status == Error {
			n++
		}
	}
	return n
}

// PrintTable writes a line for each finding, and another one for its remedy.
func PrintTable(w io.Writer, list []Finding) error {
	width := 0
	for _, f := range list {
		width = max(width, len(f.Check))
	}
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", f.Status, width, f.Check, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%-7s  %-*s  -> %s\n", "", width, "", f.Remedy)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
