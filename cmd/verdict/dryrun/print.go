package dryrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Run prints the ruleset, and the changes to the folders that follow.
func (r *Renderer) Run(ctx context.Context, stdout, stderr io.Writer) error {
	folder := r.folder(manifests.Options{})
	if err := r.load(ctx, folder); err != nil {
		return err
	}
	if err := r.loop.Once(); err != nil {
		return err
	}
	if err := r.print(stdout, stderr, r.first()); err != nil {
		return err
	}
	for _, dir := range r.Options.Then {
		if err := folder.Load(dir); err != nil {
			return err
		}
		if err := r.loop.Once(); err != nil {
			return err
		}
		if err := r.print(stdout, stderr, "# then: "+dir+"\n"+r.changes()); err != nil {
			return err
		}
	}
	return nil
}

// first returns what the first pass wrote. In the listing, what IPVS gets follows in comments.
func (r *Renderer) first() string {
	changes := r.changes()
	if r.Options.Elements {
		return withoutProgram(changes)
	}
	text := r.rules.Listing()
	for line := range strings.Lines(changes) {
		if strings.HasPrefix(line, "ip") {
			text += "# " + line
		}
	}
	return text
}

func (r *Renderer) print(stdout, stderr io.Writer, text string) error {
	_, err := io.WriteString(stdout, text)
	_, problemsErr := io.WriteString(stderr, r.problems.take(r.files))
	return errors.Join(err, problemsErr)
}

// withoutProgram keeps elements and virtual servers. It leaves out the classes that every node has from the start. It
// keeps a class that comes with a Service, because the name of the class says how endpoints are picked.
func withoutProgram(changes string) string {
	always := "\n" + emptyProgram()
	program := []string{"add table ", "add chain ", "add rule ", "add set ", "add map "}
	var out strings.Builder
	for line := range strings.Lines(changes) {
		partOf := func(prefix string) bool { return strings.HasPrefix(line, prefix) }
		if !strings.Contains(always, "\n"+line) && !slices.ContainsFunc(program, partOf) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// emptyProgram prints what makes the tables of a node without Services.
var emptyProgram = sync.OnceValue(func() (text string) {
	k := &unwritten{NFTables: noTables{}, note: func(t *program.Transaction) { text = t.String() }}
	if e, err := nft.New(k, nft.Options{}); err == nil {
		_, _ = e.Apply() // this kernel takes everything
	}
	return text
})

// Validate plans what files have for a machine without addresses of its own, and returns the Problems in the order of files
// and lines.
func (r *Renderer) Validate(paths []string) ([]manifests.Place, error) {
	r.Addresses = []netip.Addr{}
	if err := r.folder(manifests.Options{}).LoadFiles(paths); err != nil {
		return nil, err
	}
	r.Store.SetHostAddresses(nil)
	r.Store.MarkSynced()
	if err := r.loop.Once(); err != nil {
		return nil, err
	}
	return r.files.Places(slices.Concat(slices.Collect(maps.Values(r.problems.current))...)), nil
}

// problemPrinter observes the loop and keeps problems.
type problemPrinter struct {
	changed bool // since take
	current map[state.Object][]state.Problem
}

// take returns the text of all problems, if there are others than the last time. Files are those of a folder.
func (p *problemPrinter) take(folder *manifests.Source) string {
	var text strings.Builder
	for _, o := range slices.SortedFunc(maps.Keys(p.current), state.Object.Compare) {
		for _, problem := range p.current[o] {
			switch {
			case !p.changed:
			case o.Kind == convert.KindFile:
				fmt.Fprintln(&text, folder.Locate(problem))
			case problem.Field == "":
				fmt.Fprintf(&text, "%s %s: %s\n", o.Kind, o.Name, problem.Reason)
			default:
				fmt.Fprintf(&text, "%s %s: %s: %s\n", o.Kind, o.Name, problem.Field, problem.Reason)
			}
		}
	}
	p.changed = false
	return text.String()
}

// Problems implements report.Observer.
func (p *problemPrinter) Problems(r report.Problems) {
	if p.current == nil {
		p.current = map[state.Object][]state.Problem{}
	}
	p.changed = true
	for _, c := range r.Changed {
		p.current[c.Object] = c.Problems
	}
}

// Pending implements report.Observer.
func (p *problemPrinter) Pending(time.Time) {}

// Repaired implements report.Observer.
func (p *problemPrinter) Repaired(report.Repair) {}

// PassDone implements report.Observer.
func (p *problemPrinter) PassDone(report.Pass) {}

// FlowsCleaned implements report.Observer.
func (p *problemPrinter) FlowsCleaned([]conntrack.Result) {}

// AsWanted implements report.Observer.
func (p *problemPrinter) AsWanted(time.Time) {}
