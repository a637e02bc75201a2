package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// options are the flags.
type options struct {
	sizes    []int
	large    bool
	json     bool
	count    int
	save     string
	profiles string
	// one and onlyLarge are for the child processes.
	one       int
	onlyLarge bool
}

func main() {
	testing.Init() // registers the flag that sets the number of iterations
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := fs.String("sizes", "100,1000,10000,50000", "numbers of Services, comma separated")
	fs.BoolVar(&o.large, "large", true, "measure large single Services as well")
	fs.BoolVar(&o.json, "json", false, "print JSON instead of tables")
	fs.IntVar(&o.count, "count", 1, "measure everything `N` times; tables show medians")
	fs.StringVar(&o.save, "save", "", "write all measurements into `FILE` for benchstat")
	fs.StringVar(&o.profiles, "profiles", "", "write CPU and heap profiles of the first size into `DIR`; measure nothing")
	fs.IntVar(&o.one, "one-size", 0, "measure this size only and print its lines (for child processes)")
	fs.BoolVar(&o.onlyLarge, "only-large", false, "measure large Services only and print their lines (for child processes)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	for _, word := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 2 || n > 1_000_000 {
			return o, fmt.Errorf("-sizes: %q is not a number from 2 to 1000000", word)
		}
		o.sizes = append(o.sizes, n)
	}
	slices.Sort(o.sizes)
	if o.count < 1 {
		return o, fmt.Errorf("-count: %d is less than 1", o.count)
	}
	return o, nil
}

func run(ctx context.Context, o options) error {
	progress := measure.NewProgress(os.Stderr)
	defer progress.Done()
	switch {
	case o.profiles != "":
		return profile(o.profiles, o.sizes[0], progress)
	case o.one > 0:
		return measureSize(o.one, fullEffort(o.one), newOutput(os.Stdout, sizeSuffix(o.one)), progress)
	case o.onlyLarge:
		return measureLarge(fullEffort(0), newOutput(os.Stdout, ""), progress)
	}
	out, err := measureAll(ctx, o)
	progress.Done()
	if err != nil {
		return err
	}
	if o.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(out)
	}
	fmt.Print(report(out))
	return nil
}

// measureAll runs child processes and sums up their measurements.
func measureAll(ctx context.Context, o options) (*result, error) {
	start := time.Now()
	out := &result{Machine: measure.ThisMachine()}
	var all figures
	for range o.count {
		if err := o.measureOnce(ctx, &all, out.Machine); err != nil {
			return nil, err
		}
	}
	if err := o.saveLines(&all); err != nil {
		return nil, err
	}
	for _, n := range o.sizes {
		out.Sizes = append(out.Sizes, all.size(n))
	}
	if o.large {
		out.Large = all.large(fullEffort(0).manyServices)
	}
	out.Seconds = time.Since(start).Seconds()
	return out, all.err()
}

// measureOnce runs one child process for each size, one after the other.
func (o options) measureOnce(ctx context.Context, all *figures, m measure.Machine) error {
	for _, n := range o.sizes {
		if err := child(ctx, all, m, "-one-size", strconv.Itoa(n)); err != nil {
			return fmt.Errorf("%s services: %w", measure.Count(n), err)
		}
	}
	if !o.large {
		return nil
	}
	if err := child(ctx, all, m, "-only-large"); err != nil {
		return fmt.Errorf("large services: %w", err)
	}
	return nil
}

// child runs this program again and adds its measurements.
func child(ctx context.Context, all *figures, m measure.Machine, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run %s %s: %w", self, strings.Join(args, " "), err)
	}
	return all.read(text, m)
}

// saveLines writes all measurements into a file for benchstat.
func (o options) saveLines(all *figures) error {
	if o.save == "" {
		return nil
	}
	f, err := os.Create(o.save)
	if err != nil {
		return fmt.Errorf("save the measurements: %w", err)
	}
	return errors.Join(all.write(f), f.Close())
}
