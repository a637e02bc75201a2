package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// equal waits until the kernel holds what a fresh plan says, element for element.
func (b *bed) equal(deadline time.Time) error {
	for {
		want, err := b.plan()
		if err == nil {
			err = b.equals(want, min(time.Second, time.Until(deadline)))
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// equals waits until the kernel holds a plan. The plan may be old by then, so it does not wait for long.
func (b *bed) equals(want []string, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, err := b.kernel()
		if err == nil {
			if err = difference(want, got); err == nil {
				return nil
			}
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// planPatience is how many seconds a plan may take. The API server may be down.
const planPatience = "10"

// plan is what a daemon that starts now would write. The real nft loads it into an empty namespace and lists it, so that
// both sides of the comparison have the form of the same program.
func (b *bed) plan() ([]string, error) {
	command := slices.Concat([]string{planPatience, b.daemon.binary, "render"}, b.daemon.planFlags())
	text, err := b.world.Node.Command("timeout", command...)
	if err != nil {
		return nil, fmt.Errorf("make a fresh plan: %w", err)
	}
	if err := b.scratch.Load("flush ruleset\n" + text); err != nil {
		return nil, fmt.Errorf("load a fresh plan: %w", err)
	}
	listed, err := b.scratch.Command("nft", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return canonical(listed), nil
}

// kernel is what the node's kernel holds in the tables of Verdict.
func (b *bed) kernel() ([]string, error) {
	text, err := b.world.Node.Command("nft", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return canonical(text), nil
}

// difference is an error that names lines which only one side has.
func difference(want, got []string) error {
	var lines []string
	count := map[string]int{}
	for _, line := range want {
		count[line]++
	}
	for _, line := range got {
		count[line]--
	}
	for line, n := range count {
		if n > 0 {
			lines = append(lines, "- "+line)
		} else if n < 0 {
			lines = append(lines, "+ "+line)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2:]+a, b[2:]+b) })
	const shown = 30
	more := ""
	if len(lines) > shown {
		more, lines = fmt.Sprintf("\nand %d more lines", len(lines)-shown), lines[:shown]
	}
	return errors.New("the kernel differs from a fresh plan (- plan, + kernel):\n" + strings.Join(lines, "\n") + more)
}
