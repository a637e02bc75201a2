package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const diffHelp = `Compare the kernel of each node with what the objects of the API server ask for, as "verdict diff" does there, and say

  - which nodes differ, since when changes wait there, and what the first differences are
  - what is not honored
  - which endpoints get no new connections because they do not answer, and on which nodes. One node of many: its network; all
    of them: the endpoint.

Exit codes: 0 if no node differs; 1 if one differs or does not answer; 2 if the cluster could not be asked.`

// maxLines is how many differences of a node are printed.
const maxLines = 5

// differences is the JSON form of "verdict diff".
type differences struct {
	Changes []string `json:"changes"`
	Notes   []string `json:"notes"`
}

func (f *fleet) newDiff() *cobra.Command {
	all := false
	cmd := &cobra.Command{Use: "diff", Short: "Say which nodes differ from what the API server's objects ask for", Long: diffHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.diff(cmd.Context(), all) }}
	cmd.Flags().BoolVar(&all, "all", false, "print all differences of a node")
	return cmd
}

func (f *fleet) diff(ctx context.Context, all bool) error {
	of, err := f.askAll(ctx,
		func(d daemon) []string { return append([]string{"diff", "-o", "json"}, d.flags...) },
		func(daemon) []string { return []string{"list", "-o", "json", "--no-connections"} },
		func(daemon) []string { return []string{"top", "--once", "--interval=100ms", "-o", "json"} })
	if err != nil {
		return err
	}
	answers, listed, daemons := of[0], of[1], of[2]
	status := map[string][]string{}
	for i := range daemons {
		var l loads
		if decode(&daemons[i], &l) {
			status[daemons[i].node] = l.Daemon
		}
	}
	differs, same, problems := false, []string(nil), map[string][]string{}
	for i := range answers {
		a, d := &answers[i], differences{}
		if !decode(a, &d) {
			continue
		}
		for _, note := range d.Notes {
			problems[note] = append(problems[note], a.node)
		}
		if len(d.Changes) == 0 {
			same = append(same, a.node)
			continue
		}
		differs = true
		says := cmp.Or(strings.Join(status[a.node], "; "), "its daemon does not answer")
		fmt.Fprintf(f.out, "%s differs from what is wanted; %s\n", a.node, says)
		printLines(f, d.Changes, all)
	}
	if len(same) > 0 {
		fmt.Fprintf(f.out, "%s: as wanted\n", names(same, len(answers)))
	}
	for _, note := range slices.Sorted(maps.Keys(problems)) {
		fmt.Fprintf(f.out, "%s: %s\n", names(problems[note], len(answers)), note)
	}
	f.printSilent(listed)
	return f.judge(answers, differs)
}

func printLines(f *fleet, lines []string, all bool) {
	shown := lines
	if !all {
		shown = lines[:min(len(lines), maxLines)]
	}
	for _, line := range shown {
		fmt.Fprintf(f.out, "  %s\n", line)
	}
	if more := len(lines) - len(shown); more > 0 {
		fmt.Fprintf(f.out, "  ... and %d more (--all)\n", more)
	}
}

// printSilent prints which endpoints do not answer which nodes.
func (f *fleet) printSilent(listed []answer) {
	silent, nodes := map[string]map[string]bool{}, 0
	for i := range listed {
		var l listing
		if !decode(&listed[i], &l) {
			continue
		}
		nodes++
		for j := range l.Frontends {
			fe := &l.Frontends[j]
			for k := range fe.Endpoints {
				if e := &fe.Endpoints[k]; e.Bad {
					name := e.at() + " of " + fe.Service
					if silent[name] == nil {
						silent[name] = map[string]bool{}
					}
					silent[name][listed[i].node] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(silent)) {
		of := slices.Sorted(maps.Keys(silent[name]))
		fmt.Fprintf(f.out, "endpoint %s: does not answer %d of %d nodes: %s\n", name, len(of), nodes, names(of, nodes))
	}
}
