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
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// options are the flags.
type options struct {
	sizes    []int
	large    bool
	json     bool
	profiles string
	// one and onlyLarge are for the child processes.
	one       int
	onlyLarge bool
}

func main() {
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
	fs.StringVar(&o.profiles, "profiles", "", "leave CPU and heap profiles of the first size in `DIR` instead of measuring")
	fs.IntVar(&o.one, "one-size", 0, "measure this size only and print JSON (used by the program itself)")
	fs.BoolVar(&o.onlyLarge, "only-large", false, "measure large Services only and print JSON (used by the program itself)")
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
	return o, nil
}

func run(ctx context.Context, o options) error {
	progress := measure.NewProgress(os.Stderr)
	defer progress.Done()
	switch {
	case o.profiles != "":
		return profile(o.profiles, o.sizes[0], progress)
	case o.one > 0:
		out, err := measureSize(o.one, progress)
		return errors.Join(err, printJSON(out))
	case o.onlyLarge:
		out, err := measureLarge(progress)
		return errors.Join(err, printJSON(out))
	}
	out, err := measureAll(ctx, o)
	progress.Done()
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(out)
	}
	fmt.Print(report(out))
	return nil
}

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// measureAll runs one child process for each size, one after the other.
func measureAll(ctx context.Context, o options) (*result, error) {
	start := time.Now()
	out := &result{Machine: measure.ThisMachine()}
	for _, n := range o.sizes {
		var r sizeResult
		if err := child(ctx, &r, "-one-size", strconv.Itoa(n)); err != nil {
			return nil, fmt.Errorf("%s services: %w", measure.Count(n), err)
		}
		out.Sizes = append(out.Sizes, r)
	}
	if o.large {
		out.Large = &largeResult{}
		if err := child(ctx, out.Large, "-only-large"); err != nil {
			return nil, fmt.Errorf("large services: %w", err)
		}
	}
	out.Seconds = time.Since(start).Seconds()
	return out, nil
}

// child runs this program again and reads its result.
func child(ctx context.Context, into any, args ...string) error {
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
	return json.Unmarshal(text, into)
}
