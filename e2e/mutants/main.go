package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// defaultTargets are the packages that decide what the kernel gets.
const defaultTargets = "./nft/program ./nft/rule ./nft/contents/... ./proxier/plan/... ./proxier/claims/... ./proxier/dataplane/... ./proxier/conntrack/... ./proxier/endpointhealth/..."

// options are the flags.
type options struct {
	root    string
	n       int
	seed    uint64
	targets string
	only    string
	skip    string
	again   string
	deep    bool
	list    bool
	within  time.Duration
	// patience is how much time of a processor tests may use with a mutant, besides four times what they use without one. They
	// may wait ten times as long.
	patience time.Duration
	out      io.Writer
}

func main() {
	o := options{root: ".", out: os.Stdout, patience: 10 * time.Second}
	flag.IntVar(&o.n, "n", 1000, "draw `N` mutants")
	flag.Uint64Var(&o.seed, "seed", 1, "of the draw")
	flag.StringVar(&o.targets, "targets", defaultTargets, "`PATTERNS` of the packages to change")
	flag.StringVar(&o.only, "operator", "", "only mutants whose operator contains `TEXT`")
	flag.StringVar(&o.skip, "skip", "", "leave out tests that match `REGEXP`, such as slow ones")
	flag.StringVar(&o.again, "again", "", "only mutants that the output of an earlier run in `FILE` lists; with -test, only the tests of \"make test\"")
	flag.BoolVar(&o.deep, "test", false, "run survivors against the tests of \"make test\" too (root)")
	flag.DurationVar(&o.within, "time", 24*time.Hour, "stop after this time, and report on the mutants that were run")
	flag.BoolVar(&o.list, "list", false, "list the mutants, and run nothing")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run draws mutants and runs them.
func run(o options) error {
	end := time.Now().Add(o.within)
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	names, all, err := find(root, strings.Fields(o.targets))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m *mutant) bool { return !strings.Contains(m.operator, o.only) })
	for _, m := range all {
		m.at.Filename, _ = filepath.Rel(root, m.at.Filename)
	}
	possible := len(all)
	if all, err = o.listed(all); err != nil {
		return err
	}
	chosen := choose(all, o.n, o.seed)
	fmt.Fprintf(o.out, "%d of %d possible mutants in %d packages, seed %d\n", len(chosen), possible, len(names), o.seed)
	if o.list {
		slices.SortFunc(chosen, func(a, b *mutant) int { return strings.Compare(a.String(), b.String()) })
		for _, m := range chosen {
			fmt.Fprintln(o.out, m)
		}
		return nil
	}
	changes, err := overlay(work, chosen)
	if err != nil {
		return err
	}
	alive, total := chosen, len(chosen)
	for _, s := range o.suites() {
		r := &runner{root: root, work: work, overlay: changes, suite: s, out: o.out, patience: o.patience, skip: o.skip}
		if err := r.build(names); err != nil {
			return err
		}
		left, ran := r.survivors(alive, end)
		total -= len(alive) - ran // those that were not run
		alive = left
		killed := total - len(alive)
		fmt.Fprintf(o.out, "\nmake %s: killed %d of %d mutants (%.1f %%); no test reached %d of the others\n",
			s.name, killed, total, 100*float64(killed)/float64(max(total, 1)), r.unreached)
	}
	return nil
}

// suites are those that the mutants meet, one after the other.
func (o *options) suites() (list []suite) {
	if !o.deep || o.again == "" {
		list = append(list, suite{"check, own packages", "nokernel", true}, suite{"check", "nokernel", false})
	}
	if o.deep {
		list = append(list, suite{"test, own packages", "", true}, suite{"test", "", false})
	}
	return list
}

// listed returns the mutants that the output of an earlier run lists as alive.
func (o *options) listed(all []*mutant) ([]*mutant, error) {
	if o.again == "" {
		return all, nil
	}
	text, err := os.ReadFile(o.again)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m *mutant) bool {
		return !strings.Contains(string(text), fate(true)+" "+m.String()+"\n") && !strings.Contains(string(text), fate(false)+" "+m.String()+"\n")
	}), nil
}

// survivors runs mutants, some at a time, and prints and returns those that no test notices.
func (r *runner) survivors(list []*mutant, end time.Time) (alive []*mutant, ran int) {
	var lock sync.Mutex
	var jobs errgroup.Group
	jobs.SetLimit(runtime.NumCPU())
	for _, m := range list {
		if time.Now().After(end) {
			break
		}
		ran++
		jobs.Go(func() error {
			by, reached := r.kills(m)
			lock.Lock()
			defer lock.Unlock()
			if by != "" {
				log.Printf("%d killed by %s: %s", m.id, by, m)
				return nil
			}
			if !reached {
				r.unreached++
			}
			fmt.Fprintf(r.out, "%s %s\n", fate(reached), m)
			alive = append(alive, m)
			return nil
		})
	}
	_ = jobs.Wait() // they return none
	return alive, ran
}

func fate(reached bool) string {
	if reached {
		return "SURVIVED"
	}
	return "UNREACHED"
}
