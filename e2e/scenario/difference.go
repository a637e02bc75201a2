package scenario

import (
	"fmt"
	"strings"
)

// Differences is a Markdown table of everything that upstream's kube-proxy is expected to do otherwise.
func Differences(list []*Scenario) string {
	var out strings.Builder
	out.WriteString("| scenario | step | Verdict | kube-proxy | because |\n|---|---|---|---|---|\n")
	for _, s := range list {
		name := fmt.Sprintf("%s: %s", s.File, s.Name)
		if s.NotUpstream != "" {
			fmt.Fprintf(&out, "| %s | all | | not run | %s |\n", name, cell(s.NotUpstream))
		}
		for _, step := range s.Steps {
			if step.Upstream == nil {
				continue
			}
			call, want, _ := strings.Cut(step.Text, " => ")
			fmt.Fprintf(&out, "| %s | `%s` | %s | %s | %s |\n", name, squeeze(call), cell(squeeze(want)), cell(step.Instead), cell(step.Because))
		}
	}
	return out.String()
}

// DifferencesOfIPVS is the same for Verdict itself when IPVS serves all Services.
func DifferencesOfIPVS(list []*Scenario) string {
	var out strings.Builder
	out.WriteString("| scenario | step | usually | with IPVS | because |\n|---|---|---|---|---|\n")
	for _, s := range list {
		name := fmt.Sprintf("%s: %s", s.File, s.Name)
		if s.NotIPVS != "" {
			fmt.Fprintf(&out, "| %s | all | | not run | %s |\n", name, cell(s.NotIPVS))
		}
		for _, step := range s.Steps {
			if step.IPVS == nil {
				continue
			}
			call, want, _ := strings.Cut(step.Text, " => ")
			fmt.Fprintf(&out, "| %s | `%s` | %s | %s | %s |\n", name, squeeze(call), cell(squeeze(want)), cell(step.IPVS.Instead), cell(step.IPVS.Because))
		}
	}
	return out.String()
}

// cell keeps a text within its column.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
