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

	"github.com/verdict-proxy/verdict/e2e/chaos/inject"
)

// options are the flags.
type options struct {
	seed      uint64
	rounds    int
	first     int
	binaries  string
	verdict   string
	others    []string
	logs      string
	only      string
	manifests bool
	soak      time.Duration
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == inject.BecomeWord {
		fmt.Fprintln(os.Stderr, "chaos: become verdict:", inject.Become(os.Args[2:]))
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

func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.Uint64Var(&o.seed, "seed", 0, "the `NUMBER` that decides the faults and the objects; 0: a new one")
	fs.IntVar(&o.rounds, "rounds", 200, "the `NUMBER` of rounds")
	fs.IntVar(&o.first, "first", 1, "the `NUMBER` of the first round, to repeat the end of a run")
	fs.StringVar(&o.binaries, "binaries", "", "`DIR` with etcd and kube-apiserver (e2e/controlplane/build.sh)")
	fs.StringVar(&o.verdict, "verdict", "bin/verdict", "the `FILE` with the program under test")
	other := fs.String("other", "", "the `FILES` with other versions of the program, separated by commas, which take turns with it in one more fault")
	fs.StringVar(&o.logs, "logs", "", "`DIR` for logs; default: a temporary one, which stays after a failure")
	fs.StringVar(&o.only, "only", "", "draw only faults whose names contain one of these `WORDS`, separated by commas")
	fs.BoolVar(&o.manifests, "manifests", false, "the daemon follows a folder of manifests instead of an API server")
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
	for _, file := range strings.FieldsFunc(*other, func(r rune) bool { return r == ',' }) {
		file, err := filepath.Abs(file)
		if err != nil {
			return o, err
		}
		o.others = append(o.others, file)
	}
	if len(faultsOf(o)) == 0 {
		return o, fmt.Errorf("-only: no fault has a name with %q", o.only)
	}
	var err error
	if o.verdict, err = filepath.Abs(o.verdict); err != nil {
		return o, err
	}
	return o, err
}

// run builds the bed, plays the rounds and prints the table.
func run(ctx context.Context, o *options) (err error) {
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
	g := &game{bed: b, options: o, faults: faultsOf(o), count: map[string]int{}}
	start := time.Now()
	if o.soak > 0 {
		err = g.soak(ctx)
	} else {
		err = g.play(ctx)
	}
	fmt.Print(g.report(time.Since(start)))
	if err = errors.Join(err, b.close()); err != nil {
		return err
	}
	return remove()
}
