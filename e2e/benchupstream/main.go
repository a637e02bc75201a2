package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// options are the flags.
type options struct {
	sizes    measure.Sizes
	only     string
	verdict  string
	binaries string
	changes  int
	seconds  int
	plot     string
	save     string
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
	o := &options{sizes: measure.Sizes{100, 1000, 5000, 10_000, 50_000}}
	fs := flag.NewFlagSet("benchupstream", flag.ContinueOnError)
	fs.Var(&o.sizes, "sizes", "numbers of Services, comma separated; a proxy that would take too long at a size is left out")
	fs.StringVar(&o.only, "only", "", "measure only proxies whose name contains `TEXT`")
	fs.StringVar(&o.verdict, "verdict", "bin/verdict", "the binary of Verdict")
	fs.StringVar(&o.binaries, "binaries", "", "`DIR` with etcd, kube-apiserver and kube-proxy (e2e/controlplane/build.sh prints it)")
	fs.IntVar(&o.changes, "changes", 15, "`N` single changes for each proxy at each size")
	fs.IntVar(&o.seconds, "seconds", 10, "the stream of changes lasts `N` seconds")
	fs.StringVar(&o.plot, "plot", "", "draw the latency of one change into `FILE` (SVG)")
	fs.StringVar(&o.save, "save", "", "write all measurements into `FILE` for benchstat")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if o.binaries == "" {
		return nil, errors.New("-binaries is missing: e2e/controlplane/build.sh prints the folder")
	}
	return o, absolute(&o.verdict, &o.binaries)
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

// execute measures, and shows, saves and draws the figures.
func execute(o *options) error {
	start, machine, lines := time.Now(), measure.ThisMachine(), &measure.Lines{}
	if err := measureAll(o, lines, &measure.Progress{Out: os.Stderr, Start: start}); err != nil {
		return err
	}
	fmt.Printf("%s; took %.0f s\n%s", machine, time.Since(start).Seconds(), report(lines, o.sizes))
	if o.plot != "" {
		if err := os.WriteFile(o.plot, []byte(plot(lines, o.sizes, machine)), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), lines.Save(o.save, machine))
}

// measureAll measures each proxy at each size. Each size has its own control plane.
func measureAll(o *options, out *measure.Lines, progress *measure.Progress) error {
	for _, services := range o.sizes {
		progress.Stage("%s services: starting the API server", measure.Count(services))
		err := onPlane(o.binaries, services, func(p *plane, dir string) error {
			for _, k := range proxyKinds() {
				if services > k.most || !strings.Contains(k.name, o.only) {
					continue
				}
				progress.Stage("%s services: %s", measure.Count(services), k.name)
				if err := runProxy(o, k, p, dir, services, out); err != nil {
					return fmt.Errorf("%s: %w", k.name, err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s services: %w", measure.Count(services), err)
		}
	}
	return nil
}
