package takeover

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// legacyRules is what kube-proxy has in iptables-legacy, for one family.
type legacyRules struct {
	programs legacyPrograms
	restore  string // input of iptables-restore that removes it
	chains   int
	kept     []string
}

// legacyPrograms are the programs of one family.
type legacyPrograms struct {
	name          string // of both without the ending
	tables        string // the file that lists the tables in use
	save, restore string // the paths
}

var legacyFamilies = []legacyPrograms{
	{name: "iptables-legacy", tables: "/proc/thread-self/net/ip_tables_names"},
	{name: "ip6tables-legacy", tables: "/proc/thread-self/net/ip6_tables_names"},
}

// errNoProgram says that nobody can look into the tables.
var errNoProgram = errors.New("there is no program iptables-legacy-save that could read them; " +
	"install it, or restart the node: these tables are empty after a restart")

func findLegacy() ([]*legacyRules, error) {
	var list []*legacyRules
	for _, p := range legacyFamilies {
		names, err := os.ReadFile(p.tables)
		if err != nil || !slices.ContainsFunc(strings.Fields(string(names)), func(n string) bool { return slices.Contains(xtables, n) }) {
			continue // the kernel has no such tables, or nobody has used them in this network namespace
		}
		if !p.find() {
			return nil, fmt.Errorf("the kernel has tables of iptables-legacy (%s): %w", strings.Join(strings.Fields(string(names)), ", "), errNoProgram)
		}
		out, err := exec.Command(p.save).Output() //nolint:gosec // a constant, or what the search path has for it
		if err != nil {
			return nil, fmt.Errorf("list the tables of iptables-legacy with %s: %w", p.save, err)
		}
		if r := parseLegacy(string(out)); r.chains > 0 {
			r.programs = p
			list = append(list, r)
		}
	}
	return list, nil
}

// find finds the programs. The ones with "legacy" in their names exist where iptables is installed in both variants.
func (p *legacyPrograms) find() bool {
	for _, name := range []string{p.name, strings.TrimSuffix(p.name, "-legacy")} {
		save, err := exec.LookPath(name + "-save")
		if err != nil {
			continue
		}
		restore, err := exec.LookPath(name + "-restore")
		if err != nil {
			continue
		}
		version, err := exec.Command(save, "--version").Output() //nolint:gosec // as above
		if err == nil && !strings.Contains(string(version), "nf_tables") {
			p.save, p.restore = save, restore
			return true
		}
	}
	return false
}

// parseLegacy makes from the output of iptables-save the input that removes what is kube-proxy's.
func parseLegacy(saved string) *legacyRules {
	r := &legacyRules{}
	var out strings.Builder
	for part := range strings.SplitSeq(saved, "COMMIT\n") {
		_, part, ok := strings.Cut(part, "*")
		if !ok {
			continue
		}
		name, rules, _ := strings.Cut(part, "\n")
		if slices.Contains(xtables, name) {
			out.WriteString(r.parseTable(name, rules))
		}
	}
	r.restore = out.String()
	return r
}

func (r *legacyRules) parseTable(name, text string) string {
	builtIn, own, kept, full := map[string]bool{}, []string{}, map[string]bool{}, map[string]bool{}
	var jumps []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case strings.HasPrefix(line, ":"):
			chain := strings.TrimPrefix(words[0], ":")
			builtIn[chain] = words[1] != "-" // it has a policy
			if IsKubeProxys(chain) {
				own = append(own, chain)
			}
		case words[0] != "-A":
		case IsKubeProxys(words[1]):
			full[words[1]] = mustBeEmpty(words[1])
		case !IsKubeProxys(target(words)):
		case builtIn[words[1]]:
			jumps = append(jumps, "-D"+strings.TrimPrefix(strings.TrimSpace(line), "-A"))
		default:
			kept[target(words)] = true
		}
	}
	emptied := slices.DeleteFunc(slices.Clone(own), func(c string) bool { return kept[c] && !full[c] })
	own = slices.DeleteFunc(own, func(c string) bool { return kept[c] })
	for chain := range kept {
		r.kept = append(r.kept, fmt.Sprintf("%s %s", name, chain))
	}
	if r.chains += len(emptied); len(emptied)+len(jumps) == 0 {
		return ""
	}
	return removal(name, emptied, jumps, own)
}

// removal is the input that empties chains, deletes the rules that lead to them, and deletes chains, at once.
func removal(table string, emptied, jumps, deleted []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", table)
	for _, chain := range emptied {
		fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
	}
	for _, jump := range jumps {
		fmt.Fprintln(&b, jump)
	}
	for _, chain := range deleted {
		fmt.Fprintf(&b, "-X %s\n", chain)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// target returns the chain to which a rule leads.
func target(words []string) string {
	i := slices.IndexFunc(words, func(w string) bool { return w == "-j" || w == "-g" })
	if i < 0 || i+1 == len(words) {
		return ""
	}
	return words[i+1]
}

// remove replaces each table at once.
func (r *legacyRules) remove() error {
	cmd := exec.Command(r.programs.restore, "--noflush", "--wait=10") //nolint:gosec // from the search path
	cmd.Stdin = strings.NewReader(r.restore)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("remove the chains of kube-proxy with %s: %w: %s", r.programs.restore, err, bytes.TrimSpace(errs.Bytes()))
	}
	return nil
}
