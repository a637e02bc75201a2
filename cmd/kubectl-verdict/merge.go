package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// said is what some nodes say.
type said struct {
	text  string
	nodes []string
}

// group puts nodes together that say the same. What most of them say comes first.
func group(of map[string]string) (all []said) {
	by := map[string][]string{}
	for node, text := range of {
		by[text] = append(by[text], node)
	}
	for text, nodes := range by {
		slices.Sort(nodes)
		all = append(all, said{text, nodes})
	}
	slices.SortFunc(all, func(a, b said) int {
		return cmp.Or(cmp.Compare(len(b.nodes), len(a.nodes)), slices.Compare(a.nodes, b.nodes))
	})
	return all
}

// maxNamed is how many nodes a line names.
const maxNamed = 4

// names says which nodes these are. Of all nodes it says how many there are.
func names(nodes []string, of int) string {
	switch {
	case len(nodes) == of && of > 1:
		return fmt.Sprintf("all %d nodes", of)
	case len(nodes) <= maxNamed:
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%d of %d nodes", len(nodes), of)
}

// printSame prints the text of each answer once, below the nodes that say it, and names those that could not be asked.
func (f *fleet) printSame(answers []answer, text func(answer) string) error {
	of := map[string]string{}
	for _, a := range answers {
		if a.err == nil {
			of[a.node] = text(a)
		}
	}
	groups := group(of)
	for _, s := range groups {
		fmt.Fprintf(f.out, "%s:\n", names(s.nodes, len(answers)))
		for line := range strings.Lines(s.text) {
			fmt.Fprintf(f.out, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return f.judge(answers, len(groups) > 1)
}

// judge names the nodes that could not be asked, and ends the command.
func (f *fleet) judge(answers []answer, differs bool) error {
	for _, a := range answers {
		if a.err != nil {
			differs = true
			fmt.Fprintf(f.out, "%s does not answer: %v\n", a.node, a.err)
		}
	}
	if differs {
		return errDiffers
	}
	return nil
}

// decode reads what a node printed as JSON. What it cannot read is an error of the node.
func decode(a *answer, into any) bool {
	if a.err != nil {
		return false
	}
	if err := json.Unmarshal([]byte(a.stdout), into); err != nil {
		a.err = fmt.Errorf("verdict ended with code %d and no JSON: %s", a.code, cmp.Or(strings.TrimSpace(a.stderr), err.Error()))
		return false
	}
	return true
}

// table has what each node says about each thing.
type table map[string]map[string]string // by thing and node

func (t table) add(thing, node, text string) {
	if t[thing] == nil {
		t[thing] = map[string]string{}
	}
	t[thing][node] = text
}

// print prints each thing, with one line if all nodes say the same of it. It reports whether some do not.
func (t table) print(f *fleet, nodes []string) (differs bool) {
	for _, thing := range slices.Sorted(maps.Keys(t)) {
		for _, node := range nodes {
			if _, ok := t[thing][node]; !ok {
				t[thing][node] = "not there"
			}
		}
		groups := group(t[thing])
		if len(groups) == 1 {
			fmt.Fprintf(f.out, "%s  %s\n", thing, groups[0].text)
			continue
		}
		differs = true
		fmt.Fprintln(f.out, thing)
		for _, s := range groups {
			fmt.Fprintf(f.out, "  %s: %s\n", names(s.nodes, len(nodes)), s.text)
		}
	}
	return differs
}
