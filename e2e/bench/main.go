package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// options are the flags.
type options struct {
	sizes measure.Sizes
	large bool
	count int
	save  string
	part  string // for the child processes
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
	o := options{sizes: measure.Sizes{100, 1000, 10_000, 50_000}}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Var(&o.sizes, "sizes", "numbers of Services, comma separated")
	fs.BoolVar(&o.large, "large", true, "measure large single Services as well")
	fs.IntVar(&o.count, "count", 1, "measure everything `N` times; tables show medians")
	fs.StringVar(&o.save, "save", "", "write all measurements into `FILE` for benchstat")
	fs.StringVar(&o.part, "part", "", "measure only this part and print its lines (for child processes)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.count < 1 {
		return o, fmt.Errorf("-count: %d is less than 1", o.count)
	}
	return o, nil
}

func run(ctx context.Context, o options) error {
	start, machine, lines := time.Now(), measure.ThisMachine(), &measure.Lines{}
	if o.part != "" {
		if err := measurePart(o.part, lines, &measure.Progress{Out: os.Stderr, Start: start}); err != nil {
			return err
		}
		return lines.Write(os.Stdout, machine)
	}
	for range o.count {
		for _, part := range o.parts() {
			if err := child(ctx, lines, part); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s; took %.0f s\n\n%s", machine, time.Since(start).Seconds(), report(lines, o))
	return errors.Join(lines.Err(), lines.Save(o.save, machine))
}

// parts names what the child processes measure, one after the other: each size, then the large Services.
func (o options) parts() (out []string) {
	for _, n := range o.sizes {
		out = append(out, sizeSuffix(n))
	}
	if o.large {
		out = append(out, largePart)
	}
	return out
}

const largePart = "large"

func measurePart(part string, lines *measure.Lines, progress *measure.Progress) error {
	if part == largePart {
		return measureLarge(fullEffort(0), lines, progress)
	}
	var services int
	if _, err := fmt.Sscanf(part, sizeFormat, &services); err != nil {
		return fmt.Errorf("-part: %q is not a part: %w", part, err)
	}
	return measureSize(services, fullEffort(services), lines, progress)
}

// child runs this program again and adds its measurements.
func child(ctx context.Context, lines *measure.Lines, part string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-part", part)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", strings.Join(cmd.Args, " "), err)
	}
	return lines.Read(text)
}
