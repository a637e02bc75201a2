package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Reference is the Markdown table of all verbs of some kinds.
func Reference(kinds ...Kind) string {
	var out strings.Builder
	out.WriteString("| step | what it does | example |\n|---|---|---|\n")
	for _, v := range Verbs() {
		if slices.Contains(kinds, v.Kind) {
			usage := strings.TrimSpace(v.Name + " " + v.Arguments)
			example, _, _ := strings.Cut(v.Examples[0], "\n")
			fmt.Fprintf(&out, "| `%s` | %s | `%s` |\n", cell(usage), cell(v.Help), cell(example))
		}
	}
	return out.String()
}

// Differences is a Markdown table of everything that upstream's kube-proxy does differently.
func Differences(list []*Scenario) string {
	return differences(list, "Verdict | kube-proxy",
		func(s *Scenario) string { return s.NotUpstream },
		func(s *Step) *Variant { return s.Upstream })
}

// DifferencesOfIPVS is a Markdown table of everything that Verdict does differently when IPVS serves all Services.
func DifferencesOfIPVS(list []*Scenario) string {
	return differences(list, "usually | with IPVS",
		func(s *Scenario) string { return s.NotIPVS },
		func(s *Step) *Variant { return s.IPVS })
}

// differences lists the scenarios that do not run and the steps that expect something else.
func differences(
	list []*Scenario, columns string, excluded func(*Scenario) string, variant func(*Step) *Variant,
) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| scenario | step | %s | because |\n|---|---|---|---|---|\n", columns)
	for _, s := range list {
		name := fmt.Sprintf("%s: %s", s.File, s.Name)
		if why := excluded(s); why != "" {
			fmt.Fprintf(&out, "| %s | all | | not run | %s |\n", name, cell(why))
		}
		for i := range s.Steps {
			step := &s.Steps[i]
			if v := variant(step); v != nil {
				call, want, _ := strings.Cut(step.Text, " => ")
				fmt.Fprintf(&out, "| %s | `%s` | %s | %s | %s |\n",
					name, squeeze(call), cell(squeeze(want)), cell(v.Instead), cell(v.Because))
			}
		}
	}
	return out.String()
}

// cell escapes a text for a cell of a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
