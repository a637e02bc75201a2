package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// options are the flags.
type options struct {
	seed     uint64
	rounds   int
	first    int
	binaries string
	verdict  string
	other    string
	logs     string
	only     string
	soak     time.Duration
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == becomeWord {
		fmt.Fprintln(os.Stderr, "chaos: become verdict:", become(os.Args[2:]))
		os.Exit(1)
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // objects are strange on purpose
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: seed %d: %v\n", o.seed, err)
		fmt.Println("0 passed, 1 failed")
		os.Exit(1)
	}
	fmt.Println("1 passed, 0 failed")
}

func parse(args []string) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.Uint64Var(&o.seed, "seed", 0, "the `NUMBER` that decides the faults and the objects; 0: a new one")
	fs.IntVar(&o.rounds, "rounds", 200, "the `NUMBER` of rounds")
	fs.IntVar(&o.first, "first", 1, "the `NUMBER` of the first round, to repeat the end of a run")
	fs.StringVar(&o.binaries, "binaries", "", "`DIR` with etcd and kube-apiserver (e2e/controlplane/build.sh)")
	fs.StringVar(&o.verdict, "verdict", "bin/verdict", "the `FILE` with the program under test")
	fs.StringVar(&o.other, "other", "", "the `FILE` with another version of the program, which takes turns with it in one more fault")
	fs.StringVar(&o.logs, "logs", "", "`DIR` for logs; default: a temporary one, which stays after a failure")
	fs.StringVar(&o.only, "only", "", "draw only faults whose names contain one of these `WORDS`, separated by commas")
	fs.DurationVar(&o.soak, "soak", 0, "instead of rounds, watch the daemon for a `TIME`: memory, descriptors and goroutines must stay flat")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000)
	}
	if o.rounds < 1 || o.first < 1 {
		return o, errors.New("-rounds and -first: must be at least 1")
	}
	var err error
	if o.verdict, err = filepath.Abs(o.verdict); err == nil && o.other != "" {
		o.other, err = filepath.Abs(o.other)
	}
	return o, err
}

// run builds the bed, plays the rounds and prints the table.
func run(ctx context.Context, o options) (err error) {
	if os.Getuid() != 0 {
		return errors.New("chaos makes network namespaces and runs nft in them: run it as root")
	}
	remove := func() error { return nil }
	if o.logs == "" {
		if o.logs, err = os.MkdirTemp("", "verdict-chaos-"); err != nil {
			return fmt.Errorf("create a folder for logs: %w", err)
		}
		remove = func() error { return os.RemoveAll(o.logs) }
	}
	length := fmt.Sprintf("%d rounds", o.rounds)
	if o.soak > 0 {
		length = o.soak.String()
	}
	fmt.Printf("seed %d, %s; logs are in %s\n", o.seed, length, o.logs)
	b, err := newBed(o)
	if err != nil {
		return err
	}
	start := time.Now()
	if o.soak > 0 {
		err = b.soak(ctx)
	} else {
		err = b.play(ctx)
	}
	fmt.Print(b.report(time.Since(start)))
	if err = errors.Join(err, b.close()); err != nil {
		return err
	}
	return remove()
}

// play plays the rounds. It returns after the first round that broke a rule, so that the logs end there.
func (b *bed) play(ctx context.Context) error {
	for round := b.options.first; round < b.options.first+b.options.rounds; round++ {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in round %d", round)
		}
		if err := b.round(round); err != nil {
			return fmt.Errorf("round %d: %w\nrepeat it: make chaos SEED=%d ROUNDS=%d\n%s",
				round, err, b.options.seed, round, b.explain())
		}
		b.rounds++
	}
	if err := b.secondProxyEnds(); err != nil {
		return fmt.Errorf("after the last round: %w\n%s", err, b.explain())
	}
	return nil
}

// round begins the faults that it draws, ends them, waits until the kernel is right, and judges what the clients saw.
func (b *bed) round(number int) error {
	r := rand.New(rand.NewPCG(b.options.seed, uint64(number)))
	drawn := b.draw(r)
	names := make([]string, len(drawn))
	for i, f := range drawn {
		names[i] = f.name
		b.count[f.name]++
	}
	start := time.Now()
	b.ledger.note("round %d: %s", number, strings.Join(names, ", "))
	err := b.inflict(r, drawn)
	if err == nil {
		err = b.settle()
	}
	if err == nil {
		err = b.ledger.judge()
	}
	fmt.Printf("%s round %d: %s; %.1f s, settled in %.0f ms\n", time.Now().UTC().Format(time.TimeOnly), number,
		strings.Join(names, ", "), time.Since(start).Seconds(), float64(b.settled.Microseconds())/1000)
	return err
}

// inflict begins the faults in order, with pauses between them, and ends them in the same order.
func (b *bed) inflict(r *rand.Rand, drawn []*fault) error {
	var ends []func() error
	for _, f := range drawn {
		end, err := f.begin(b, r)
		if err != nil {
			return fmt.Errorf("begin the fault %q: %w", f.name, err)
		}
		if end != nil {
			ends = append(ends, end)
		}
		pause(r, 150*time.Millisecond)
	}
	for _, end := range ends {
		pause(r, 700*time.Millisecond)
		if err := end(); err != nil {
			return fmt.Errorf("end a fault: %w", err)
		}
	}
	return nil
}

// pause waits for a random time.
func pause(r *rand.Rand, longest time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(longest)))) }
