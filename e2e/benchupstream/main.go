package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// options are the flags.
type options struct {
	sizes    []int
	only     string
	verdict  string
	binaries string
	cache    string
	changes  int
	seconds  int
	json     bool
	plot     string
	save     string
	from     string
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchupstream:", err)
		os.Exit(2)
	}
	if err := execute(o); err != nil {
		fmt.Fprintln(os.Stderr, "benchupstream:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("benchupstream", flag.ContinueOnError)
	sizes := fs.String("sizes", "100,1000,5000,10000,50000", "numbers of Services, comma separated; a proxy that would take too long at a size is left out")
	fs.StringVar(&o.only, "only", "", "measure only proxies whose name contains `TEXT`")
	fs.StringVar(&o.verdict, "verdict", "bin/verdict", "the binary of Verdict")
	fs.StringVar(&o.binaries, "binaries", "", "`DIR` with etcd, kube-apiserver and kube-proxy (e2e/controlplane/build.sh prints it)")
	fs.StringVar(&o.cache, "cache", ".cache/bench-upstream", "`DIR` that keeps prepared clusters")
	fs.IntVar(&o.changes, "changes", 15, "`N` single changes for each proxy at each size")
	fs.IntVar(&o.seconds, "seconds", 10, "the stream of changes lasts `N` seconds")
	fs.BoolVar(&o.json, "json", false, "print JSON instead of tables")
	fs.StringVar(&o.plot, "plot", "", "draw the latency of one change into `FILE` (SVG)")
	fs.StringVar(&o.save, "save", "", "also write the figures as JSON into `FILE`")
	fs.StringVar(&o.from, "from", "", "measure nothing: show and draw the figures in `FILE`, which -save or -json wrote")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	for _, word := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 2 || n > 300_000 {
			return nil, fmt.Errorf("-sizes: %q is not a number from 2 to 300000", word)
		}
		o.sizes = append(o.sizes, n)
	}
	slices.Sort(o.sizes)
	if o.binaries == "" && o.from == "" {
		return nil, errors.New("-binaries is missing: e2e/controlplane/build.sh prints the folder")
	}
	return o, absolute(&o.verdict, &o.binaries, &o.cache)
}

// absolute makes paths absolute, because child processes run in another folder.
func absolute(paths ...*string) error {
	for _, p := range paths {
		full, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = full
	}
	return nil
}

// execute obtains the figures and shows, saves and draws them.
func execute(o *options) error {
	out, err := obtain(o)
	if err != nil {
		return err
	}
	if o.plot != "" {
		if err := os.WriteFile(o.plot, []byte(plot(out)), 0o644); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := os.WriteFile(o.save, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.json {
		fmt.Println(string(text))
		return nil
	}
	fmt.Print(report(out))
	return nil
}

// obtain measures, or reads figures that an earlier run has saved.
func obtain(o *options) (*result, error) {
	if o.from == "" {
		return measureAll(o)
	}
	text, err := os.ReadFile(o.from)
	if err != nil {
		return nil, err
	}
	out := &result{}
	return out, json.Unmarshal(text, out)
}

// measureAll measures each proxy at each size. Each size has its own control plane.
func measureAll(o *options) (*result, error) {
	progress := measure.NewProgress(os.Stderr)
	defer progress.Done()
	begin, out := time.Now(), &result{Machine: measure.ThisMachine()}
	s := &snapshots{binaries: o.binaries, cache: o.cache}
	for _, services := range o.sizes {
		progress.Stage("%s services: starting the API server", measure.Count(services))
		err := onPlane(s, services, func(p *plane, dir string) error {
			for _, k := range proxyKinds() {
				if services > k.most || !strings.Contains(k.name, o.only) {
					continue
				}
				r, err := runProxy(o, k, p, dir, services, progress)
				if err != nil {
					return fmt.Errorf("%s: %w", k.name, err)
				}
				out.Runs = append(out.Runs, r)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s services: %w", measure.Count(services), err)
		}
	}
	out.Seconds = time.Since(begin).Seconds()
	return out, nil
}
