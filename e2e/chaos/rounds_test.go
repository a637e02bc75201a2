//go:build e2e

package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// game plays rounds of faults.
type game struct {
	*testing.T
	*bed
	faults  []fault
	count   map[string]int // of each fault
	rounds  int
	settles []time.Duration // how long each round took until the kernel was right
}

// selectedFaults lists the faults that the flags select.
func selectedFaults() []fault {
	all := slices.Concat(daemonFaults(), outsideFaults(), objectFaults(), healthFaults(), editFaults())
	return slices.DeleteFunc(all, func(f fault) bool {
		contained := func(word string) bool { return strings.Contains(f.name, word) }
		return f.name == otherVersion && *others == "" || f.api && *manifests || f.files && !*manifests || f.fast && slowPath() != "" ||
			!slices.ContainsFunc(strings.Split(*only, ","), contained)
	})
}

// drawFaults chooses one to three different faults.
func drawFaults(faults []fault, r *rand.Rand) (drawn []*fault) {
	total := 0
	for i := range faults {
		total += faults[i].weight
	}
	for range 1 + r.IntN(3) {
		f := &faults[0]
		for i, at := 0, r.IntN(total); at >= 0; i++ {
			f = &faults[i]
			at -= f.weight
		}
		if f.alone {
			return []*fault{f}
		}
		if !slices.Contains(drawn, f) {
			drawn = append(drawn, f)
		}
	}
	return drawn
}

// play plays the rounds. It returns after the first round that broke a rule, so that the logs end there.
func (g *game) play() error {
	for round := *first; round < *first+*rounds; round++ {
		if err := g.round(round); err != nil {
			return fmt.Errorf("round %d: %w\nrepeat it: make chaos SEED=%d ROUNDS=%d\n%s",
				round, err, *seed, round, g.explain())
		}
		g.rounds++
	}
	if err := g.daemon.refusesSecond(); err != nil {
		return fmt.Errorf("after the last round: %w\n%s", err, g.explain())
	}
	return nil
}

// round begins the faults that it draws, ends them, waits until the kernel is right, and judges what the clients saw.
func (g *game) round(number int) error {
	r := rand.New(rand.NewPCG(*seed, uint64(number)))
	drawn := drawFaults(g.faults, r)
	names := make([]string, len(drawn))
	for i, f := range drawn {
		names[i] = f.name
		g.count[f.name]++
	}
	start := time.Now()
	what := strings.Join(names, ", ")
	if g.fast.in(number) {
		what += " (with the fast path)"
	}
	g.ledger.note("round %d: %s", number, what)
	err := g.switchFastPath(number)
	if err == nil {
		err = g.inflict(r, drawn)
	}
	settled := time.Now()
	if err == nil {
		err = g.settle()
	}
	took := time.Since(settled)
	g.settles = append(g.settles, took)
	if err == nil && g.daemon.fastPath {
		err = g.fast.untilTaken()
	}
	if err == nil {
		err = g.ledger.judge()
	}
	g.Logf("%s round %d: %s; %.1f s, settled in %d ms", time.Now().UTC().Format(time.TimeOnly), number,
		what, time.Since(start).Seconds(), took.Milliseconds())
	return err
}

// inflict begins the faults in order, with pauses between them, and ends them in the same order.
func (g *game) inflict(r *rand.Rand, drawn []*fault) error {
	var ends []func() error
	for _, f := range drawn {
		end, err := f.begin(g.bed, r)
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

// settle starts what does not run, stops the churn, and waits until the kernel equals a fresh plan.
func (g *game) settle() error {
	g.churn.hold()
	defer g.churn.release()
	if err := g.daemon.start(); err != nil {
		return err
	}
	err := g.oracle.equal()
	err = errors.Join(err, g.editor.forgetUntranslated())
	g.ledger.closeAll()
	return errors.Join(err, g.daemon.err())
}

// explain saves the ruleset, ends the daemon with the stacks of its goroutines in the log, and names the logs.
func (g *game) explain() string {
	path := filepath.Join(g.logs, "failed.ruleset")
	ruleset, err := g.world.Node.Command("nft", "list", "ruleset")
	if err == nil {
		err = os.WriteFile(path, []byte(ruleset), 0o644)
	}
	text := "the ruleset is in " + path
	if err != nil {
		text = "the ruleset could not be saved: " + err.Error()
	}
	return text + "\n" + g.daemon.abort()
}
